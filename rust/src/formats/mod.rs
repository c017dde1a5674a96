//! What the bytes of each foreign format mean: one codec per format. Our own is in `segment`.

pub mod beats;
pub mod face;
pub mod mfq;
pub mod mirror;
pub mod vqs;
pub mod zbus;
