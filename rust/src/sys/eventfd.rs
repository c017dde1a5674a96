//! A counter that an event loop can wait for like a file.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd};

/// Readable from the moment it is raised until someone reads it.
pub struct EventFd(File);

impl EventFd {
    /// A new one, not raised.
    pub fn new() -> io::Result<Self> {
        // SAFETY: no pointers; the descriptor that comes back is ours alone.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just opened, and owned by nobody else.
        Ok(Self(unsafe { File::from_raw_fd(fd) }))
    }

    /// Its number.
    pub fn number(&self) -> i32 {
        self.0.as_raw_fd()
    }

    /// Makes it readable. It only refuses when its count is full, and then it is readable.
    pub fn raise(&self) {
        let _ = (&self.0).write(&1u64.to_le_bytes());
    }
}
