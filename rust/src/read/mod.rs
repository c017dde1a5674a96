//! Reading without taking part: scans, walks with their verdict, Arrow batches.

pub mod arrow_out;
pub mod scan;
pub mod spot;
pub mod walk;
