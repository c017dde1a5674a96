//! Making a group's progress durable: the maintenance threads are told once, and concurrent acks
//! share a sync.

use std::sync::atomic::{Ordering, fence};
use std::time::Instant;

use pyo3::prelude::*;

use super::table::at;
use super::{Group, journal};
use crate::errors;
use crate::shared::lock::patiently;
use crate::shared::protocol;
use crate::shared::turns::SyncTurns;

/// What a sync has to do.
struct Begun {
    /// How many syncs had begun before, and this one.
    count: u32,
    /// The journal, and up to where it goes.
    name: u64,
    end: u64,
    /// Where reading goes on, and whether the journal says so. Else only the word itself does.
    next: u64,
    is_journaled: bool,
}

impl Group {
    /// Turns at a sync of this group.
    fn sync_turns(&self) -> SyncTurns<'_> {
        let [lock, ended] =
            [at::SYNC_LOCK, at::SYNCS_ENDED].map(|word| self.table.map().word32(word));
        SyncTurns { life: self.control.life(), lock, ended }
    }

    /// Returns once all progress that was made by now is on the disk. The first thread that comes
    /// syncs for all that wait by then.
    pub(super) fn sync_progress_now(&self, py: Python<'_>) -> PyResult<()> {
        // The progress is out before this look, and a sync is counted before it looks at that.
        fence(Ordering::SeqCst);
        let begun = self.table.map().word32(at::SYNCS_BEGUN).load(Ordering::SeqCst);
        loop {
            if self.control.is_poisoned() {
                return Err(self.control.poisoned(py)); // A sync that failed is not tried again.
            }
            let synced = patiently(py, self.control.life(), || self.sync_or_wait(begun))?;
            if synced.map_err(|error| errors::os(error, &self.folder))? {
                return Ok(());
            }
            py.check_signals()?;
        }
    }

    /// One sync, or a wait for those of others; whether one is over that began later than `begun`.
    fn sync_or_wait(&self, begun: u32) -> std::io::Result<bool> {
        let is_synced = || self.is_synced_since(begun);
        let is_needless = || is_synced() || self.control.is_poisoned();
        let Some(_turn) = self.sync_turns().come(is_needless)? else { return Ok(is_synced()) };
        let count = || self.table.wide(if self.is_lease { at::ACKED } else { at::DELIVERED });
        self.pace.gather(count);
        let (started, progress) = (Instant::now(), count());
        self.control.sync(|| self.sync_now())?;
        self.pace.note(started.elapsed(), progress);
        Ok(true)
    }

    /// Whether a sync is over that began after `begun` others had.
    fn is_synced_since(&self, begun: u32) -> bool {
        let count = |word| self.table.map().word32(word).load(Ordering::Acquire);
        let (synced, latest) = (count(at::SYNCED), count(at::SYNCS_BEGUN)); // In this order.
        let since = synced.wrapping_sub(begun);
        0 < since && since <= latest.wrapping_sub(begun)
    }

    /// Makes progress durable in the background, if there is any.
    pub(super) fn sync_dirty(&self) -> std::io::Result<()> {
        if !self.is_dirty() {
            return Ok(());
        }
        let _turn = self.sync_turns().hold()?;
        if self.is_dirty() { self.control.sync(|| self.sync_now()) } else { Ok(()) }
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
            protocol::begin_sync(table.map().word32(at::SYNC_ASKED));
            let begun = table.map().word32(at::SYNCS_BEGUN).fetch_add(1, Ordering::SeqCst);
            // A full disk is no failed sync: then the word itself is synced, which says how far
            // reading has got.
            let is_journaled = self.is_table_whole() && self.journal_next().is_ok();
            let next = if is_journaled { at::JOURNALED_NEXT } else { at::NEXT };
            let (name, end) = (table.wide(at::JOURNAL_NAME), table.wide(at::JOURNAL_END));
            Begun { count: begun.wrapping_add(1), name, end, next: table.wide(next), is_journaled }
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
        let Begun { count, name, end, next, is_journaled } = self.begin_sync()?;
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
        })?;
        self.table.map().word32(at::SYNCED).store(count, Ordering::Release);
        Ok(())
    }
}
