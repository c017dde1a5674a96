//! What the processes that have one queue open share: the control block, its locks, waiting.

pub mod control;
pub mod door;
pub mod gate;
pub mod lock;
#[cfg(all(test, feature = "models"))]
mod models;
pub mod protocol;
pub mod seat;
mod steady;
pub mod vain;
pub mod waiters;
