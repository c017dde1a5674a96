//! Locks inside one process, taken without ever waiting under the interpreter lock.

use std::sync::{Mutex, MutexGuard, TryLockError};

use pyo3::Python;

/// Locks `mutex`; while another thread has it, the interpreter lock is let go.
#[inline]
pub fn lock<'a, T: Send>(py: Python<'_>, mutex: &'a Mutex<T>) -> MutexGuard<'a, T> {
    loop {
        match mutex.try_lock() {
            Ok(guard) => return guard,
            Err(TryLockError::Poisoned(guard)) => return guard.into_inner(),
            Err(TryLockError::WouldBlock) => py.detach(|| drop(mutex.lock())),
        }
    }
}
