//! Every effect on a file: each passes through `region`, which tests can record and make fail.

pub mod effects;
#[cfg(feature = "recorder")]
pub mod recording;
pub mod region;
