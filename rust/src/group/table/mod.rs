//! The table of a group: what is handed out, held back or waiting, shared by all processes.
//!
//! A cache of this boot: the journal is the truth, and the process that inherits the lock from a
//! dead holder rebuilds the table from it. Every operation here runs under the group's lock and
//! costs the same whether ten messages are out or a hundred thousand:
//!
//! * `order`, a ring of entries in offset order, gives the cursor (its oldest entry). A message
//!   that is done leaves a gap in it until the ring's front gets there or half of it is gaps; its
//!   entry is free at once and the next message gets it, still in the processor's cache.
//! * `lane`, a list linked through the entries, holds deadlines that come in rising order, which
//!   is what equal timeouts give; the others go to `heap`.
//! * `ready` is a heap by offset of what may be handed out again.
//! * `keys` maps a key to the chain of entries that carry it; only the first may be ready, and one
//!   behind it is out only if it was handed out together with those before it.

#[cfg(test)]
mod against_a_model;
mod check;
#[cfg(test)]
mod counted;
mod deadlines;
mod keys;
mod ready;

use std::sync::atomic::Ordering;

use crate::bytes::word_offsets::word_offsets;
use crate::files::region;
use crate::sys::mapping::Mapping;

/// Entries at most.
pub const MAX_ENTRIES: u32 = 1 << 20;
const FIRST_ENTRIES: u32 = 256;
/// No entry.
pub const NONE: u32 = u32::MAX;
/// Where in the heap an entry is whose deadline is in the lane.
pub const IN_LANE: u32 = u32::MAX - 1;
/// No deadline.
pub const NEVER: i64 = i64::MAX;

const HEADER_BYTES: usize = 4096;
const ENTRY_BYTES: usize = 96;
const ORDER_AT: usize = HEADER_BYTES + MAX_ENTRIES as usize * ENTRY_BYTES;
const HEAP_AT: usize = ORDER_AT + MAX_ENTRIES as usize * 8;
const READY_AT: usize = HEAP_AT + MAX_ENTRIES as usize * 4;
const KEYS_AT: usize = READY_AT + MAX_ENTRIES as usize * 4;
const SLOT_BYTES: usize = 16;
const TABLE_BYTES: usize = KEYS_AT + MAX_ENTRIES as usize * 2 * SLOT_BYTES;
/// Where each part of the file begins, and how much of it a table with few entries uses.
#[cfg(any(test, feature = "fuzzing"))]
pub const PARTS: [(usize, usize); 6] =
    [(0, 512), (HEADER_BYTES, 384), (ORDER_AT, 64), (HEAP_AT, 32), (READY_AT, 32), (KEYS_AT, 256)];

word_offsets! {
    /// Where the parts of the table begin, and how long it is.
    pub mod part {
        ENTRIES = crate::group::table::HEADER_BYTES,
        ORDER = crate::group::table::ORDER_AT,
        HEAP = crate::group::table::HEAP_AT,
        READY = crate::group::table::READY_AT,
        KEYS = crate::group::table::KEYS_AT,
        END = crate::group::table::TABLE_BYTES,
    }
}

word_offsets! {
    /// Words of the header.
    pub mod at {
        MAGIC = 0,
        BOOT = 8,
        LOCK = 16,
        FLAGS = 20,
        SYNC_LOCK = 24,
        VERSION = 28,
        NEXT = 32,
        DELIVERED = 40,
        ATTENTION = 48,
        TOKEN = 56,
        JOURNAL_END = 64,
        JOURNAL_SYNCED = 72,
        JOURNAL_NAME = 80,
        SKEW = 88,
        SYNCED_NEXT = 96,
        BROKEN = 104,
        SYNC_ASKED = 108,
        LOOKED_FOR_DEAD = 112,
        JOURNALED_NEXT = 120,
        CAPACITY = 128,
        USED = 132,
        FREE = 136,
        LANE_FIRST = 140,
        LANE_LAST = 144,
        HEAP_LEN = 148,
        READY_LEN = 152,
        GAPS = 156,
        ORDER_FIRST = 160,
        ORDER_LEN = 168,
        LEASED = 176,
        DELAYED = 180,
        BLOCKED = 184,
        CURSOR = 192,
        ACKED = 200,
        EXPIRED = 208,
        DEAD = 216,
        SKIPPED = 224,
        IDLE = 232,
        IDLE_AT = 240,
        IDLE_CHECK = 248,
        NEXT_CHECK = 256,
        OPENERS = 264,
        SYNCS_BEGUN = 268,
        SYNCED = 272,
        SYNCS_ENDED = 276,
    }
}

/// What an entry is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum EntryState {
    /// Unused.
    Free = 0,
    /// Handed out.
    Leased = 1,
    /// Not due yet.
    Delayed = 2,
    /// To be handed out next, by offset.
    Ready = 3,
    /// Waits until the message before it with the same key is done.
    Blocked = 4,
}

impl EntryState {
    /// The state with this number.
    pub fn of(value: u32) -> Self {
        match value {
            1 => Self::Leased,
            2 => Self::Delayed,
            3 => Self::Ready,
            4 => Self::Blocked,
            _ => Self::Free,
        }
    }

    /// What Python calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Leased => "leased",
            Self::Delayed => "delayed",
            Self::Blocked => "blocked",
            _ => "ready",
        }
    }
}

word_offsets! {
    /// Words of an entry.
    pub mod field {
        OFFSET = 0,
        FRAME = 8,
        DEADLINE = 16,
        TOKEN = 24,
        KEY = 32,
        STATE = 40,
        RECEIVES = 44,
        OWNER = 48,
        PLACE = 52,
        LANE_BEFORE = 56,
        LANE_AFTER = 60,
        KEY_NEXT = 64,
        TIMEOUT = 72,
        ORDER = 80,
    }
}

word_offsets! {
    /// Words of a slot of `keys`.
    pub mod slot {
        KEY = 0,
        FIRST = 8,
        LAST = 12,
    }
}

/// One entry, read out.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The message.
    pub offset: u64,
    /// Its frame, which is another offset only inside compressed frames.
    pub frame: u64,
    /// Boot time at which the lease ends or the message is due.
    pub deadline: i64,
    /// How long the deadline was when it was set.
    pub timeout: i64,
    /// Proof of the current lease.
    pub token: u64,
    /// Hash of its key; 0: none.
    pub key: u64,
    /// What it is.
    pub state: EntryState,
    /// How often it was handed out.
    pub receives: u32,
    /// The slot of the process that has it.
    pub owner: u32,
}

impl Entry {
    /// The entry of no message, for records that are about the group.
    pub const NONE: Self = Self {
        offset: 0,
        frame: 0,
        deadline: 0,
        timeout: 0,
        token: 0,
        key: 0,
        state: EntryState::Free,
        receives: 0,
        owner: NONE,
    };

    /// A message that was just read and may be handed out.
    #[inline]
    pub fn read(offset: u64, frame: u64, owner: u32) -> Self {
        let (state, receives) = (EntryState::Ready, 0);
        Self { offset, frame, deadline: 0, timeout: 0, token: 0, key: 0, state, receives, owner }
    }
}

/// The mapped table.
pub struct Table {
    map: Mapping,
}

impl Table {
    /// Opens or creates the file. The address space of the largest table is reserved; the file
    /// itself grows with what is out.
    pub fn open(path: &std::path::Path) -> std::io::Result<Self> {
        let file = region::open_or_create(path)?;
        region::allocate(&file, HEADER_BYTES as u64)?;
        Ok(Self { map: Mapping::new(file, TABLE_BYTES, true)? })
    }

    /// The mapping, for the lock and the counters.
    pub fn map(&self) -> &Mapping {
        &self.map
    }

    /// A 4-byte word of the header.
    #[inline(always)]
    pub fn small(&self, at: usize) -> u32 {
        self.map.word32(at).load(Ordering::Relaxed)
    }

    /// Stores a 4-byte word of the header.
    #[inline(always)]
    pub fn set_small(&self, at: usize, value: u32) {
        self.map.word32(at).store(value, Ordering::Relaxed);
    }

    /// An 8-byte word of the header.
    #[inline(always)]
    pub fn wide(&self, at: usize) -> u64 {
        self.map.word64(at).load(Ordering::Acquire)
    }

    /// Stores an 8-byte word of the header.
    #[inline(always)]
    pub fn set_wide(&self, at: usize, value: u64) {
        self.map.word64(at).store(value, Ordering::Release);
    }

    /// Counts. Under the lock.
    #[inline(always)]
    pub fn count(&self, at: usize, by: u64) {
        self.set_wide(at, self.wide(at).wrapping_add(by));
    }

    /// Counts what others may be counting right now, without the lock.
    #[inline]
    pub fn count_among_others(&self, at: usize, by: u64) {
        self.map.word64(at).fetch_add(by, Ordering::Relaxed);
    }

    /// Moves `next` from `from` to `to` and counts `delivered` messages, without the lock; false
    /// when someone else has moved it. One exchange does both, where the processor has one: a
    /// second one would wait for the first.
    #[inline(always)]
    pub fn move_on(&self, from: u64, to: u64, delivered: u64) -> bool {
        const { assert!(at::NEXT % 16 == 0 && at::DELIVERED == at::NEXT + 8) };
        let mut count = self.wide(at::DELIVERED);
        loop {
            let new = [to, count.wrapping_add(delivered)];
            match self.map.exchange_pair(at::NEXT, [from, count], new) {
                Some(Err([next, counted])) if next == from => count = counted,
                Some(moved) => return moved.is_ok(),
                None => break,
            }
        }
        let word = self.map.word64(at::NEXT);
        let moved = word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if moved {
            self.count_among_others(at::DELIVERED, delivered);
        }
        moved
    }

    #[inline(always)]
    fn entry_at(entry: u32, field: usize) -> usize {
        HEADER_BYTES + entry as usize * ENTRY_BYTES + field
    }

    #[inline(always)]
    fn load64(&self, entry: u32, field: usize) -> u64 {
        self.map.word64(Self::entry_at(entry, field)).load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn store64(&self, entry: u32, field: usize, value: u64) {
        self.map.word64(Self::entry_at(entry, field)).store(value, Ordering::Relaxed);
    }

    #[inline(always)]
    fn load32(&self, entry: u32, field: usize) -> u32 {
        self.map.word32(Self::entry_at(entry, field)).load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn store32(&self, entry: u32, field: usize, value: u32) {
        self.map.word32(Self::entry_at(entry, field)).store(value, Ordering::Relaxed);
    }

    #[inline(always)]
    fn deadline(&self, entry: u32) -> i64 {
        self.load64(entry, field::DEADLINE).cast_signed()
    }

    /// The entry's state.
    #[inline(always)]
    pub fn state(&self, entry: u32) -> EntryState {
        EntryState::of(self.load32(entry, field::STATE))
    }

    /// Whether an entry is the lease that a receipt names.
    #[inline(always)]
    pub fn is_lease(&self, entry: u32, token: u64, offset: u64) -> bool {
        entry < self.small(at::USED)
            && self.load64(entry, field::TOKEN) == token
            && self.load64(entry, field::OFFSET) == offset
            && self.state(entry) == EntryState::Leased
    }

    /// Hash of an entry's key; 0: none.
    #[inline(always)]
    pub fn key(&self, entry: u32) -> u64 {
        self.load64(entry, field::KEY)
    }

    /// Reads an entry out; none outside the table. Behind those in use lies what a table before
    /// this one left: it still looks like leases.
    pub fn entry(&self, entry: u32) -> Option<Entry> {
        (entry < self.small(at::USED)).then(|| Entry {
            offset: self.load64(entry, field::OFFSET),
            frame: self.load64(entry, field::FRAME),
            deadline: self.deadline(entry),
            timeout: self.load64(entry, field::TIMEOUT).cast_signed(),
            token: self.load64(entry, field::TOKEN),
            key: self.load64(entry, field::KEY),
            state: self.state(entry),
            receives: self.load32(entry, field::RECEIVES),
            owner: self.load32(entry, field::OWNER),
        })
    }

    /// The table is of another boot: it is unknown which of its pages the disk kept.
    pub fn forget(&self) {
        self.set_small(at::CAPACITY, 0);
    }

    /// Something failed half-way: the next holder of the lock makes the table anew.
    pub fn distrust(&self) {
        self.set_small(at::BROKEN, 1);
    }

    /// Forgets every message that is out, held back or waiting.
    pub fn clear(&self) {
        for word in
            [at::USED, at::HEAP_LEN, at::READY_LEN, at::GAPS, at::LEASED, at::DELAYED, at::BLOCKED]
        {
            self.set_small(word, 0);
        }
        for word in [at::FREE, at::LANE_FIRST, at::LANE_LAST] {
            self.set_small(word, NONE);
        }
        let slots = self.small(at::CAPACITY) as usize * 2;
        for slot in 0..slots {
            self.map.word64(KEYS_AT + slot * SLOT_BYTES).store(0, Ordering::Relaxed);
        }
        self.set_wide(at::ORDER_FIRST, 0);
        self.set_wide(at::ORDER_LEN, 0);
        self.set_wide(at::ATTENTION, NEVER.cast_unsigned());
        self.move_cursor();
    }

    // ── entries ────────────────────────────────────────────────────────────────────────────

    fn grow(&self) -> std::io::Result<()> {
        let old = self.small(at::CAPACITY);
        let new = if old == 0 { FIRST_ENTRIES } else { old.saturating_mul(2) };
        if new > MAX_ENTRIES {
            return Err(std::io::Error::other("the group's table is full"));
        }
        let file = self.map.file()?;
        let n = u64::from(new);
        for (at, len) in [
            (HEADER_BYTES, n * ENTRY_BYTES as u64),
            (ORDER_AT, n * 8),
            (HEAP_AT, n * 4),
            (READY_AT, n * 4),
            (KEYS_AT, n * 32),
        ] {
            crate::sys::files::allocate(file, at as u64, len)?;
        }
        self.set_small(at::CAPACITY, new);
        self.unroll_order(old);
        self.rehash(old, new);
        Ok(())
    }

    /// A ring of twice the size: everything keeps its index and gets another slot.
    fn unroll_order(&self, old: u32) {
        let (first, len) = (self.wide(at::ORDER_FIRST), self.wide(at::ORDER_LEN));
        let all: Vec<u32> = (first..first + len).map(|index| self.order_in(index, old)).collect();
        for (index, entry) in (first..).zip(all) {
            self.set_order(index, entry);
        }
    }

    #[inline(always)]
    fn take_entry(&self) -> std::io::Result<u32> {
        let free = self.small(at::FREE);
        if free != NONE && self.small(at::CAPACITY) > 0 {
            self.set_small(at::FREE, self.load32(free, field::KEY_NEXT));
            return Ok(free);
        }
        let used = self.small(at::USED);
        if used == self.small(at::CAPACITY) {
            self.grow().inspect_err(|_| self.distrust())?;
        }
        self.set_small(at::USED, used + 1);
        Ok(used)
    }

    #[inline(always)]
    fn free_entry(&self, entry: u32) {
        self.store32(entry, field::STATE, EntryState::Free as u32);
        self.store64(entry, field::TOKEN, 0);
        self.store32(entry, field::KEY_NEXT, self.small(at::FREE));
        self.set_small(at::FREE, entry);
    }

    // ── order ──────────────────────────────────────────────────────────────────────────────

    /// Where an index of the ring is. A table has room for a power of two.
    #[inline]
    fn order_at(index: u64, capacity: u32) -> usize {
        ORDER_AT + crate::bytes::words::size(index & u64::from(capacity.max(1) - 1)) * 8
    }

    #[inline(always)]
    fn order_in(&self, index: u64, capacity: u32) -> u32 {
        self.map.word32(Self::order_at(index, capacity)).load(Ordering::Relaxed)
    }

    /// The entry at an index of the ring; `NONE` is a gap.
    #[inline(always)]
    fn order(&self, index: u64) -> u32 {
        self.order_in(index, self.small(at::CAPACITY))
    }

    #[inline(always)]
    fn set_order(&self, index: u64, entry: u32) {
        let slot = Self::order_at(index, self.small(at::CAPACITY));
        self.map.word32(slot).store(entry, Ordering::Relaxed);
    }

    /// Moves the front over gaps, and the cursor with it.
    #[inline(always)]
    fn advance_front(&self) {
        let (mut first, mut len) = (self.wide(at::ORDER_FIRST), self.wide(at::ORDER_LEN));
        let mut gaps = self.small(at::GAPS);
        while len > 0 && self.order(first) == NONE {
            (first, len, gaps) = (first + 1, len - 1, gaps - 1);
        }
        self.set_wide(at::ORDER_FIRST, first);
        self.set_wide(at::ORDER_LEN, len);
        self.set_small(at::GAPS, gaps);
        if gaps > 64 && u64::from(gaps) * 2 > len {
            self.close_gaps(first, len);
        }
        self.move_cursor();
    }

    /// The ring is full: of gaps, which are closed, or else of entries.
    #[cold]
    fn widen_order(&self) -> std::io::Result<()> {
        let (first, len) = (self.wide(at::ORDER_FIRST), self.wide(at::ORDER_LEN));
        // Only if a quarter are gaps: else it would do little more than close gaps.
        if u64::from(self.small(at::GAPS)) * 4 <= len {
            return self.grow();
        }
        self.close_gaps(first, len);
        Ok(())
    }

    #[cold]
    fn close_gaps(&self, first: u64, len: u64) {
        let mut end = first;
        for index in first..first + len {
            let entry = self.order(index);
            if entry != NONE {
                self.set_order(end, entry);
                self.store64(entry, field::ORDER, end);
                end += 1;
            }
        }
        self.set_wide(at::ORDER_LEN, end - first);
        self.set_small(at::GAPS, 0);
    }

    /// The cursor: the oldest message that is not done, or where reading goes on.
    #[inline(always)]
    pub fn move_cursor(&self) {
        let next = self.wide(at::NEXT);
        let cursor = match self.wide(at::ORDER_LEN) {
            0 => next,
            _ => self.load64(self.order(self.wide(at::ORDER_FIRST)), field::OFFSET).min(next),
        };
        self.set_wide(at::CURSOR, cursor);
    }

    /// Entries from the oldest on.
    pub fn outstanding(&self) -> impl DoubleEndedIterator<Item = u32> + '_ {
        let (first, len) = (self.wide(at::ORDER_FIRST), self.wide(at::ORDER_LEN));
        (first..first + len).map(|index| self.order(index)).filter(|entry| *entry != NONE)
    }

    /// Where the message at `offset` is, if it is in the table: what a receipt guesses wrong when
    /// its lease has ended or the table was made anew.
    #[cold]
    pub fn find(&self, offset: u64) -> Option<u32> {
        let (first, len) = (self.wide(at::ORDER_FIRST), self.wide(at::ORDER_LEN));
        let (mut low, mut high) = (first, first + len);
        while low < high {
            let middle = low + (high - low) / 2;
            let Some(index) = (middle..high).find(|index| self.order(*index) != NONE) else {
                high = middle; // The ring has gaps only.
                continue;
            };
            let entry = self.order(index);
            match self.load64(entry, field::OFFSET).cmp(&offset) {
                std::cmp::Ordering::Equal => return Some(entry),
                std::cmp::Ordering::Less => low = index + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        None
    }

    /// How many are out, held back or waiting, gaps included: what the window limits.
    #[inline(always)]
    pub fn span(&self) -> u64 {
        self.wide(at::ORDER_LEN)
    }

    // ── what happens to a message ──────────────────────────────────────────────────────────

    /// Enters a message that was just read, in its state. One that is ready waits while an earlier
    /// one with its key is not done.
    #[inline(always)]
    pub fn enter(&self, entry: &Entry) -> std::io::Result<u32> {
        let waits = entry.state == EntryState::Ready && self.is_key_busy(entry.key);
        let state = if waits { EntryState::Blocked } else { entry.state };
        if self.span() >= u64::from(self.small(at::CAPACITY)) {
            self.widen_order().inspect_err(|_| self.distrust())?;
        }
        let index = self.take_entry()?;
        self.store64(index, field::OFFSET, entry.offset);
        self.store64(index, field::FRAME, entry.frame);
        self.store64(index, field::KEY, entry.key);
        self.store64(index, field::TOKEN, entry.token);
        self.store32(index, field::RECEIVES, entry.receives);
        self.store32(index, field::OWNER, entry.owner);
        self.store32(index, field::PLACE, NONE);
        self.store32(index, field::STATE, state as u32);
        let len = self.wide(at::ORDER_LEN);
        let order = self.wide(at::ORDER_FIRST) + len;
        self.store64(index, field::ORDER, order);
        self.set_order(order, index);
        self.set_wide(at::ORDER_LEN, len + 1);
        self.join_key(entry.key, index);
        match state {
            EntryState::Leased => {
                self.watch(index, entry.deadline, entry.timeout);
                self.set_small(at::LEASED, self.small(at::LEASED) + 1);
            }
            EntryState::Delayed => {
                self.watch(index, entry.deadline, entry.timeout);
                self.set_small(at::DELAYED, self.small(at::DELAYED) + 1);
            }
            EntryState::Ready => self.push_ready(index),
            EntryState::Blocked => {
                // What is ready is due, whenever a lease that it had would have ended.
                let (due, timeout) = if waits { (0, 0) } else { (entry.deadline, entry.timeout) };
                self.store64(index, field::DEADLINE, due.cast_unsigned());
                self.store64(index, field::TIMEOUT, timeout.cast_unsigned());
                self.set_small(at::BLOCKED, self.small(at::BLOCKED) + 1);
            }
            EntryState::Free => {}
        }
        Ok(index)
    }

    #[inline(always)]
    fn leave_state(&self, entry: u32) {
        let counter = match self.state(entry) {
            EntryState::Leased => at::LEASED,
            EntryState::Delayed => at::DELAYED,
            _ => return,
        };
        self.unwatch(entry);
        self.set_small(counter, self.small(counter).saturating_sub(1));
    }

    /// Hands the first ready message out (again), or one that waits behind it.
    pub fn lease_ready(&self, entry: u32, token: u64, owner: u32, deadline: i64, timeout: i64) {
        match self.state(entry) {
            EntryState::Blocked => {
                self.set_small(at::BLOCKED, self.small(at::BLOCKED).saturating_sub(1));
            }
            _ => self.pop_ready(),
        }
        self.store32(entry, field::STATE, EntryState::Leased as u32);
        self.store64(entry, field::TOKEN, token);
        self.store32(entry, field::OWNER, owner);
        self.store32(entry, field::RECEIVES, self.load32(entry, field::RECEIVES).saturating_add(1));
        self.set_small(at::LEASED, self.small(at::LEASED) + 1);
        self.watch(entry, deadline, timeout);
    }

    /// May be handed out, if no earlier message with its key is not done.
    pub fn make_ready(&self, entry: u32) {
        self.leave_state(entry);
        self.store64(entry, field::TOKEN, 0);
        if self.is_behind_another(entry) {
            self.store32(entry, field::STATE, EntryState::Blocked as u32);
            self.store64(entry, field::DEADLINE, 0);
            self.store64(entry, field::TIMEOUT, 0);
            self.set_small(at::BLOCKED, self.small(at::BLOCKED) + 1);
            return;
        }
        self.store32(entry, field::STATE, EntryState::Ready as u32);
        self.push_ready(entry);
    }

    /// How often it was handed out.
    pub fn set_receives(&self, entry: u32, receives: u32) {
        self.store32(entry, field::RECEIVES, receives);
    }

    /// Takes a message that is not out from those that wait: it is about to be done.
    pub fn withdraw(&self, entry: u32) {
        match self.state(entry) {
            EntryState::Ready => self.drop_ready(entry),
            EntryState::Blocked => {
                self.set_small(at::BLOCKED, self.small(at::BLOCKED).saturating_sub(1));
            }
            _ => {}
        }
    }

    /// May be handed out from `deadline` on.
    pub fn set_delayed(&self, entry: u32, deadline: i64, timeout: i64) {
        self.leave_state(entry);
        self.store32(entry, field::STATE, EntryState::Delayed as u32);
        self.store64(entry, field::TOKEN, 0);
        self.set_small(at::DELAYED, self.small(at::DELAYED) + 1);
        self.watch(entry, deadline, timeout);
    }

    /// The lease lasts until `deadline`.
    pub fn extend(&self, entry: u32, deadline: i64, timeout: i64) {
        self.unwatch(entry);
        self.watch(entry, deadline, timeout);
    }

    /// It is done. True: another message with its key may go out now.
    #[inline(always)]
    pub fn finish(&self, entry: u32, now: i64) -> bool {
        self.leave_state(entry);
        let key = self.load64(entry, field::KEY);
        let has_next = key != 0 && self.load32(entry, field::KEY_NEXT) != NONE;
        if key != 0 {
            self.leave_key(key, entry, now);
        }
        self.set_order(self.load64(entry, field::ORDER), NONE);
        self.free_entry(entry);
        self.set_small(at::GAPS, self.small(at::GAPS) + 1);
        self.advance_front();
        has_next
    }
}
