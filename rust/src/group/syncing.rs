//! Making a group's progress durable: the maintenance threads are told once, and concurrent acks
//! share a sync.

use std::sync::atomic::Ordering;

use pyo3::prelude::*;

use super::table::at;
use super::{Group, journal};
use crate::errors;
use crate::shared::lock::patiently;
use crate::shared::protocol;

/// What a sync has to do.
struct Begun {
    /// The journal, and up to where it goes.
    name: u64,
    end: u64,
    /// Where reading goes on, and whether the journal says so. Else only the word itself does.
    next: u64,
    is_journaled: bool,
}

impl Group {
    /// At `always`, a get that is its own ack returns after its sync.
    pub(super) fn sync_acked(&self, py: Python<'_>) -> PyResult<()> {
        self.sync_journal(py, (self.table.wide(at::JOURNAL_NAME), u64::MAX))
    }

    /// Syncs the journal up to `(name, end)`; concurrent acks share one sync.
    pub(super) fn sync_journal(&self, py: Python<'_>, (name, end): (u64, u64)) -> PyResult<()> {
        let outcome = patiently(py, self.control.life(), || {
            let _held = self.control.life().hold(self.table.map().word32(at::SYNC_LOCK))?;
            let is_done = self.table.wide(at::JOURNAL_NAME) != name
                || self.table.wide(at::JOURNAL_SYNCED) >= end;
            if is_done { Ok(()) } else { self.control.sync(|| self.sync_now()) }
        })?;
        outcome.map_err(|error| errors::os(error, &self.folder))
    }

    /// Progress was made that must be synced soon. Only the first one since the last sync began
    /// tells the maintenance threads. Under the lock, or after the exchange that moved the word.
    #[inline(always)]
    pub(super) fn ask_for_sync(&self) {
        if !self.is_always {
            let asked = self.table.map().word32(at::SYNC_ASKED);
            protocol::ask(asked, || self.control.announce_unsynced());
        }
    }

    /// Whether there is something to be synced.
    pub(super) fn is_dirty(&self) -> bool {
        let table = &self.table;
        table.wide(at::JOURNAL_SYNCED) != table.wide(at::JOURNAL_END)
            || (!self.is_lease && table.wide(at::SYNCED_NEXT) != table.wide(at::NEXT))
    }

    /// What is to be synced. Progress is either in it, or asks anew: the lock tells for the journal,
    /// the exchange for the word.
    fn begin_sync(&self) -> std::io::Result<Begun> {
        self.locked(|| {
            let table = &self.table;
            table.map().word32(at::SYNC_ASKED).swap(0, Ordering::SeqCst);
            // A full disk is no failed sync: then the word itself is synced, which says how far
            // reading has got.
            let is_journaled = self.is_table_whole() && self.journal_next().is_ok();
            let next = if is_journaled { at::JOURNALED_NEXT } else { at::NEXT };
            let (name, end) = (table.wide(at::JOURNAL_NAME), table.wide(at::JOURNAL_END));
            Begun { name, end, next: table.wide(next), is_journaled }
        })
    }

    /// Does little with the lock held, and without the interpreter lock.
    fn locked<T>(&self, work: impl FnOnce() -> T) -> std::io::Result<T> {
        // The next one who takes it makes the table anew.
        let word = self.table.map().word32(at::LOCK);
        let _held = self.control.life().hold_noting(word, || self.table.distrust())?;
        Ok(work())
    }

    /// Syncs what there is. A checkpoint in between has synced it too.
    pub(super) fn sync_now(&self) -> std::io::Result<()> {
        let Begun { name, end, next, is_journaled } = self.begin_sync()?;
        let ours = Some(self.journal()).filter(|open| open.name() == name).map(|open| open.file());
        // Another process began a new one, and we have not taken the lock since.
        let open = || crate::files::region::open(&journal::path(&self.folder, name), true);
        let file = ours.unwrap_or_else(open);
        match file {
            Ok(file) => crate::files::region::sync(&file)?,
            Err(_) if self.table.wide(at::JOURNAL_NAME) != name => return self.sync_now(),
            Err(error) => return Err(error),
        }
        if !self.is_lease {
            if !is_journaled {
                crate::files::region::sync(self.table.map().file()?)?;
            }
            self.table.set_wide(at::SYNCED_NEXT, next);
        }
        // Under the lock: so much of a journal that was begun just now is not synced.
        self.locked(|| {
            if self.table.wide(at::JOURNAL_NAME) == name {
                self.table.set_wide(at::JOURNAL_SYNCED, end);
            }
        })
    }
}
