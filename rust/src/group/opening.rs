//! Opening a group: how far an opener may believe what it finds.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use pyo3::prelude::*;

use super::journal::{Journal, Kind, Record};
use super::table::{Entry, NONE, Table, at};
use super::{Group, MAGIC, OLD_MAGIC};
use crate::bytes::checksum::key_hash;
use crate::errors;
use crate::shared::control::Shared;
use crate::sys::sigbus;

/// No first journal has a lower number: all have as many digits.
const FIRST_NUMBER: u64 = 1_000_000_000;

/// How many handles this process has on each table, by its number on the device.
static OPEN: Mutex<BTreeMap<u64, usize>> = Mutex::new(BTreeMap::new());

/// Counts a handle on this table that came (1) or went (-1).
fn count(table: &Table, by: isize) {
    let number = table.map().inode();
    let mut open = OPEN.lock().unwrap_or_else(|e| e.into_inner());
    let handles = open.entry(number).or_default();
    *handles = handles.saturating_add_signed(by);
    if *handles == 0 {
        open.remove(&number);
    }
}

/// Whether nobody else has the group open, in any process. With the queue's opening lock held.
pub fn is_alone(shared: &Shared, table: &Table) -> std::io::Result<bool> {
    let number = table.map().inode();
    let is_ours = OPEN.lock().unwrap_or_else(|e| e.into_inner()).contains_key(&number);
    Ok(!is_ours && shared.control.life().is_alone()?)
}

/// Puts two words in their places, in a table that a build before the release has left. With the
/// queue's opening lock held.
pub fn renew(table: &Table) {
    if table.wide(at::MAGIC) == OLD_MAGIC {
        let (first, second) = (table.wide(at::DELIVERED), table.wide(at::CURSOR));
        table.map().publish64(at::MAGIC, 0); // A process that dies in between leaves no table.
        table.set_wide(at::DELIVERED, second);
        table.set_wide(at::CURSOR, first);
        table.map().publish64(at::MAGIC, MAGIC);
    }
}

/// The journal of a new group, which reads from `start` on, after the `(offset, receives)` in
/// `entered`.
pub fn first_journal(
    folder: &Path,
    start: u64,
    entered: &[(u64, u32)],
    wall_ns: i64,
) -> std::io::Result<Journal> {
    let entry_of = |(offset, receives): &(u64, u32)| Entry {
        receives: *receives,
        ..Entry::read(*offset, *offset, NONE)
    };
    let entered: Vec<Entry> = entered.iter().map(entry_of).collect();
    let first = Record { kind: Kind::Seek, entry: &Entry::NONE, next: start };
    let entered = entered.iter().map(|entry| Record { kind: Kind::Enter, entry, next: start });
    let records: Vec<_> =
        std::iter::once(first).chain(entered).map(|record| (record, wall_ns)).collect();
    // Each group's journals have numbers of their own, with which the checks of their records
    // begin: a journal of another group that gets the name of one of these is not believed.
    let chance = getrandom::u32().map_err(std::io::Error::other)?;
    let number = FIRST_NUMBER + u64::from(chance);
    Ok(Journal::begin(folder, number, &records, None)?.0)
}

impl Group {
    /// The first opener of a boot makes the table from the journal; later ones use it.
    ///
    /// Under the opening lock: lock words of another boot say nothing, and nobody looks at the
    /// table before it carries this boot's id.
    pub(super) fn prepare(&self, is_new: bool, boot_id: u64) -> std::io::Result<()> {
        self.reset_locks();
        // A time of another boot says nothing.
        self.table.set_wide(at::LOOKED_FOR_DEAD, 0);
        self.measure_skew();
        self.rebuild(false)?;
        if !is_new {
            // Pages reach the disk in any order: behind the last whole record may stand whole
            // ones of before the power cut, which must never follow what is written from now on.
            self.checkpoint()?;
        }
        self.table.map().publish64(at::BOOT, boot_id);
        self.table.map().publish64(at::MAGIC, MAGIC);
        Ok(())
    }

    /// A table of this boot. An opener that is alone can't trust it, and makes it anew from the
    /// journal, whose records have checks. Otherwise the others keep it right, and it need only be
    /// sound.
    pub(super) fn check(&self, py: Python<'_>, is_alone: bool) -> PyResult<()> {
        if self.is_gone() {
            return Ok(()); // In its folder there may be another group by now.
        }
        if is_alone {
            self.reset_locks(); // The openers that they name are dead, or the words are damaged.
            self.table.distrust();
        }
        self.measure_skew();
        let held = self.take(py)?;
        if self.table.fault().is_some() {
            self.table.distrust();
            self.mend()?;
        }
        // Under the lock: others change the table as soon as it is given back.
        let fault = self.table.fault();
        drop(held);
        fault.map_or(Ok(()), |what| {
            let text = format!("the group's table can't be made from its journal: {what}");
            Err(errors::error(py, "StorageError", (self.folder.join("table"), text)))
        })
    }

    /// Counts this handle; its end counts it out.
    ///
    /// Where reading goes on is in no record of a group that acks by getting, but the last one who
    /// closed it left a check of the word. If it does not fit, the first handle takes the
    /// journal's.
    pub(super) fn enter(&self, is_first: bool) {
        if is_first {
            let check = self.table.wide(at::NEXT_CHECK);
            if check != 0 && check != self.next_check() {
                self.table.set_wide(at::NEXT, 0);
            }
            self.table.set_small(at::OPENERS, 0);
        }
        count(&self.table, 1);
        self.table.set_wide(at::NEXT_CHECK, 0); // From now on the word may move at any time.
        self.table.map().word32(at::OPENERS).fetch_add(1, Ordering::AcqRel);
    }

    fn next_check(&self) -> u64 {
        key_hash(&self.table.wide(at::NEXT).to_le_bytes())
    }

    fn reset_locks(&self) {
        for word in [at::LOCK, at::SYNC_LOCK] {
            self.table.map().word32(word).store(0, Ordering::SeqCst);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        count(&self.table, -1);
        if self.process != std::process::id() {
            return; // A forked child's copy: the parent has the handle.
        }
        // A message may have kept the group until long after its queue was closed. Meanwhile another
        // library may have put the handler back that was there before ours.
        sigbus::install();
        let openers = self.table.map().word32(at::OPENERS);
        if openers.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.table.set_wide(at::NEXT_CHECK, self.next_check());
        }
    }
}
