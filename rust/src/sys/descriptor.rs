//! Descriptors that stay open for long, in a program that is not ours.
//!
//! A program may close what it did not open: one that becomes a daemon closes every descriptor that
//! it does not know. The kernel gives the numbers to the files that are opened next. So whatever
//! stays open is compared with what was opened each time before it is used: else we would write to,
//! cut, lock or close a file of somebody else.

use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::files::{self, Identity};

/// Programs write to the first three, whatever is open there: warnings, tracebacks, their output.
const STANDARD: i32 = 3;

/// Who got each number last. The same file may be open a second time under a number that was
/// closed under its first opening.
static LAST: [AtomicU32; NUMBERS] = [const { AtomicU32::new(0) }; NUMBERS];
const NUMBERS: usize = 1 << 16;
static OPENED: AtomicU32 = AtomicU32::new(0);

/// A file that stays open.
pub struct Descriptor {
    file: ManuallyDrop<File>,
    identity: Identity,
    opening: u32,
    is_closed: AtomicBool,
}

impl Descriptor {
    /// Keeps `file` open until this is dropped.
    pub fn new(file: File) -> io::Result<Self> {
        let identity = files::identity_of(&file)?;
        let opening = OPENED.fetch_add(1, Ordering::Relaxed);
        if let Some(last) = last(&file) {
            last.store(opening, Ordering::Relaxed);
        }
        let (file, is_closed) = (ManuallyDrop::new(file), AtomicBool::new(false));
        Ok(Self { file, identity, opening, is_closed })
    }

    /// The file; an error if its number is another file's by now, or nobody's.
    pub fn file(&self) -> io::Result<&File> {
        if self.is_ours() { Ok(&self.file) } else { Err(lost()) }
    }

    /// The file's number on its device.
    pub fn inode(&self) -> u64 {
        self.identity[1]
    }

    /// Closes it before its end. Allocates nothing.
    pub fn close(&self) {
        if self.is_ours() && !self.is_closed.swap(true, Ordering::SeqCst) {
            // SAFETY: whatever has the number from now on is not ours, and not used as ours.
            unsafe { libc::close(self.file.as_raw_fd()) };
        }
    }

    fn is_ours(&self) -> bool {
        last(&self.file).is_none_or(|last| last.load(Ordering::Relaxed) == self.opening)
            && files::identity_of(&self.file).is_ok_and(|found| found == self.identity)
            && !self.is_closed.load(Ordering::SeqCst)
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        self.close();
    }
}

fn last(file: &File) -> Option<&'static AtomicU32> {
    LAST.get(usize::try_from(file.as_raw_fd()).ok()?)
}

#[cold]
fn lost() -> io::Error {
    io::Error::other(
        "another part of this program closed the file under the queue, as a daemon does that \
         closes all that is open; open the queue after that, and not before",
    )
}

/// The same file under a number behind those of the standard streams: a program that was started
/// without them writes to whatever has their numbers.
pub fn above_standard(file: File) -> io::Result<File> {
    // The standard library gives no copy such a number.
    if file.as_raw_fd() < STANDARD { file.try_clone() } else { Ok(file) }
}
