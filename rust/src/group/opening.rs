//! The first opening of a group in a boot.

use std::sync::atomic::Ordering;

use super::table::at;
use super::{Group, MAGIC};

impl Group {
    /// The first opener of a boot makes the table from the journal; later ones use it.
    ///
    /// Under the opening lock: lock words of another boot say nothing, and nobody looks at the
    /// table before it carries this boot's id.
    pub(super) fn prepare(&self, is_new: bool, boot_id: u64) -> std::io::Result<()> {
        for word in [at::LOCK, at::SYNC_LOCK] {
            self.table.map().word32(word).store(0, Ordering::SeqCst);
        }
        // A time of another boot says nothing; what was counted in it does.
        self.table.set_wide(at::IDLE_AT, self.clock().boot().cast_unsigned());
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
}
