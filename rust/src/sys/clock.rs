//! The two clocks of the kernel that penstock uses.
//!
//! Wall time is what users see and what survives a reboot. Boot time never jumps and counts while
//! the machine sleeps, so deadlines are kept in it. A time namespace shows it shifted, and
//! processes that share a queue may be in different namespaces: so the shift is taken out again.

use std::sync::atomic::{AtomicI64, Ordering};

/// What this process's time namespace adds to the boot clock.
static SHIFT_NS: AtomicI64 = AtomicI64::new(UNKNOWN);
const UNKNOWN: i64 = i64::MIN;

fn read(id: libc::clockid_t) -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid, writable timespec for the length of the call.
    unsafe { libc::clock_gettime(id, &mut time) };
    time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec)
}

/// Nanoseconds since 1970.
pub fn wall_ns() -> i64 {
    read(libc::CLOCK_REALTIME)
}

/// Nanoseconds of the clock that the kernel measures sleeps by.
pub fn monotonic_ns() -> i64 {
    read(libc::CLOCK_MONOTONIC)
}

/// When the kernel last counted time, a few milliseconds ago: a fifth of the cost. It tells whether
/// time has gone on, not what time it is.
pub fn tick() -> i64 {
    read(libc::CLOCK_MONOTONIC_COARSE)
}

/// Nanoseconds since this machine was started, sleep included.
#[inline]
pub fn boot_ns() -> i64 {
    let shift = match SHIFT_NS.load(Ordering::Relaxed) {
        UNKNOWN => read_shift(),
        known => known,
    };
    read(libc::CLOCK_BOOTTIME).saturating_sub(shift)
}

/// In a forked child, which may be in another namespace: the shift is read again.
pub fn forget_shift() {
    SHIFT_NS.store(UNKNOWN, Ordering::Relaxed);
}

#[cold]
fn read_shift() -> i64 {
    // The file speaks of the namespace of this process's children, which is its own unless it has
    // just left that; then its own is the machine's, or one whose shift can't be known.
    let link = |name: &str| std::fs::read_link(format!("/proc/self/ns/{name}")).ok();
    let is_own = link("time").is_some() && link("time") == link("time_for_children");
    let text = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    let shift = if is_own { shift_in(&text).unwrap_or(0) } else { 0 };
    SHIFT_NS.store(shift, Ordering::Relaxed);
    shift
}

/// The shift of the boot clock in a text like `monotonic 0 0\nboottime 100000 0\n`.
fn shift_in(text: &str) -> Option<i64> {
    let mut words = text.lines().find_map(|line| line.strip_prefix("boottime"))?.split_whitespace();
    let seconds: i64 = words.next()?.parse().ok()?;
    let nanoseconds: i64 = words.next()?.parse().ok()?;
    seconds.checked_mul(1_000_000_000)?.checked_add(nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::shift_in;

    #[test]
    fn the_shift_of_a_namespace_is_read() {
        assert_eq!(shift_in("monotonic  0 0\nboottime  100000 5\n"), Some(100_000_000_000_005));
        assert_eq!(shift_in("monotonic 1 0\nboottime -2 0\n"), Some(-2_000_000_000));
        assert_eq!(shift_in(""), None);
        assert_eq!(shift_in("boottime 9223372036854775807 0"), None);
    }
}
