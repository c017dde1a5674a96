//! How long a group has made no progress, as far as those who ask can see.
//!
//! Counted from look to look by the boot clock, and kept in the table with a check over it: after
//! damage of these words, or progress since the last look, a group does not count as idle. What was
//! counted before a restart of the machine counts, the time while it was off does not.

use super::Group;
use super::table::at;
use crate::bytes::checksum::key_hash;

impl Group {
    /// What was counted and everything that progress changes, as one word.
    fn idle_check(&self) -> u64 {
        let progress = [at::NEXT, at::CURSOR, at::DELIVERED, at::ACKED, at::TOKEN];
        let words = progress.iter().chain(&[at::IDLE, at::IDLE_AT]);
        let bytes: Vec<u8> = words.flat_map(|word| self.table.wide(*word).to_le_bytes()).collect();
        key_hash(&bytes)
    }

    /// Whether nothing has happened since someone looked.
    pub(super) fn is_as_seen(&self) -> bool {
        self.table.wide(at::IDLE_CHECK) == self.idle_check()
    }

    /// Notes `idle_ns` as of `now`; `is_behind`: there is something to read.
    pub(super) fn note_idle(&self, idle_ns: i64, now: i64, is_behind: bool) {
        self.table.set_wide(at::IDLE, idle_ns.cast_unsigned());
        self.table.set_wide(at::IDLE_AT, now.cast_unsigned());
        self.table.set_wide(at::IDLE_CHECK, if is_behind { self.idle_check() } else { 0 });
    }

    /// How long it had been idle at the last look.
    pub(super) fn idle_then(&self) -> i64 {
        self.table.wide(at::IDLE).cast_signed().max(0)
    }

    /// How long the group has been idle by now. A group that has read everything up to `tail` is
    /// not idle.
    pub(super) fn idle(&self, tail: u64, now: i64) -> i64 {
        let is_behind = self.cursor() < tail;
        let since = now.saturating_sub(self.table.wide(at::IDLE_AT).cast_signed()).max(0);
        let is_idle = is_behind && self.is_as_seen();
        let idle_ns = if is_idle { self.idle_then().saturating_add(since) } else { 0 };
        self.note_idle(idle_ns, now, is_behind);
        idle_ns
    }
}
