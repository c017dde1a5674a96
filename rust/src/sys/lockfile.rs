//! Locks by open file description: the kernel drops them when the last descriptor is gone,
//! however the process ended. A byte of the lock file is one lock.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use crate::errors::located_file;

fn request(kind: i32, byte: u64) -> libc::flock {
    libc::flock {
        l_type: i16::try_from(kind).unwrap_or(0),
        l_whence: 0,
        l_start: i64::try_from(byte).unwrap_or(i64::MAX),
        l_len: 1,
        l_pid: 0,
    }
}

fn call(file: &File, command: i32, lock: &mut libc::flock) -> io::Result<()> {
    // SAFETY: the descriptor is open while `file` is borrowed and `lock` is a valid flock.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, std::ptr::from_mut(lock)) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Takes the byte if nobody has it.
pub fn try_lock(file: &File, byte: u64) -> io::Result<bool> {
    match call(file, libc::F_OFD_SETLK, &mut request(libc::F_WRLCK, byte)) {
        Ok(()) => Ok(true),
        Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(e) => Err(located_file(e, file)),
    }
}

/// Gives the byte back.
pub fn unlock(file: &File, byte: u64) -> io::Result<()> {
    call(file, libc::F_OFD_SETLK, &mut request(libc::F_UNLCK, byte))
        .map_err(|error| located_file(error, file))
}

/// Whether another open file description has the byte: is that opener alive?
pub fn is_held_elsewhere(file: &File, byte: u64) -> io::Result<bool> {
    any_held_elsewhere(file, byte, 1)
}

/// Whether another open file description has any of `count` bytes from `byte` on.
pub fn any_held_elsewhere(file: &File, byte: u64, count: u64) -> io::Result<bool> {
    let mut lock = request(libc::F_WRLCK, byte);
    lock.l_len = i64::try_from(count).unwrap_or(i64::MAX);
    call(file, libc::F_OFD_GETLK, &mut lock).map_err(|error| located_file(error, file))?;
    Ok(i32::from(lock.l_type) != libc::F_UNLCK)
}

/// Takes the whole file or folder for as long as its descriptor is open, if nobody has it.
pub fn try_lock_whole(file: &File) -> io::Result<bool> {
    // SAFETY: the descriptor is open while `file` is borrowed.
    match unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } {
        0 => Ok(true),
        _ => match io::Error::last_os_error() {
            e if e.raw_os_error() == Some(libc::EWOULDBLOCK) => Ok(false),
            e => Err(e),
        },
    }
}
