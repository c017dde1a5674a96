//! Waiting on a word that several processes have mapped.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

use crate::sys::clock;

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

/// The kinds of sleepers that a wake can tell apart: one that is for the idle leaves alone who sleeps
/// until a certain time.
const IDLE: u32 = 1;

/// Sleeps while `word` is `expected`, at most `timeout`, and through what wakes the idle.
pub fn wait_until_due(word: &AtomicU32, expected: u32, timeout: Duration) {
    let until =
        clock::monotonic_ns().saturating_add(i64::try_from(timeout.as_nanos()).unwrap_or(i64::MAX));
    let until = libc::timespec { tv_sec: until / 1_000_000_000, tv_nsec: until % 1_000_000_000 };
    // SAFETY: as in `wait`; this call takes the time at which it ends, by the monotonic clock.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT_BITSET,
            expected,
            &raw const until,
            std::ptr::null::<u32>(),
            !IDLE,
        )
    };
}

/// Wakes all waiters of `word`, in any process, but those in `wait_until_due`; answers how many.
pub fn wake_idle(word: &AtomicU32) -> i64 {
    // SAFETY: as in `wake`.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAKE_BITSET,
            i32::MAX,
            std::ptr::null::<libc::timespec>(),
            std::ptr::null::<u32>(),
            IDLE,
        )
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use super::{wait, wait_until_due, wake, wake_idle};

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn who_sleeps_until_a_time_sleeps_through_what_wakes_the_idle() {
        static WORD: AtomicU32 = AtomicU32::new(0);
        let sleep_on = |sleep: fn()| {
            std::thread::spawn(move || {
                while WORD.load(Ordering::SeqCst) == 0 {
                    sleep();
                }
            })
        };
        let due = sleep_on(|| wait_until_due(&WORD, 0, LONG));
        for _ in 0..100 {
            // It is asleep by now or will be soon: either way this must not wake it.
            assert_eq!(wake_idle(&WORD), 0);
            std::thread::yield_now();
        }
        let idle = sleep_on(|| {
            let _ = wait(&WORD, 0, Some(LONG));
        });
        while wake_idle(&WORD) == 0 {
            std::thread::yield_now();
        }
        WORD.store(1, Ordering::SeqCst);
        wake(&WORD, i32::MAX);
        due.join().expect("it was woken");
        idle.join().expect("it was woken");
    }

    #[test]
    fn who_sleeps_until_a_time_wakes_up_then() {
        let word = AtomicU32::new(0);
        let begun = std::time::Instant::now();
        wait_until_due(&word, 0, Duration::from_millis(2));
        assert!(begun.elapsed() >= Duration::from_millis(2));
    }
}
