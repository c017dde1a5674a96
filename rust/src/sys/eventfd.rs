//! A counter that an event loop can wait for like a file.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd};

use super::descriptor::{Descriptor, above_standard};

/// Readable from the moment it is raised until someone reads it.
pub struct EventFd {
    descriptor: Descriptor,
    number: i32,
}

impl EventFd {
    /// A new one, not raised.
    pub fn new() -> io::Result<Self> {
        // SAFETY: no pointers; the descriptor that comes back is ours alone.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just opened, and owned by nobody else.
        let file = above_standard(unsafe { File::from_raw_fd(fd) })?;
        let number = file.as_raw_fd();
        Ok(Self { descriptor: Descriptor::new(file)?, number })
    }

    /// Its number.
    pub fn number(&self) -> i32 {
        self.number
    }

    /// Makes it readable. It only refuses when its count is full, and then it is readable.
    pub fn raise(&self) {
        let _ = self.descriptor.file().and_then(|mut file| file.write(&1u64.to_le_bytes()));
    }
}
