//! The two clocks of the kernel that penstock uses.
//!
//! Wall time is what users see and what survives a reboot. Boot time never jumps and counts
//! while the machine sleeps, so deadlines are kept in it.

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

/// When the kernel last counted time, a few milliseconds ago: a fifth of the cost. It tells whether
/// time has gone on, not what time it is.
pub fn tick() -> i64 {
    read(libc::CLOCK_MONOTONIC_COARSE)
}

/// Nanoseconds since this machine was started, sleep included.
pub fn boot_ns() -> i64 {
    read(libc::CLOCK_BOOTTIME)
}
