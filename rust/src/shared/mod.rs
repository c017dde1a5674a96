//! What the processes that have one queue open share: the control block, its locks, waiting.

pub mod aio;
pub mod control;
pub mod gate;
pub mod lock;
mod steady;
pub mod waiters;
