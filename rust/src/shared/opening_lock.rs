//! The opening lock: one opener, closer or changer of groups at a time.
//!
//! It is the first byte of the lock file. The kernel tells openings of the file apart by it, not
//! threads, so threads that share an opening take turns here. One that is inside may come in again.
//! The lock is only ever held by a guard of native code, which runs what Python has to do inside:
//! however that ends, by an exception of a signal handler or a panic, the lock is given back.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::ThreadId;
use std::time::Duration;

use pyo3::prelude::*;

use crate::errors;
use crate::files::region;
use crate::sys::fork::Owned;
use crate::sys::lockfile;

const OPEN_BYTE: u64 = 0;

/// How long an opener waits for a lock before it looks again: `penstock.pacing` says how long, and
/// why.
#[derive(FromPyObject, Clone, Copy)]
pub struct LockTimes {
    look_for_dead_ns: u64,
    pub looks_before_signals: u32,
    first_opening_nap_ns: u64,
    longest_opening_nap_ns: u64,
    pub closing_nap_ns: u64,
    pub longest_sleep_ns: u64,
}

impl LockTimes {
    /// After so long a sleeper looks whether the one that it waits for lives.
    pub fn look_for_dead(&self) -> Duration {
        Duration::from_nanos(self.look_for_dead_ns)
    }
}

/// The lock file, open.
pub struct OpeningLock {
    owned: Arc<Owned>,
    path: PathBuf,
    times: LockTimes,
    /// Which thread of this opening is inside, and how often.
    inside: Mutex<Option<(ThreadId, u32)>>,
}

impl OpeningLock {
    /// Opens the lock file, or makes it.
    pub fn open(path: &Path, times: LockTimes) -> PyResult<Arc<Self>> {
        let owned = Owned::open(|| region::open_or_create(path));
        let owned = owned.map_err(|error| errors::os(error, path))?;
        Ok(Arc::new(Self { owned, path: path.to_path_buf(), times, inside: Mutex::new(None) }))
    }

    /// The file and whether it is still ours.
    pub fn owned(&self) -> &Arc<Owned> {
        &self.owned
    }

    /// How long its opener waits.
    pub fn times(&self) -> &LockTimes {
        &self.times
    }

    /// Takes the opening lock. Waits without the interpreter lock, and looks at signals.
    pub fn enter(self: &Arc<Self>, py: Python<'_>) -> PyResult<Inside> {
        let mut nap_ns = self.times.first_opening_nap_ns;
        loop {
            if self.owned.is_forked() {
                return Err(errors::closed(py, true));
            }
            if self.try_enter().map_err(|error| errors::os(error, &self.path))? {
                return Ok(Inside(Arc::clone(self)));
            }
            py.detach(|| std::thread::sleep(Duration::from_nanos(nap_ns)));
            py.check_signals()?;
            nap_ns = nap_ns.saturating_mul(2).min(self.times.longest_opening_nap_ns);
        }
    }

    fn inside(&self) -> MutexGuard<'_, Option<(ThreadId, u32)>> {
        self.inside.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn try_enter(&self) -> std::io::Result<bool> {
        let (mut inside, me) = (self.inside(), std::thread::current().id());
        let times = match *inside {
            Some((thread, _)) if thread != me => return Ok(false),
            Some((_, times)) => times,
            None if lockfile::try_lock(self.owned.file()?, OPEN_BYTE)? => 0,
            None => return Ok(false),
        };
        *inside = Some((me, times + 1));
        Ok(true)
    }

    fn leave(&self) {
        let mut inside = self.inside();
        *inside = inside.and_then(|(thread, times)| (times > 1).then(|| (thread, times - 1)));
        if inside.is_none() {
            // It can't fail: a byte that is ours. A forked child has no such file any more.
            let _ = self.owned.file().and_then(|file| lockfile::unlock(file, OPEN_BYTE));
        }
    }
}

/// The opening lock, held.
pub struct Inside(Arc<OpeningLock>);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.leave();
    }
}
