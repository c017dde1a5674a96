//! One codec per format.

pub mod penstock;
