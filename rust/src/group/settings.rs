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
    pub longest_sleep_ns: i64,
    pub spin_ns: i64,
    pub longest_spin_ns: u64,
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
