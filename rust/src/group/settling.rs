//! How a lease ends: acked, given back, or made longer.

use pyo3::prelude::*;

use super::Group;
use super::journal::Kind;
use super::table::{Entry, EntryState, NONE, at};
use crate::clock::seconds_to_ns;
use crate::errors;
use crate::message::{Lease, Leases};

/// The wrong receipt, or one whose lease has ended.
pub(super) enum Refusal {
    Stale,
    Io(std::io::Error),
}

impl From<std::io::Error> for Refusal {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

impl Group {
    /// Where the lease is that a receipt names, if it still runs. A table made anew from the
    /// journal has its entries elsewhere: the number in the receipt is only a guess.
    #[inline(always)]
    fn leased(&self, lease: Lease) -> Result<u32, Refusal> {
        let Lease { entry, token, offset, .. } = lease;
        let is_it = |entry: &u32| self.table.is_lease(*entry, token, offset);
        let found = Some(entry).filter(is_it).or_else(|| self.table.find(offset).filter(is_it));
        found.filter(|_| !self.is_gone()).ok_or(Refusal::Stale)
    }

    /// The same, and everything about it.
    pub(super) fn lease(&self, lease: Lease) -> Result<(u32, Entry), Refusal> {
        let entry = self.leased(lease)?;
        Ok((entry, self.table.entry(entry).ok_or(Refusal::Stale)?))
    }

    #[cold]
    fn answer(&self, py: Python<'_>, outcome: Result<(), Refusal>) -> PyResult<()> {
        let text =
            "the lease has ended: the message was acked, given back, or went to another consumer";
        outcome.map_err(|refusal| match refusal {
            Refusal::Stale => errors::error(py, "ReceiptError", (text,)),
            Refusal::Io(error) => errors::os(error, &self.folder),
        })
    }

    /// True if another consumer may wait for this: for the key, or for room in the window.
    #[inline(always)]
    fn ack_locked(&self, lease: Lease) -> Result<bool, Refusal> {
        let entry = self.leased(lease)?;
        Ok(self.finish(entry, lease.offset)?)
    }

    /// The message is done. True: another consumer may wait for this.
    #[inline(always)]
    fn finish(&self, entry: u32, offset: u64) -> std::io::Result<bool> {
        let was_full = self.is_window_full();
        // Only a waiting message with the same key needs the time.
        let now = if self.table.key(entry) == 0 { 0 } else { self.clock().boot() };
        let done = Entry::read(offset, offset, NONE);
        self.write_next(Kind::Done, &done, self.table.wide(at::NEXT), now)?;
        let freed = self.table.finish(entry, now);
        self.table.count(at::ACKED, 1);
        self.mirror()?;
        self.checkpoint_if_long()?;
        Ok(freed || was_full)
    }

    /// How the message at `offset` stands, and the receipt of its lease.
    pub(super) fn standing(
        &self,
        py: Python<'_>,
        offset: u64,
    ) -> PyResult<Option<(&'static str, String)>> {
        let _held = self.take(py)?;
        self.expire(self.clock().boot())?;
        let Some(entry) = self.table.find(offset) else { return Ok(None) };
        Ok(self.table.entry(entry).map(|known| {
            let lease = Lease { entry, offset, token: known.token, receives: known.receives };
            let is_out = known.state == EntryState::Leased;
            (known.state.name(), if is_out { lease.text() } else { String::new() })
        }))
    }

    /// Acks whatever stands at `offset`; false where nothing does.
    pub(super) fn ack_at(&self, py: Python<'_>, offset: u64) -> PyResult<bool> {
        let held = self.take(py)?;
        let Some(entry) = self.table.find(offset).filter(|_| !self.is_gone()) else {
            return Ok(false);
        };
        self.table.withdraw(entry);
        let outcome = self.finish(entry, offset).inspect_err(|_| self.table.distrust());
        drop(held);
        outcome.map_err(|error| errors::os(error, &self.folder))?;
        self.control.progressed(self.cursor());
        self.control.signal();
        if self.is_always {
            self.sync_progress_now(py)?;
        }
        Ok(true)
    }

    /// Ends a lease: ready now, or later. Under the lock.
    pub(super) fn release(
        &self,
        entry: u32,
        mut found: Entry,
        delay_ns: i64,
    ) -> std::io::Result<()> {
        let now = self.clock().boot();
        if delay_ns == 0 {
            found.state = EntryState::Ready;
            self.write(Kind::Ready, &found, now)?;
            self.table.make_ready(entry);
        } else {
            found.state = EntryState::Delayed;
            (found.deadline, found.timeout) = (now.saturating_add(delay_ns), delay_ns);
            self.write(Kind::Delay, &found, now)?;
            self.table.set_delayed(entry, found.deadline, delay_ns);
        }
        Ok(())
    }
}

impl Leases for Group {
    fn ack(&self, py: Python<'_>, lease: Lease) -> PyResult<()> {
        let held = self.take(py)?;
        let outcome = self.ack_locked(lease);
        drop(held);
        match outcome {
            Ok(is_awaited) => {
                self.control.progressed(self.cursor());
                if is_awaited {
                    self.control.signal();
                }
                if self.is_always { self.sync_progress_now(py) } else { Ok(()) }
            }
            Err(refusal) => self.answer(py, Err(refusal)),
        }
    }

    fn nack(&self, py: Python<'_>, lease: Lease, delay_s: f64) -> PyResult<()> {
        let delay = seconds_to_ns("delay", delay_s)?;
        let held = self.take(py)?;
        let outcome =
            self.lease(lease).and_then(|(entry, found)| Ok(self.release(entry, found, delay)?));
        drop(held);
        self.control.signal();
        self.answer(py, outcome)
    }

    fn extend(&self, py: Python<'_>, lease: Lease, seconds: f64) -> PyResult<()> {
        let timeout = seconds_to_ns("seconds", seconds)?;
        let held = self.take(py)?;
        let outcome = self.lease(lease).and_then(|(entry, mut found)| {
            let now = self.clock().boot();
            (found.deadline, found.timeout) = (now.saturating_add(timeout), timeout);
            self.write(Kind::Extend, &found, now)?;
            self.table.extend(entry, found.deadline, timeout);
            Ok(())
        });
        drop(held);
        self.answer(py, outcome)
    }

    fn is_leased(&self, py: Python<'_>, lease: Lease) -> PyResult<bool> {
        if self.table.is_lease(lease.entry, lease.token, lease.offset) {
            return Ok(true);
        }
        let _held = self.take(py)?;
        Ok(self.leased(lease).is_ok())
    }
}
