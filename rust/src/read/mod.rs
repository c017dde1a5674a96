//! Reading without taking part: scans, walks with their verdict, Arrow batches.

pub mod arrow_out;
pub mod reader;
pub mod scan;
pub mod walk;
