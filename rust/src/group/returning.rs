//! Giving back what a get has claimed and its caller has never seen.

use pyo3::prelude::*;

use super::Group;
use super::journal::Kind;
use super::table::{Entry, EntryState, NONE, at};
use crate::bytes::checksum::key_hash;
use crate::errors;
use crate::message::MessageParts;

impl Group {
    /// The next get of any consumer gets these messages, as if they had never been read. Answers
    /// for each whether that is so: what was deleted or written over meanwhile can't come again.
    #[cold]
    pub(super) fn take_back(
        &self,
        py: Python<'_>,
        messages: &[&MessageParts],
    ) -> PyResult<Vec<bool>> {
        let held = self.take(py)?;
        let outcome: std::io::Result<Vec<bool>> =
            messages.iter().map(|message| self.enter_again(message)).collect();
        self.mend()?;
        self.table.move_cursor();
        let mirrored = self.mirror();
        drop(held);
        self.control.signal();
        let outcome = outcome.and_then(|are_back| mirrored.map(|()| are_back));
        let are_back = outcome.map_err(|error| errors::os(error, &self.folder))?;
        if self.is_always && !self.is_lease {
            // What the get had synced says that they are done.
            self.sync_progress_now(py)?;
        }
        Ok(are_back)
    }

    fn enter_again(&self, message: &MessageParts) -> std::io::Result<bool> {
        let (offset, now, one) = (message.lease.offset, self.clock().boot(), 1_u64);
        if message.lease.token != 0 {
            let Ok((entry, found)) = self.lease(message.lease) else { return Ok(true) };
            let (state, receives) = (EntryState::Ready, found.receives.saturating_sub(1));
            self.write(Kind::Enter, &Entry { state, receives, token: 0, ..found }, now)?;
            self.table.make_ready(entry);
            self.table.set_receives(entry, receives);
            self.table.count_among_others(at::DELIVERED, one.wrapping_neg());
            return Ok(true);
        }
        if self.is_gone() || offset < self.control.head() {
            return Ok(false);
        }
        let (content, view) = (&message.content, message.content.view());
        let key = key_hash(content.bytes(view.key));
        let entry = Entry { key, ..Entry::read(offset, content.frame, NONE) };
        self.write(Kind::Enter, &entry, now)?;
        let newest = self.table.outstanding().next_back().and_then(|last| self.table.entry(last));
        match newest.is_none_or(|newest| newest.offset < offset) {
            true => drop(self.table.enter(&entry)?),
            // Entries stand in the order of their offsets: the table is made anew, from a journal
            // that has them in any order.
            false => self.table.distrust(),
        }
        self.table.count_among_others(at::DELIVERED, one.wrapping_neg());
        Ok(true)
    }
}
