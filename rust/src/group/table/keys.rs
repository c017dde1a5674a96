//! Keys: a hash table of chains. Only the first of each may be ready; those behind it are blocked,
//! or out together with it.

use std::sync::atomic::Ordering;

use super::{KEYS_AT, NONE, SLOT_BYTES, Table, at, field, slot};

impl Table {
    pub(super) fn key_slots(&self) -> usize {
        self.small(at::CAPACITY) as usize * 2
    }

    pub(super) fn key_slot(&self, key: u64) -> (usize, bool) {
        let slots = self.key_slots().max(1);
        let mut slot = crate::bytes::words::size(key) % slots;
        loop {
            match self.map.word64(KEYS_AT + slot * SLOT_BYTES).load(Ordering::Relaxed) {
                0 => return (slot, false),
                found if found == key => return (slot, true),
                _ => slot = (slot + 1) % slots,
            }
        }
    }

    pub(super) fn chain(&self, slot: usize) -> (u32, u32) {
        let at = KEYS_AT + slot * SLOT_BYTES;
        (
            self.map.word32(at + slot::FIRST).load(Ordering::Relaxed),
            self.map.word32(at + slot::LAST).load(Ordering::Relaxed),
        )
    }

    pub(super) fn set_chain(&self, slot: usize, key: u64, first: u32, last: u32) {
        let at = KEYS_AT + slot * SLOT_BYTES;
        self.map.word64(at + slot::KEY).store(key, Ordering::Relaxed);
        self.map.word32(at + slot::FIRST).store(first, Ordering::Relaxed);
        self.map.word32(at + slot::LAST).store(last, Ordering::Relaxed);
    }

    /// Removes a key and moves back those that had stepped over its slot.
    pub(super) fn drop_key(&self, slot: usize) {
        let slots = self.key_slots();
        let mut hole = slot;
        let mut next = (slot + 1) % slots;
        loop {
            let key = self.map.word64(KEYS_AT + next * SLOT_BYTES).load(Ordering::Relaxed);
            if key == 0 {
                break;
            }
            let home = crate::bytes::words::size(key) % slots;
            let is_between = if hole <= next {
                hole < home && home <= next
            } else {
                hole < home || home <= next
            };
            if !is_between {
                let (first, last) = self.chain(next);
                self.set_chain(hole, key, first, last);
                hole = next;
            }
            next = (next + 1) % slots;
        }
        self.set_chain(hole, 0, NONE, NONE);
    }

    /// Spreads the chains of a table that had room for `old` entries over one for `new`. What a
    /// table of another boot left in the file is not read: it had no entries.
    pub(super) fn rehash(&self, old: u32, new: u32) {
        let read = |slot: usize| {
            (self.map.word64(KEYS_AT + slot * SLOT_BYTES).load(Ordering::Relaxed), self.chain(slot))
        };
        let chains: Vec<_> = (0..old as usize * 2).map(read).filter(|(key, _)| *key != 0).collect();
        for slot in 0..new as usize * 2 {
            self.set_chain(slot, 0, NONE, NONE);
        }
        for (key, (first, last)) in chains {
            self.set_chain(self.key_slot(key).0, key, first, last);
        }
    }

    /// Whether an earlier message with this key is not done.
    pub fn is_key_busy(&self, key: u64) -> bool {
        key != 0 && self.key_slots() > 0 && self.key_slot(key).1
    }

    #[inline]
    pub(super) fn join_key(&self, key: u64, entry: u32) {
        self.store32(entry, field::KEY_NEXT, NONE);
        if key == 0 {
            return;
        }
        match self.key_slot(key) {
            (slot, false) => self.set_chain(slot, key, entry, entry),
            (slot, true) => {
                let (first, last) = self.chain(slot);
                self.store32(last, field::KEY_NEXT, entry);
                self.set_chain(slot, key, first, entry);
            }
        }
    }

    /// The message behind this one with the same key; `NONE` when it is the last.
    pub fn next_of_key(&self, entry: u32) -> u32 {
        if self.key(entry) == 0 { NONE } else { self.load32(entry, field::KEY_NEXT) }
    }

    /// Whether an earlier message with the same key is not done.
    pub(super) fn is_behind_another(&self, entry: u32) -> bool {
        let key = self.key(entry);
        if key == 0 {
            return false;
        }
        let (slot, found) = self.key_slot(key);
        found && self.chain(slot).0 != entry
    }

    /// Takes an entry out that is not the first. Those before it are out, so there are few.
    fn leave_middle(&self, slot: usize, key: u64, entry: u32) {
        let (first, last) = self.chain(slot);
        let (mut before, mut steps) = (first, self.small(at::USED));
        while before != NONE && steps > 0 && self.load32(before, field::KEY_NEXT) != entry {
            (before, steps) = (self.load32(before, field::KEY_NEXT), steps - 1);
        }
        if before == NONE || steps == 0 {
            return self.distrust(); // It is in no chain, or the chain has no end.
        }
        self.store32(before, field::KEY_NEXT, self.load32(entry, field::KEY_NEXT));
        self.set_chain(slot, key, first, if last == entry { before } else { last });
    }

    /// The message is done. If it was the first with this key and the next waits, that one may go
    /// out.
    pub(super) fn leave_key(&self, key: u64, entry: u32, now: i64) {
        let (slot, found) = self.key_slot(key);
        if !found {
            return;
        }
        let (first, last) = self.chain(slot);
        if first != entry {
            return self.leave_middle(slot, key, entry);
        }
        let next = self.load32(entry, field::KEY_NEXT);
        if next == NONE {
            self.drop_key(slot);
            return;
        }
        self.set_chain(slot, key, next, last);
        if self.state(next) != super::EntryState::Blocked {
            return; // It is out, or held back itself.
        }
        self.set_small(at::BLOCKED, self.small(at::BLOCKED).saturating_sub(1));
        let deadline = self.deadline(next);
        if deadline > now {
            self.set_delayed(next, deadline, self.load64(next, field::TIMEOUT).cast_signed());
        } else {
            self.make_ready(next);
        }
    }
}
