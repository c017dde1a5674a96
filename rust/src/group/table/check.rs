//! Whether a table can be used as it is: what an opener finds may have been damaged at rest.
//!
//! Every index is inside the table, every list ends, and what refers to something is referred back
//! to. A table that passes may still hold wrong values, but no search in it goes on for ever or
//! leaves it.

use std::fs::File;
use std::sync::atomic::Ordering;

use super::{EntryState, FIRST_ENTRIES, IN_LANE, KEYS_AT, MAX_ENTRIES, NONE, Table, at, field};

impl Table {
    /// What is wrong with the table in itself, with the words that tell; none when it is whole.
    /// Under the lock.
    pub fn fault(&self) -> Option<String> {
        let capacity = self.small(at::CAPACITY);
        let none = [at::FREE, at::LANE_FIRST, at::LANE_LAST];
        let zero = [at::USED, at::GAPS, at::HEAP_LEN, at::READY_LEN];
        let is_empty = self.wide(at::ORDER_LEN) == 0
            && zero.iter().all(|word| self.small(*word) == 0)
            && none.iter().all(|word| self.small(*word) == NONE);
        let is_size =
            capacity.is_power_of_two() && (FIRST_ENTRIES..=MAX_ENTRIES).contains(&capacity);
        let has_bytes = || {
            let file = self.map.file().and_then(File::metadata);
            file.is_ok_and(|data| data.len() >= Self::bytes_for(capacity))
        };
        let what = match capacity {
            0 if is_empty => return None,
            0 => "entries without room",
            _ if !is_size => "its size",
            _ if !has_bytes() => "the length of its file",
            _ if !self.has_sound_counts(capacity) => "its counts",
            _ if !self.has_sound_order() => "the order of its entries",
            _ if !self.has_sound_deadlines() => "its deadlines",
            _ if !self.has_sound_lists() => "its lists",
            _ if !self.has_sound_keys() => "its keys",
            _ => return None,
        };
        let small =
            [at::USED, at::GAPS, at::HEAP_LEN, at::READY_LEN, at::LEASED, at::DELAYED, at::BLOCKED];
        let counts = small.map(|word| self.small(word));
        let (first, len) = (self.wide(at::ORDER_FIRST), self.wide(at::ORDER_LEN));
        Some(format!(
            "{what} (room {capacity}; used, gaps, heap, ready, leased, delayed, blocked \
             {counts:?}; order {first} + {len})"
        ))
    }

    /// Whether the table is whole in itself. Under the lock.
    #[cfg(any(test, feature = "fuzzing"))]
    pub fn is_sound(&self) -> bool {
        self.fault().is_none()
    }

    /// Bytes of a file with room for this many entries.
    fn bytes_for(capacity: u32) -> u64 {
        KEYS_AT as u64 + u64::from(capacity) * 32
    }

    fn has_sound_counts(&self, capacity: u32) -> bool {
        let (used, len) = (self.small(at::USED), self.wide(at::ORDER_LEN));
        used <= capacity
            && len <= u64::from(capacity)
            && self.wide(at::ORDER_FIRST).checked_add(len).is_some()
            && u64::from(self.small(at::GAPS)) <= len
            && self.small(at::HEAP_LEN) <= used
            && self.small(at::READY_LEN) <= used
    }

    /// Entries in the ring know where in it they are, and their offsets rise.
    fn has_sound_order(&self) -> bool {
        let (first, len) = (self.wide(at::ORDER_FIRST), self.wide(at::ORDER_LEN));
        let (mut gaps, mut before) = (0, None);
        for index in first..first + len {
            let entry = self.order(index);
            if entry == NONE {
                gaps += 1;
                continue;
            }
            let is_here = entry < self.small(at::USED)
                && self.load64(entry, field::ORDER) == index
                && self.state(entry) != EntryState::Free
                && before.is_none_or(|before| before < self.offset(entry));
            if !is_here {
                return false;
            }
            before = Some(self.offset(entry));
        }
        gaps == self.small(at::GAPS)
    }

    fn has_sound_deadlines(&self) -> bool {
        let used = self.small(at::USED);
        let (mut entry, mut before, mut steps) = (self.small(at::LANE_FIRST), NONE, 0);
        while entry != NONE {
            let is_here = entry < used
                && steps < used
                && self.load32(entry, field::PLACE) == IN_LANE
                && self.load32(entry, field::LANE_BEFORE) == before;
            if !is_here {
                return false;
            }
            (before, entry, steps) = (entry, self.load32(entry, field::LANE_AFTER), steps + 1);
        }
        let is_in_heap = |position: u32| {
            let entry = self.heap(position);
            entry < used && self.load32(entry, field::PLACE) == position
        };
        before == self.small(at::LANE_LAST) && (0..self.small(at::HEAP_LEN)).all(is_in_heap)
    }

    fn has_sound_lists(&self) -> bool {
        let used = self.small(at::USED);
        let is_ready = |position: u32| {
            let entry = self.ready(position);
            entry < used && self.state(entry) == EntryState::Ready
        };
        let (mut free, mut steps) = (self.small(at::FREE), 0);
        while free != NONE {
            if free >= used || steps >= used || self.state(free) != EntryState::Free {
                return false;
            }
            (free, steps) = (self.load32(free, field::KEY_NEXT), steps + 1);
        }
        // Whatever is not free is in the ring, and in one of the states that are counted.
        let out = self.wide(at::ORDER_LEN) - u64::from(self.small(at::GAPS));
        let states = [at::LEASED, at::DELAYED, at::READY_LEN, at::BLOCKED];
        let counted: u64 = states.iter().map(|word| u64::from(self.small(*word))).sum();
        (0..self.small(at::READY_LEN)).all(is_ready)
            && u64::from(used - steps) == out
            && counted == out
    }

    /// Chains end where the table says, all of them together are no longer than the table, and a
    /// search ends because there is room.
    fn has_sound_keys(&self) -> bool {
        let (used, mut steps, mut taken) = (self.small(at::USED), 0, 0);
        for slot in 0..self.key_slots() {
            let key = self.map.word64(KEYS_AT + slot * 16).load(Ordering::Relaxed);
            if key == 0 {
                continue;
            }
            taken += 1;
            let (mut entry, last) = self.chain(slot);
            loop {
                if entry >= used || steps >= used || self.key(entry) != key {
                    return false;
                }
                steps += 1;
                if entry == last {
                    break;
                }
                entry = self.load32(entry, field::KEY_NEXT);
            }
        }
        taken < self.key_slots()
    }
}
