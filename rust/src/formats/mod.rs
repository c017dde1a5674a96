//! What the bytes of each foreign format mean: the framing of each format. Our own is in `segment`.

pub mod beats;
pub mod mfq;
pub mod mirror;
pub mod python;
pub mod vqs;
pub mod zbus;

/// Where the fields are of what we keep beside a format's own files, by the name of Python's struct.
pub const FIELDS: [(&str, &[(&str, usize)]); 2] =
    [("vqs extent", vqs::header::field::ALL), ("beats macs", beats::macs::field::ALL)];
/// Where the words of a format's own are in the control block.
pub const OWN_WORDS: [(&str, usize); 2] =
    [("shown", vqs::header::SHOWN), ("shown_slots", vqs::header::SHOWN_SLOTS)];
