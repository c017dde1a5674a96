//! What a group is told when it is opened, and what of that may change while it is open.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::table::MAX_ENTRIES;
use crate::bytes::tags::{self, Filter};
use crate::clock::seconds_to_ns;

/// How long a consumer waits before it looks again: `penstock.pacing` says how long, and why.
#[derive(FromPyObject)]
pub struct WaitTimes {
    pub look_for_dead_ns: u64,
    pub sleep_for_dead_ns: i64,
    pub first_poll_ns: i64,
    pub longest_poll_ns: i64,
    pub polls_in_doubt: u32,
    pub manual_nap_ns: i64,
    pub longest_sleep_ns: i64,
    pub spin_ns: i64,
    pub longest_spin_ns: u64,
}

impl WaitTimes {
    /// How long to wait before the next look, after so many in vain.
    pub fn poll_ns(&self, polls: u32) -> i64 {
        self.first_poll_ns.saturating_mul(1 << polls.min(62)).min(self.longest_poll_ns)
    }
}

/// The options of a group as `GroupOptions.native` names them.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Options {
    pub lease: bool,
    pub bound: bool,
    pub wait_times: WaitTimes,
    visibility_s: f64,
    window: u64,
    max_receives: u32,
    together: bool,
    tags: String,
    dialect: String,
}

impl Options {
    /// Which messages the group reads.
    pub fn filter(&self) -> PyResult<Filter> {
        let unknown =
            || PyValueError::new_err(format!("no tag dialect is called {}", self.dialect));
        Ok(Filter::new(&self.tags, tags::dialect(&self.dialect).ok_or_else(unknown)?))
    }
}

/// What may be changed while the group is open.
#[derive(Default)]
pub struct Settings {
    pub visibility_ns: AtomicI64,
    pub window: AtomicU64,
    pub max_receives: AtomicU32,
    /// Messages of one key may be out together, with one consumer.
    pub together: AtomicBool,
    /// Messages that are older are passed over; 0: none is.
    pub expire_ns: AtomicI64,
    /// Which change of the group's settings file was taken over.
    pub noticed_version: AtomicU32,
}

impl Settings {
    /// Takes over what `options` says, from now on.
    pub fn adopt(&self, options: &Options) -> PyResult<()> {
        self.visibility_ns.store(seconds_to_ns("visibility_s", options.visibility_s)?, Relaxed);
        self.window.store(options.window.min(u64::from(MAX_ENTRIES)), Relaxed);
        self.max_receives.store(options.max_receives, Relaxed);
        self.together.store(options.together, Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::WaitTimes;

    #[test]
    fn who_looks_in_vain_waits_twice_as_long_up_to_the_longest() {
        let times = WaitTimes {
            look_for_dead_ns: 0,
            sleep_for_dead_ns: 0,
            first_poll_ns: 3,
            longest_poll_ns: 50,
            polls_in_doubt: 0,
            manual_nap_ns: 0,
            longest_sleep_ns: 0,
            spin_ns: 0,
            longest_spin_ns: 0,
        };
        let waits: Vec<i64> =
            [0, 1, 2, 4, 5, 63, u32::MAX].map(|polls| times.poll_ns(polls)).into();
        assert_eq!(waits, [3, 6, 12, 48, 50, 50, 50]);
    }
}
