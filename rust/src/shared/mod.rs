//! What the processes that have one queue open share: the control block, its locks, waiting.

pub mod control;
pub mod folder_lock;
pub mod lock;
#[cfg(all(test, feature = "models"))]
pub mod models;
pub mod mutex;
pub mod opening_lock;
pub mod pace;
pub mod protocol;
pub mod retry_limit;
mod steady_clock;
#[cfg(test)]
mod threads;
pub mod turns;
pub mod waiters;
