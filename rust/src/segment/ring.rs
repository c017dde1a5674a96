//! A segment that is a ring: how long it is, where it begins now, whether its file was replaced.
//!
//! Space before the head is used again. A reader copies first and looks at the head
//! afterwards: a copy from before the head may hold bytes of a later lap and does not count.

use std::path::Path;
use std::sync::atomic::{Ordering, fence};

use crate::bytes::words;
use crate::errors;
use crate::files::region;
use crate::shared::control::{CONTROL_BYTES, at};
use crate::sys::mapping::Mapping;

/// The bytes of a file from `start` on, used again and again.
pub struct Ring {
    len: u64,
    start: usize,
    control: Option<RingControl>,
}

/// The control block, where the head and the count of replaced files are.
pub struct RingControl {
    map: Mapping,
    generation: u64,
}

impl RingControl {
    /// Notes the count of replaced files as it is now.
    pub fn new(path: &Path) -> std::io::Result<Self> {
        let file = region::open(path, false)?;
        let len = file.metadata()?.len();
        if len < CONTROL_BYTES as u64 {
            let found = format!("a file of {len} bytes");
            return Err(errors::damaged(path, words::size(len), found, "a control block"));
        }
        let map = Mapping::new(file, CONTROL_BYTES, false)?;
        let generation = map.word64(at::GENERATION).load(Ordering::Acquire);
        Ok(Self { map, generation })
    }
}

impl Ring {
    /// The bytes of a file of `file_len` from `start` on; with a control block if there is one.
    pub fn new(file_len: usize, start: usize, control: Option<RingControl>) -> Self {
        Self { len: file_len.saturating_sub(start) as u64, start, control }
    }

    /// Its bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// The byte of the file where it begins.
    pub fn start(&self) -> usize {
        self.start
    }

    /// The oldest kept offset, as it is after everything read so far.
    #[inline]
    pub fn head(&self) -> u64 {
        fence(Ordering::Acquire);
        self.control
            .as_ref()
            .map_or(0, |control| control.map.word64(at::HEAD).load(Ordering::Acquire))
    }

    /// Whether everyone was told to look at the files again since this was opened.
    #[inline]
    pub fn is_stale(&self) -> bool {
        self.control.as_ref().is_some_and(|control| {
            control.map.word64(at::GENERATION).load(Ordering::Acquire) != control.generation
        })
    }

    /// How many of `len` bytes at `position` lie before its end; the others go to its start.
    #[inline]
    pub fn straight(&self, position: usize, len: usize) -> usize {
        len.min((self.start + words::size(self.len)).saturating_sub(position))
    }
}
