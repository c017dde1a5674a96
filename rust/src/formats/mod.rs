//! What the bytes of each format mean: the contract of a codec, and one codec per format.

pub mod beats;
pub mod face;
pub mod frame;
pub mod mfq;
pub mod penstock;
pub mod vqs;
pub mod zbus;
