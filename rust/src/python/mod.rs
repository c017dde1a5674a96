//! Faces of their own on an open queue: for event loops, for the maintenance thread, and for the one
//! producer and the one consumer of an mfq queue.

pub mod aio;
pub mod mfq_consumer;
pub mod mfq_producer;
pub mod upkeep;
pub mod word_offsets;
