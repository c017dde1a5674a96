//! Asking in vain: a control block that names a segment which is not there would have everyone ask
//! for it for ever. Others begin and trim segments while one looks, but never as often as this.

use std::path::PathBuf;

use pyo3::prelude::*;

use crate::errors;
use crate::shared::control::at;

const MOST: u32 = 1000;

/// How often one has asked for the same segment, and got no further.
#[derive(Default)]
pub struct RetryLimit {
    offset: u64,
    times: u32,
}

impl RetryLimit {
    /// Counts one more request for the segment of `offset`; an error, which names `block`, when
    /// there were too many.
    #[cold]
    pub fn again(
        &mut self,
        py: Python<'_>,
        block: impl FnOnce() -> PathBuf,
        offset: u64,
    ) -> PyResult<()> {
        self.times = if self.offset == offset { self.times + 1 } else { 0 };
        self.offset = offset;
        if self.times < MOST {
            return Ok(());
        }
        let found = format!("a last segment that does not lead to offset {offset}");
        let expected = "the one that is appended to, which the files show";
        Err(errors::corrupt(py, &block(), at::SEGMENT_BASE, &found, expected))
    }
}
