//! Where a format keeps a group's progress itself (`.rdx`, `state.dat`, `consumer.offset`).

use std::sync::Arc;

use pyo3::prelude::*;

/// What happened in a group, for formats that keep leases themselves.
#[derive(Clone, Copy)]
pub enum Change {
    /// Reading goes on elsewhere: nothing is out any more.
    Moved,
    /// The message at this offset is done.
    Done(u64),
    /// The message at this offset is out, held back or waiting.
    Open {
        /// The message.
        offset: u64,
        /// How often it was handed out.
        receives: u32,
        /// When this happened, by the wall clock.
        wall_ns: i64,
    },
}

/// A group's progress in a file of the format's own.
pub trait Mirror: Send + Sync {
    /// Everything below `cursor` is done; reading goes on at `next`.
    fn store(&self, cursor: u64, next: u64) -> std::io::Result<()>;

    /// Something happened to a message.
    fn note(&self, _change: Change) {}
}

/// A mirror, as Python hands it around.
#[pyclass(frozen, module = "penstock._core", name = "Mirror")]
pub struct PyMirror(pub Arc<dyn Mirror>);
