//! The log of every effect on files, for crash tests: stores, writes, growth, renames, unlinks and
//! syncs, Python's included, as the very code that runs in production does them.
//!
//! Only a build with the feature `recorder` can keep it. What users install has no such feature:
//! there `is_recording` is false when the code is compiled, and nothing of this is left.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, Ordering};

/// One thing that happened to the disk, in program order.
#[cfg_attr(not(feature = "recorder"), allow(dead_code, reason = "made and read by tests alone"))]
pub enum Effect {
    /// A file came to be under a name.
    Create(PathBuf, u64),
    /// Bytes were stored through a mapping or written by a call.
    Store(u64, usize, Vec<u8>),
    /// The file got this length.
    Grow(u64, u64),
    /// A name moved.
    Rename(PathBuf, PathBuf),
    /// A name went.
    Unlink(PathBuf),
    /// A file's bytes and length were synced.
    Sync(u64),
    /// A folder's names were synced.
    SyncFolder(PathBuf),
    /// A mark that a test sets.
    #[cfg(feature = "recorder")]
    Mark(String),
}

static RECORDING: AtomicBool = AtomicBool::new(false);
static LOG: Mutex<Vec<Effect>> = Mutex::new(Vec::new());
/// A test may let the next syncs fail with this error number.
static SYNC_FAULT: AtomicI32 = AtomicI32::new(0);
/// Which of them: every one, or the one that comes after so many others.
static SYNC_NTH: AtomicI64 = AtomicI64::new(EVERY_SYNC);
const EVERY_SYNC: i64 = i64::MAX;

/// Whether effects are being recorded.
#[inline(always)]
pub fn is_recording() -> bool {
    cfg!(feature = "recorder") && RECORDING.load(Ordering::Relaxed)
}

/// Adds to the log, if there is one.
#[inline]
pub fn record(effect: impl FnOnce() -> io::Result<Effect>) -> io::Result<()> {
    if is_recording() {
        let effect = effect()?;
        LOG.lock().unwrap_or_else(|e| e.into_inner()).push(effect);
    }
    Ok(())
}

/// A store of `bytes` at `at` of the file `inode`.
#[cold]
pub fn record_store(inode: u64, at: usize, bytes: &[u8]) {
    let _ = record(|| Ok(Effect::Store(inode, at, bytes.to_vec())));
}

/// The file's number on its device.
pub fn inode(file: &File) -> io::Result<u64> {
    Ok(file.metadata()?.ino())
}

/// The error that a test wants: of every sync, or of one of those to come.
#[inline]
pub fn sync_fault() -> io::Result<()> {
    match cfg!(feature = "recorder").then(|| SYNC_FAULT.load(Ordering::Relaxed)) {
        None | Some(0) => Ok(()),
        Some(errno) => nth_fault(errno),
    }
}

#[cold]
fn nth_fault(errno: i32) -> io::Result<()> {
    match SYNC_NTH.fetch_sub(1, Ordering::SeqCst) {
        EVERY_SYNC => SYNC_NTH.store(EVERY_SYNC, Ordering::SeqCst),
        0 => {}
        _ => return Ok(()),
    }
    Err(io::Error::from_raw_os_error(errno))
}

/// What tests do with it.
#[cfg(feature = "recorder")]
pub mod control {
    use super::{EVERY_SYNC, Effect, LOG, Ordering, RECORDING, SYNC_FAULT, SYNC_NTH};

    /// Starts or stops the log.
    pub fn set_recording(on: bool) {
        RECORDING.store(on, Ordering::SeqCst);
    }

    /// Takes what was recorded so far.
    pub fn take_log() -> Vec<Effect> {
        std::mem::take(&mut *LOG.lock().unwrap_or_else(|e| e.into_inner()))
    }

    /// Lets every later sync fail with `errno` (0: none), or only the `nth` of them. What is left
    /// of the number that was named before; below 0: that sync has come.
    pub fn set_sync_fault(errno: i32, nth: Option<i64>) -> i64 {
        SYNC_FAULT.store(errno, Ordering::SeqCst);
        SYNC_NTH.swap(nth.unwrap_or(EVERY_SYNC), Ordering::SeqCst)
    }
}
