//! One codec per format.

pub mod beats;
pub mod gob;
pub mod mfq;
pub mod mfq_consumer;
pub mod mfq_producer;
pub mod penstock;
pub mod vqs;
pub mod vqs_header;
pub mod zbus;
pub mod zbus_files;
