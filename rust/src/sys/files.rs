//! Calls about files that the standard library does not have.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Allocates `[at, at + len)`, extending the file.
pub fn allocate(file: &File, at: u64, len: u64) -> io::Result<()> {
    let (at, len) = (i64::try_from(at), i64::try_from(len));
    let (Ok(at), Ok(len)) = (at, len) else { return Err(io::ErrorKind::InvalidInput.into()) };
    loop {
        // SAFETY: plain values and an open descriptor.
        match unsafe { libc::posix_fallocate(file.as_raw_fd(), at, len) } {
            0 => return Ok(()),
            libc::EINTR => {}
            errno => return Err(io::Error::from_raw_os_error(errno)),
        }
    }
}

/// The magic number of the file system that holds `file`.
pub fn file_system(file: &File) -> io::Result<i64> {
    // SAFETY: `stat` is plain data that the call fills; the descriptor is open.
    let mut stat: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    match unsafe { libc::fstatfs(file.as_raw_fd(), &raw mut stat) } {
        0 => Ok(stat.f_type),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether this process may give files to others.
pub fn is_root() -> bool {
    // SAFETY: the call has no arguments and can't fail.
    unsafe { libc::geteuid() == 0 }
}
