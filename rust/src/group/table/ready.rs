//! What may be handed out again: a heap by offset.

use std::sync::atomic::Ordering;

use super::{READY_AT, Table, at, field};

impl Table {
    pub(super) fn ready(&self, position: u32) -> u32 {
        self.map.word32(READY_AT + position as usize * 4).load(Ordering::Relaxed)
    }

    pub(super) fn set_ready(&self, position: u32, entry: u32) {
        self.map.word32(READY_AT + position as usize * 4).store(entry, Ordering::Relaxed);
    }

    pub(super) fn offset(&self, entry: u32) -> u64 {
        self.load64(entry, field::OFFSET)
    }

    pub(super) fn push_ready(&self, entry: u32) {
        let mut position = self.small(at::READY_LEN);
        self.set_small(at::READY_LEN, position + 1);
        while position > 0 {
            let parent = (position - 1) / 2;
            if self.offset(self.ready(parent)) <= self.offset(entry) {
                break;
            }
            self.set_ready(position, self.ready(parent));
            position = parent;
        }
        self.set_ready(position, entry);
    }

    /// The lowest message that may be handed out again.
    pub fn first_ready(&self) -> Option<u32> {
        (self.small(at::READY_LEN) > 0).then(|| self.ready(0))
    }

    /// Takes one out, wherever in the heap it is. That is searched for, since it is seldom asked
    /// for.
    pub(super) fn drop_ready(&self, entry: u32) {
        let len = self.small(at::READY_LEN);
        let rest: Vec<u32> =
            (0..len).map(|at| self.ready(at)).filter(|other| *other != entry).collect();
        self.set_small(at::READY_LEN, 0);
        rest.into_iter().for_each(|other| self.push_ready(other));
    }

    pub(super) fn pop_ready(&self) {
        let len = self.small(at::READY_LEN) - 1;
        self.set_small(at::READY_LEN, len);
        let entry = self.ready(len);
        let mut position = 0;
        loop {
            let mut child = position * 2 + 1;
            if child >= len {
                break;
            }
            if child + 1 < len
                && self.offset(self.ready(child + 1)) < self.offset(self.ready(child))
            {
                child += 1;
            }
            if self.offset(self.ready(child)) >= self.offset(entry) {
                break;
            }
            self.set_ready(position, self.ready(child));
            position = child;
        }
        if len > 0 {
            self.set_ready(position, entry);
        }
    }
}
