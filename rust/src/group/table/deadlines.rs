//! When something ends: deadlines in rising order in a list, the others in a heap.

use std::sync::atomic::Ordering;

use super::{HEAP_AT, IN_LANE, NEVER, NONE, Table, at, field};

impl Table {
    pub(super) fn heap(&self, position: u32) -> u32 {
        self.map.word32(HEAP_AT + position as usize * 4).load(Ordering::Relaxed)
    }

    pub(super) fn set_heap(&self, position: u32, entry: u32) {
        self.map.word32(HEAP_AT + position as usize * 4).store(entry, Ordering::Relaxed);
        self.store32(entry, field::PLACE, position);
    }

    pub(super) fn heap_up(&self, mut position: u32, entry: u32) {
        let deadline = self.deadline(entry);
        while position > 0 {
            let parent = (position - 1) / 2;
            let above = self.heap(parent);
            if self.deadline(above) <= deadline {
                break;
            }
            self.set_heap(position, above);
            position = parent;
        }
        self.set_heap(position, entry);
    }

    pub(super) fn heap_down(&self, mut position: u32, entry: u32, len: u32) {
        let deadline = self.deadline(entry);
        loop {
            let mut child = position * 2 + 1;
            if child >= len {
                break;
            }
            if child + 1 < len
                && self.deadline(self.heap(child + 1)) < self.deadline(self.heap(child))
            {
                child += 1;
            }
            let below = self.heap(child);
            if self.deadline(below) >= deadline {
                break;
            }
            self.set_heap(position, below);
            position = child;
        }
        self.set_heap(position, entry);
    }

    #[inline(always)]
    pub(super) fn watch(&self, entry: u32, deadline: i64, timeout: i64) {
        self.store64(entry, field::DEADLINE, deadline.cast_unsigned());
        self.store64(entry, field::TIMEOUT, timeout.cast_unsigned());
        let last = self.small(at::LANE_LAST);
        if last == NONE || self.deadline(last) <= deadline {
            self.store32(entry, field::PLACE, IN_LANE);
            self.store32(entry, field::LANE_BEFORE, last);
            self.store32(entry, field::LANE_AFTER, NONE);
            match last {
                NONE => self.set_small(at::LANE_FIRST, entry),
                _ => self.store32(last, field::LANE_AFTER, entry),
            }
            self.set_small(at::LANE_LAST, entry);
        } else {
            let len = self.small(at::HEAP_LEN);
            self.set_small(at::HEAP_LEN, len + 1);
            self.heap_up(len, entry);
        }
        if deadline < self.attention() {
            self.set_wide(at::ATTENTION, deadline.cast_unsigned());
        }
    }

    #[inline(always)]
    pub(super) fn unwatch(&self, entry: u32) {
        match self.load32(entry, field::PLACE) {
            NONE => return,
            IN_LANE => {
                let before = self.load32(entry, field::LANE_BEFORE);
                let after = self.load32(entry, field::LANE_AFTER);
                match before {
                    NONE => self.set_small(at::LANE_FIRST, after),
                    _ => self.store32(before, field::LANE_AFTER, after),
                }
                match after {
                    NONE => self.set_small(at::LANE_LAST, before),
                    _ => self.store32(after, field::LANE_BEFORE, before),
                }
            }
            position => {
                let len = self.small(at::HEAP_LEN) - 1;
                self.set_small(at::HEAP_LEN, len);
                let last = self.heap(len);
                if last != entry {
                    self.heap_down(position, last, len);
                    self.heap_up(self.load32(last, field::PLACE), last);
                }
            }
        }
        self.store32(entry, field::PLACE, NONE);
    }

    /// The earliest deadline, or earlier: a look at `due` sets it right.
    #[inline(always)]
    pub fn attention(&self) -> i64 {
        self.wide(at::ATTENTION).cast_signed()
    }

    /// The entry whose deadline has passed at `now`, if any.
    pub fn due(&self, now: i64) -> Option<u32> {
        let lane = self.small(at::LANE_FIRST);
        let heap = if self.small(at::HEAP_LEN) > 0 { self.heap(0) } else { NONE };
        let first = match (lane, heap) {
            (NONE, other) | (other, NONE) => other,
            (a, b) => {
                if self.deadline(a) <= self.deadline(b) {
                    a
                } else {
                    b
                }
            }
        };
        let deadline = if first == NONE { NEVER } else { self.deadline(first) };
        self.set_wide(at::ATTENTION, deadline.cast_unsigned());
        (deadline <= now).then_some(first)
    }
}
