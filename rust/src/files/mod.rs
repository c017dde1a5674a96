//! Every effect on a file: each passes through `region`, which tests can record and make fail.

pub mod effects;
pub mod region;
