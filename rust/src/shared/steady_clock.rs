//! How old a message is, though the wall clock may be set at any time.
//!
//! Timestamps are wall time. The steady clock is wall time without jumps forward: it runs with the
//! boot clock from where the wall clock stood when the queue was first opened in this boot, follows
//! it back at once, and forward by one part in a hundred, which is more than any time server slews
//! and little in whatever time a wrong clock goes unnoticed. A message from before a jump forward
//! is as old as the steady clock says; one that carries a time that the steady clock has not
//! reached was put after the jump, and for it the wall clock counts.

use std::sync::atomic::Ordering;

use pyo3::prelude::*;

use super::control::{Control, Shared, at};
use crate::clock::Clock;

const FORWARD_PART: i64 = 100;

impl Control {
    /// Nanoseconds since 1970 by the steady clock. Asking moves it on, for all processes.
    pub fn steady_wall(&self, clock: &Clock) -> i64 {
        let (boot, boot_id) = (clock.boot(), self.boot());
        let skew = clock.wall().saturating_sub(boot);
        let store = |skew: i64| {
            self.word(at::STEADY_SKEW).store(skew.cast_unsigned(), Ordering::Relaxed);
            self.word(at::STEADY_AT).store(boot.cast_unsigned(), Ordering::Relaxed);
        };
        if self.word(at::STEADY_BOOT).load(Ordering::Acquire) != boot_id {
            store(skew);
            self.word(at::STEADY_BOOT).store(boot_id, Ordering::Release);
            return boot.saturating_add(skew);
        }
        let known = self.word(at::STEADY_SKEW).load(Ordering::Relaxed).cast_signed();
        let since = self.word(at::STEADY_AT).load(Ordering::Relaxed).cast_signed();
        let rise = boot.saturating_sub(since).max(0) / FORWARD_PART;
        let steady = skew.min(known.saturating_add(rise));
        if steady < known || rise > 0 {
            store(steady);
        }
        boot.saturating_add(steady)
    }

    /// Whether what was put at `timestamp_ns` is older than `age_ns`.
    pub fn is_older(&self, clock: &Clock, timestamp_ns: i64, age_ns: i64) -> bool {
        let steady = self.steady_wall(clock);
        let now = if timestamp_ns <= steady { steady } else { clock.wall() };
        timestamp_ns < now.saturating_sub(age_ns)
    }
}

#[pymethods]
impl Shared {
    /// Nanoseconds since 1970, by a clock that does not jump forward.
    fn steady_wall_ns(&self, clock: &Clock) -> i64 {
        self.control.steady_wall(clock)
    }

    /// Whether what was put at `timestamp_ns` is older than `age_ns`, whatever happened to the wall
    /// clock since.
    fn is_older(&self, clock: &Clock, timestamp_ns: i64, age_ns: i64) -> bool {
        self.control.is_older(clock, timestamp_ns, age_ns)
    }
}
