//! A folder that one handle has for itself, for as long as it is open: the kernel drops the lock
//! when the process ends, however it ends, and a forked child does not keep it.

use std::fs::OpenOptions;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use pyo3::prelude::*;

use crate::errors;
use crate::sys::fork::Owned;
use crate::sys::lockfile;

/// A locked folder.
#[pyclass(frozen, module = "penstock._core")]
pub struct FolderLock(Mutex<Option<Arc<Owned>>>);

#[pymethods]
impl FolderLock {
    /// Takes `folder`; none when someone else has it, or it is another one by now.
    #[staticmethod]
    fn take(folder: PathBuf) -> PyResult<Option<Self>> {
        let os = |error| errors::os(error, &folder);
        let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
        let open = || OpenOptions::new().read(true).custom_flags(flags).open(&folder);
        let owned = Owned::open(open).map_err(os)?;
        let file = owned.file().map_err(os)?;
        if !lockfile::try_lock_whole(file).map_err(os)? {
            return Ok(None);
        }
        // Between opening and locking, the folder may have been removed and made again.
        let ours = file.metadata().map_err(os)?.ino();
        let is_same = std::fs::metadata(&folder).is_ok_and(|found| found.ino() == ours);
        Ok(is_same.then(|| Self(Mutex::new(Some(owned)))))
    }

    /// Lets others have it.
    fn close(&self) {
        drop(self.0.lock().unwrap_or_else(|e| e.into_inner()).take());
    }
}
