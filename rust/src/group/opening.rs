//! The first opening of a group in a boot.

use std::sync::atomic::Ordering;

use pyo3::prelude::*;

use super::table::at;
use super::{Group, MAGIC};
use crate::control::Control;
use crate::lock::Life;

/// The queue's opening lock, held.
pub struct Opening<'a>(&'a Control);

impl<'a> Opening<'a> {
    /// Waits for it, without the interpreter lock.
    pub fn begin(py: Python<'_>, control: &'a Control) -> PyResult<Self> {
        py.detach(|| Life::begin_open(control.life().file()))?;
        Ok(Self(control))
    }
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        let _ = Life::end_open(self.0.life().file()); // At worst the kernel does it at our end.
    }
}

impl Group {
    /// The first opener of a boot makes the table from the journal; later ones use it.
    ///
    /// Under the opening lock: lock words of another boot say nothing, and nobody looks at the
    /// table before it carries this boot's id.
    pub(super) fn prepare(&self, is_new: bool, boot_id: u64) -> std::io::Result<()> {
        if self.table.wide(at::MAGIC) == MAGIC && self.table.wide(at::BOOT) == boot_id {
            return Ok(());
        }
        for word in [at::LOCK, at::SYNC_LOCK] {
            self.table.map().word32(word).store(0, Ordering::SeqCst);
        }
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
}
