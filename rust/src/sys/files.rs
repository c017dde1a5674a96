//! Calls about files that the standard library does not have.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Has the kernel begin to write `[at, at + len)` to the disk. It waits for nothing and takes no
/// error away from the sync that follows, as it would if it waited.
pub fn begin_writing(file: &File, at: u64, len: u64) {
    let (at, len) = (i64::try_from(at), i64::try_from(len));
    if let (Ok(at), Ok(len @ 1..)) = (at, len) {
        // SAFETY: plain values and an open descriptor.
        unsafe {
            libc::sync_file_range(file.as_raw_fd(), at, len, libc::SYNC_FILE_RANGE_WRITE);
        }
    }
}

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

/// The kernel's own call: glibc has a function for it since 2.28 and musl since 1.2.4, and a wheel
/// that asked an older one for it could not be imported.
fn statx(folder: i32, name: &CStr, flags: i32, wanted: u32, found: &mut libc::statx) -> bool {
    let found: *mut libc::statx = found;
    // SAFETY: the name ends with a zero, and the kernel writes to `found` alone.
    unsafe { libc::syscall(libc::SYS_statx, folder, name.as_ptr(), flags, wanted, found) == 0 }
}

/// How many names a file has, and how many bytes. Its times are not asked for: Linux then gives the
/// next write a time of its own, however soon it comes, and a sync has one more block to write.
pub fn names_and_len(file: &File) -> io::Result<(u64, u64)> {
    let wanted = libc::STATX_NLINK | libc::STATX_SIZE;
    // SAFETY: `found` is plain data that the call fills.
    let mut found: libc::statx = unsafe { std::mem::zeroed() };
    let (number, this) = (file.as_raw_fd(), libc::AT_EMPTY_PATH);
    let is_done = statx(number, c"", this, wanted, &mut found);
    if is_done && found.stx_mask & wanted == wanted {
        return Ok((u64::from(found.stx_nlink), found.stx_size));
    }
    let about = file.metadata()?; // Where the call is not allowed, or the file system is odd.
    Ok((about.nlink(), about.len()))
}

/// The magic number of the file system that holds `file`.
#[allow(clippy::unnecessary_cast)] // It is unsigned with musl.
pub fn file_system(file: &File) -> io::Result<i64> {
    // SAFETY: `stat` is plain data that the call fills; the descriptor is open.
    let mut stat: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    match unsafe { libc::fstatfs(file.as_raw_fd(), &raw mut stat) } {
        0 => Ok(stat.f_type as i64),
        _ => Err(io::Error::last_os_error()),
    }
}

/// What tells a file from any other one, and this mounting of its file system from an earlier one:
/// device, inode, birth in seconds and nanoseconds, and the mounting's own number (0 where the
/// kernel is older than 6.8: then two mountings look alike).
pub type Identity = [u64; 5];

/// That of the file at `path`.
pub fn identity(path: &Path) -> io::Result<Identity> {
    identity_at(libc::AT_FDCWD, &CString::new(path.as_os_str().as_bytes())?, 0)
}

/// That of an open file. Its times are not asked for, as in `names_and_len`.
pub fn identity_of(file: &File) -> io::Result<Identity> {
    let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
    identity_at(file.as_raw_fd(), c"", flags).or_else(|_| {
        let about = file.metadata()?; // Where the call is not allowed.
        Ok([about.dev(), about.ino(), 0, 0, 0])
    })
}

fn identity_at(folder: i32, name: &CStr, flags: i32) -> io::Result<Identity> {
    let wanted = libc::STATX_INO | libc::STATX_BTIME | libc::STATX_MNT_ID_UNIQUE;
    // SAFETY: `found` is plain data that the call fills.
    let mut found: libc::statx = unsafe { std::mem::zeroed() };
    if !statx(folder, name, flags, wanted, &mut found) {
        return Err(io::Error::last_os_error());
    }
    let is_unique = found.stx_mask & libc::STATX_MNT_ID_UNIQUE != 0;
    Ok([
        u64::from(found.stx_dev_major) << 32 | u64::from(found.stx_dev_minor),
        found.stx_ino,
        found.stx_btime.tv_sec.cast_unsigned(),
        u64::from(found.stx_btime.tv_nsec),
        if is_unique { found.stx_mnt_id } else { 0 },
    ])
}

/// The user as whom this process works.
pub fn user() -> u32 {
    // SAFETY: the call has no arguments and can't fail.
    unsafe { libc::geteuid() }
}

/// Whether this process may give files to others.
pub fn is_root() -> bool {
    user() == 0
}
