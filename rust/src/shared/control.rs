//! The control block: the words that all openers of a queue share (`.penstock/control`).
//!
//! Everything in it is a cache of this boot except `durable`, which only ever moves after a sync
//! and so is a safe lower bound whatever the disk kept. The frames are the truth.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use pyo3::prelude::*;

use crate::files::region;
use crate::shared::lock::{Got, Life, OWNERS_AT};
use crate::sys::futex;
use crate::sys::mapping::Mapping;

/// Size of the file.
pub const CONTROL_BYTES: usize = 5 * 4096;
const MAGIC: u64 = u64::from_le_bytes(*b"PENSTCTL");

/// Where each word is. `penstock.disk.control` declares the same table; a test compares them.
pub mod at {
    #![allow(missing_docs)]
    pub const MAGIC: usize = 0;
    pub const BOOT: usize = 8;
    pub const LOCK: usize = 16;
    pub const SYNC_LOCK: usize = 20;
    pub const POISON: usize = 24;
    pub const CLEAN: usize = 28;
    pub const RESERVED_END: usize = 32;
    pub const RESERVED_NUMBER: usize = 40;
    pub const TAIL: usize = 64;
    pub const NEXT_NUMBER: usize = 72;
    pub const SEGMENT_BASE: usize = 80;
    pub const HEAD: usize = 88;
    pub const HEAD_NUMBER: usize = 96;
    pub const WAITERS: usize = 128;
    pub const EVENT: usize = 132;
    pub const DIRTY: usize = 136;
    pub const SYNC_ASKED: usize = 140;
    pub const ROOM_WANTED: usize = 144;
    pub const DURABLE: usize = 192;
    pub const NAMED_BASE: usize = 200;
    pub const GENERATION: usize = 208;
    pub const OPENINGS: usize = 216;
    pub const STEADY_SKEW: usize = 256;
    pub const STEADY_AT: usize = 264;
    pub const STEADY_BOOT: usize = 272;
    pub const USER: usize = 1024;
}

/// The mapped block and this opener's life.
pub struct Control {
    map: Arc<Mapping>,
    life: Life,
    path: PathBuf,
    /// How many of those who wait are this opener's.
    pub(crate) waiting: Mutex<u32>,
}

impl Control {
    pub(crate) fn word(&self, at: usize) -> &AtomicU64 {
        self.map.word64(at)
    }

    /// Offset of the next append.
    #[inline]
    pub fn tail(&self) -> u64 {
        self.word(at::TAIL).load(Ordering::Acquire)
    }

    /// Everything below has been synced.
    #[inline]
    pub fn durable(&self) -> u64 {
        self.word(at::DURABLE).load(Ordering::Acquire)
    }

    /// Oldest kept offset.
    #[inline]
    pub fn head(&self) -> u64 {
        self.word(at::HEAD).load(Ordering::Acquire)
    }

    /// Base of the segment that is appended to.
    #[inline]
    pub fn segment_base(&self) -> u64 {
        self.word(at::SEGMENT_BASE).load(Ordering::Acquire)
    }

    /// Number of the next message.
    #[inline]
    pub fn next_number(&self) -> u64 {
        self.word(at::NEXT_NUMBER).load(Ordering::Relaxed)
    }

    /// Whether a sync has failed.
    #[inline]
    pub fn is_poisoned(&self) -> bool {
        self.map.word32(at::POISON).load(Ordering::Relaxed) != 0
    }

    /// The append lock's word.
    #[inline]
    pub fn lock_word(&self) -> &AtomicU32 {
        self.map.word32(at::LOCK)
    }

    /// The sync lock's word.
    pub fn sync_word(&self) -> &AtomicU32 {
        self.map.word32(at::SYNC_LOCK)
    }

    /// This opener's life.
    pub fn life(&self) -> &Life {
        &self.life
    }

    /// This opener's name in lease tables: its slot and how many had opened the queue before, so
    /// that a later opener in the same slot is someone else.
    pub fn owner(&self) -> u32 {
        self.life.name()
    }

    /// Whether the opener with this name is still there.
    pub fn is_alive(&self, owner: u32) -> bool {
        self.life.is_alive(owner)
    }

    /// The mapping, for words that have no accessor.
    pub fn map(&self) -> &Mapping {
        &self.map
    }

    /// Announces what the coming append will occupy, so that a successor knows what to clear.
    #[inline]
    pub fn reserve(&self, end: u64, number: u64) {
        // In this order: whoever dies in between has an end above the tail, and the old number.
        self.map.publish64(at::RESERVED_END, end);
        self.word(at::RESERVED_NUMBER).store(number, Ordering::Release);
    }

    /// Whether a holder died (or failed) between `reserve` and the end of `advance`. The words
    /// tell, not the lock: whoever inherits it may have to give it back before he can settle.
    #[inline]
    pub fn is_unfinished(&self) -> bool {
        let (end, number) = self.unfinished();
        end != self.tail() || number != self.next_number()
    }

    /// Moves the tail: readers see everything below it.
    #[inline]
    pub fn advance(&self, tail: u64, number: u64) {
        self.map.publish64(at::TAIL, tail);
        self.map.publish64(at::NEXT_NUMBER, number);
    }

    /// After a holder's death: what it had reserved and whether it got as far as the tail.
    pub fn unfinished(&self) -> (u64, u64) {
        let reserved = self.word(at::RESERVED_END).load(Ordering::Acquire);
        (reserved, self.word(at::RESERVED_NUMBER).load(Ordering::Relaxed))
    }

    /// Tail and next number, also when an appender died between the two. Without the append lock
    /// the number may be of a later tail.
    pub fn settled(&self) -> (u64, u64) {
        let (tail, (reserved, number)) = (self.tail(), self.unfinished());
        (tail, if tail == reserved { number } else { self.next_number() })
    }

    /// Something was appended that must be synced soon. Only the first one since the last sync
    /// began tells the keepers. Under the append lock, like `begin_sync`: an append is either in
    /// what that sync covers, or asks anew.
    #[inline]
    pub fn ask_for_sync(&self) {
        let asked = self.map.word32(at::SYNC_ASKED);
        if asked.load(Ordering::Relaxed) == 0 {
            asked.store(1, Ordering::Relaxed);
            self.announce_dirty();
        }
    }

    /// What is appended from now on is not in the sync that begins. Under the append lock.
    pub fn begin_sync(&self) {
        self.map.word32(at::SYNC_ASKED).store(0, Ordering::Relaxed);
    }

    /// There is something for the keepers to do: to sync, or to prepare the next segment.
    #[cold]
    pub fn announce_dirty(&self) {
        let dirty = self.map.word32(at::DIRTY);
        dirty.fetch_add(1, Ordering::SeqCst);
        futex::wake(dirty, i32::MAX);
    }

    /// What the clean word holds after an orderly close: the other words cannot change unseen.
    fn clean_check(&self) -> u32 {
        let words =
            [at::TAIL, at::NEXT_NUMBER, at::SEGMENT_BASE, at::HEAD, at::HEAD_NUMBER, at::DURABLE];
        let bytes: Vec<u8> = words
            .iter()
            .flat_map(|word| self.word(*word).load(Ordering::Acquire).to_le_bytes())
            .collect();
        crate::bytes::checksum::crc32c(&bytes).max(1)
    }

    /// Records that everything below `offset` is on the disk. Never back: whoever was taken for
    /// dead in the middle of a sync comes late.
    pub fn set_durable(&self, offset: u64) {
        if offset > self.durable() {
            self.map.publish64(at::DURABLE, offset);
        }
    }

    /// From now on every put raises, in every process, also after a restart.
    pub fn poison(&self) {
        self.map.publish32(at::POISON, 1);
    }
}

/// Opening and the shared words, for Python.
#[pyclass(frozen, module = "penstock._core")]
pub struct Shared {
    /// The block.
    pub control: std::sync::Arc<Control>,
    is_first: bool,
    is_new: bool,
}

fn open_control(folder: &Path) -> std::io::Result<(Mapping, bool)> {
    let path = folder.join("control");
    let file = region::open_or_create(&path)?;
    let is_new = file.metadata()?.len() < CONTROL_BYTES as u64;
    region::allocate(&file, CONTROL_BYTES as u64)?;
    let map = Mapping::new(file, CONTROL_BYTES, true)?;
    let fresh = is_new || map.word64(at::MAGIC).load(Ordering::Acquire) != MAGIC;
    Ok((map, fresh))
}

#[pymethods]
impl Shared {
    /// Opens the block in `folder` and holds the opening lock until `opened()`.
    #[new]
    fn new(py: Python<'_>, folder: PathBuf, boot: u64) -> PyResult<Self> {
        let path = folder.clone();
        let opened = py.detach(|| -> std::io::Result<Self> {
            let lock = region::open_or_create(&folder.join("lock"))?;
            Life::begin_open(&lock)?;
            let is_alone = !Life::anyone_else(&lock)?;
            let (map, fresh) = open_control(&folder)?;
            let same_boot = map.word64(at::BOOT).load(Ordering::Acquire) == boot;
            if is_alone || !same_boot || fresh {
                for word in [at::LOCK, at::SYNC_LOCK, at::WAITERS, at::SYNC_ASKED] {
                    map.word32(word).store(0, Ordering::SeqCst);
                }
            }
            let opening = map.word32(at::OPENINGS).fetch_add(1, Ordering::AcqRel);
            let map = Arc::new(map);
            let life = Life::new(lock, Arc::clone(&map), opening)?;
            let control = Control { map, life, path: folder, waiting: Mutex::new(0) };
            Ok(Self { control: control.into(), is_first: is_alone || !same_boot, is_new: fresh })
        });
        opened.map_err(|error| crate::errors::os(error, &path))
    }

    /// Takes no further part: whatever this opener had leased may go to others.
    fn close(&self) -> PyResult<()> {
        Ok(self.control.end()?)
    }

    /// In a forked child: the parent's opening is not ours.
    fn abandon(&self) -> PyResult<()> {
        Ok(self.control.life.abandon()?)
    }

    /// This opener's name in lease tables.
    #[getter]
    fn owner(&self) -> u32 {
        self.control.owner()
    }

    /// Lets other openers in.
    fn opened(&self) -> PyResult<()> {
        Ok(Life::end_open(self.control.life.file())?)
    }

    /// Whether nobody else has the queue open: the opener must recover it.
    #[getter]
    fn is_first(&self) -> bool {
        self.is_first
    }

    /// Whether there was no valid block.
    #[getter]
    fn is_new(&self) -> bool {
        self.is_new
    }

    /// Whether nobody else has it open now. Only with the opening lock held.
    fn is_alone(&self) -> PyResult<bool> {
        Ok(!Life::anyone_else(self.control.life.file())?)
    }

    /// Takes the opening lock again (to close cleanly, to repair).
    fn reopen(&self, py: Python<'_>) -> PyResult<()> {
        Ok(py.detach(|| Life::begin_open(self.control.life.file()))?)
    }

    /// The folder of the block.
    #[getter]
    fn folder(&self) -> PathBuf {
        self.control.path.clone()
    }

    /// Sets every word; the opener does it before anyone else may look.
    #[pyo3(signature = (*, boot, tail, next_number, segment_base, head, head_number, durable))]
    #[allow(clippy::too_many_arguments)]
    fn reset(
        &self,
        boot: u64,
        tail: u64,
        next_number: u64,
        segment_base: u64,
        head: u64,
        head_number: u64,
        durable: u64,
    ) {
        let map = &self.control.map;
        map.publish32(at::CLEAN, 0); // First: it vouches for the words below.
        for (word, value) in [
            (at::DURABLE, durable),
            (at::RESERVED_END, tail),
            (at::RESERVED_NUMBER, next_number),
            (at::TAIL, tail),
            (at::NEXT_NUMBER, next_number),
            (at::SEGMENT_BASE, segment_base),
            (at::HEAD, head),
            (at::HEAD_NUMBER, head_number),
            // What was not synced may be in a file whose name was not synced either.
            (at::NAMED_BASE, if durable < tail { 0 } else { segment_base }),
            (at::BOOT, boot),
            (at::MAGIC, MAGIC),
        ] {
            map.publish64(word, value);
        }
        map.publish32(at::POISON, 0);
    }

    /// Words by name, for `info` and tests.
    fn words(&self) -> std::collections::BTreeMap<&'static str, u64> {
        let map = &self.control.map;
        let wide = [
            ("boot", at::BOOT),
            ("reserved_end", at::RESERVED_END),
            ("tail", at::TAIL),
            ("next_number", at::NEXT_NUMBER),
            ("segment_base", at::SEGMENT_BASE),
            ("head", at::HEAD),
            ("head_number", at::HEAD_NUMBER),
            ("durable", at::DURABLE),
            ("named_base", at::NAMED_BASE),
            ("generation", at::GENERATION),
            ("room_wanted", at::ROOM_WANTED),
        ];
        let narrow = [
            ("poison", at::POISON),
            ("clean", at::CLEAN),
            ("waiters", at::WAITERS),
            ("lock", at::LOCK),
        ];
        let wide = wide.iter().map(|(name, at)| (*name, map.word64(*at).load(Ordering::Acquire)));
        let narrow = narrow
            .iter()
            .map(|(name, at)| (*name, u64::from(map.word32(*at).load(Ordering::Acquire))));
        wide.chain(narrow).collect()
    }

    /// Offset of the next append.
    #[getter]
    fn tail(&self) -> u64 {
        self.control.tail()
    }

    /// Everything below it has been synced.
    #[getter]
    fn durable(&self) -> u64 {
        self.control.durable()
    }

    /// Oldest kept offset.
    #[getter]
    fn head(&self) -> u64 {
        self.control.head()
    }

    /// Base of the segment that is appended to.
    #[getter]
    fn segment_base(&self) -> u64 {
        self.control.segment_base()
    }

    /// Number of the next message, also when an appender died before it was stored.
    #[getter]
    fn next_number(&self) -> u64 {
        self.control.settled().1
    }

    /// Number of the oldest kept message.
    #[getter]
    fn head_number(&self) -> u64 {
        self.control.map.word64(at::HEAD_NUMBER).load(Ordering::Acquire)
    }

    /// Whether a sync has failed.
    #[getter]
    fn is_poisoned(&self) -> bool {
        self.control.is_poisoned()
    }

    /// Counts what everyone must look at again (resized file, moved head).
    #[getter]
    fn generation(&self) -> u64 {
        self.control.map.word64(at::GENERATION).load(Ordering::Acquire)
    }

    /// Raises the count.
    fn bump_generation(&self) -> u64 {
        self.control.map.word64(at::GENERATION).fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Said by the last closer, after its sync; taken back by the next opener.
    fn set_clean(&self, clean: bool) {
        let word = if clean { self.control.clean_check() } else { 0 };
        self.control.map.publish32(at::CLEAN, word);
    }

    /// Another program has appended: the tail is now `tail`, in the segment at `segment_base`.
    /// With the append lock held. The segment first: a reader never goes past the old one's end.
    fn follow(&self, tail: u64, segment_base: u64) {
        let map = &self.control.map;
        self.control.reserve(tail, self.control.next_number());
        map.publish64(at::SEGMENT_BASE, segment_base);
        self.control.advance(tail, self.control.next_number());
        self.control.announce_dirty();
    }

    /// Moves the head: everything below is gone. Never back: another process may have trimmed
    /// further meanwhile.
    fn set_head(&self, py: Python<'_>, head: u64, number: u64) -> PyResult<()> {
        self.lock(py)?;
        if head > self.control.head() {
            self.control.map.publish64(at::HEAD_NUMBER, number);
            self.control.map.publish64(at::HEAD, head);
        }
        self.control.life.give(self.control.lock_word());
        self.control.signal();
        Ok(())
    }

    /// A word of the format's own, in the second half of the block.
    fn user_word(&self, index: usize) -> PyResult<u64> {
        Ok(self.control.map.word64(user_at(index)?).load(Ordering::Acquire))
    }

    /// Stores a word of the format's own.
    fn set_user_word(&self, index: usize, value: u64) -> PyResult<()> {
        self.control.map.publish64(user_at(index)?, value);
        Ok(())
    }

    /// Takes the append lock for work that Python does in small native steps (opening a
    /// segment, trimming); waits without the interpreter lock. True: the last holder died.
    fn lock(&self, py: Python<'_>) -> PyResult<bool> {
        loop {
            let got = py.detach(|| self.control.life.take(self.control.lock_word()));
            if let Some(got) = got {
                return Ok(got == Got::Inherited);
            }
            py.check_signals()?;
        }
    }

    /// Gives the append lock back.
    fn unlock(&self) {
        self.control.life.give(self.control.lock_word());
        self.control.wake();
    }
}

fn user_at(index: usize) -> PyResult<usize> {
    let at = at::USER + index.saturating_mul(8);
    if at + 8 > OWNERS_AT {
        return Err(pyo3::exceptions::PyIndexError::new_err("no such word in the control block"));
    }
    Ok(at)
}
