//! What the bytes of each foreign format mean: the framing of each format. Our own is in `segment`.

pub mod beats;
pub mod mfq;
pub mod mirror;
pub mod python;
pub mod vqs;
pub mod zbus;
