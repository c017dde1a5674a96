//! Waiting on a word that several processes have mapped.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Why a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Woken {
    /// Someone woke us, or the word had already changed.
    Changed,
    /// The time was up.
    TimedOut,
    /// A signal arrived: the caller looks whether Python wants to raise.
    Interrupted,
}

#[allow(deprecated)] // The `time_t` of musl, which will change its size, as a warning says.
/// Sleeps while `word` is `expected`, at most `timeout`.
pub fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> Woken {
    let time = timeout.map(|t| libc::timespec {
        tv_sec: libc::time_t::try_from(t.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(t.subsec_nanos()),
    });
    let time_ptr = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the word lives in a mapping that outlives the call; the flags say "not private", so
    // the kernel finds the waiters of other processes by the page, not by our address.
    let answer = unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, expected, time_ptr)
    };
    if answer == 0 {
        return Woken::Changed;
    }
    match std::io::Error::last_os_error().raw_os_error() {
        Some(libc::ETIMEDOUT) => Woken::TimedOut,
        Some(libc::EINTR) => Woken::Interrupted,
        _ => Woken::Changed,
    }
}

/// Wakes up to `count` waiters of `word`, in any process.
pub fn wake(word: &AtomicU32, count: i32) {
    // SAFETY: waking reads nothing through the pointer; a stale address wakes nobody.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, count) };
}

/// Words that one call can wait for.
pub const MANY: usize = 128;

/// What `futex_waitv` takes per word, as the kernel declares it.
#[repr(C)]
struct Waited {
    value: u64,
    address: u64,
    flags: u32,
    reserved: u32,
}

/// 32-bit words, found by their page and not by our address: other processes wake them.
const SHARED_U32: u32 = 2;

fn wait_on(words: &[Waited]) -> i64 {
    // SAFETY: `words` is an array of the kernel's own layout that lives through the call, and
    // each address in it is of a word that the caller keeps mapped.
    unsafe {
        libc::syscall(
            libc::SYS_futex_waitv,
            words.as_ptr(),
            words.len(),
            0,
            std::ptr::null::<libc::timespec>(),
            0,
        )
    }
}

/// Whether the kernel waits for several words at once (Linux 5.16).
pub fn can_wait_any() -> bool {
    wait_on(&[]) != -1 || std::io::Error::last_os_error().raw_os_error() != Some(libc::ENOSYS)
}

/// Sleeps while every word still has the value beside it. At most `MANY` words.
pub fn wait_any(words: &[(&AtomicU32, u32)]) {
    let words: Vec<Waited> = words
        .iter()
        .take(MANY)
        .map(|(word, value)| Waited {
            value: u64::from(*value),
            address: word.as_ptr() as u64,
            flags: SHARED_U32,
            reserved: 0,
        })
        .collect();
    wait_on(&words);
}
