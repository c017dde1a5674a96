//! A part of a segment, read by calls: for readers that must not touch a mapping.

use std::os::unix::fs::FileExt;
use std::sync::Arc;

use pyo3::prelude::*;

use super::reused::Reused;
use super::{Backing, PySegment, Segment};
use crate::bytes::words;
use crate::errors::located;
use crate::files::region;
use crate::sys::memory;

/// A copy begins at a multiple of this, so that frames are as aligned as they are in the file.
const LINE_BYTES: usize = 64;

impl Segment {
    /// The offsets `[start, end)` read by calls into memory: no page of a mapping is touched, so a
    /// file that is cut short, or a mount that fails, is an error and never a signal.
    fn copied(&self, start: u64, end: u64) -> std::io::Result<Option<Self>> {
        let Backing::Mapped(map) = &self.backing else { return Ok(None) };
        let (at, len) = (self.position(start), words::size(end.saturating_sub(start)));
        // A ring is laid out straight. Where a framing goes by where in the file a frame is (ciphers
        // do), bytes before the range are there as zeros, which cost nothing until they are touched.
        let (base, shift, skipped) = match &self.ring {
            Some(_) => (start, at, at),
            None if self.frames.goes_by_place() => (self.base, self.shift, 0),
            None => (self.base, self.shift, at - at % LINE_BYTES),
        };
        let straight = self.ring.as_ref().map_or(len, |ring| ring.straight(at, len));
        // Asked first: an end that a damaged word makes up may be further than memory goes.
        if straight > 0 && at.saturating_add(straight) as u64 > region::len(map.file()?)? {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let needed = at.saturating_sub(skipped).saturating_add(len);
        let skip = at.saturating_sub(skipped);
        let Some(mut bytes) = Reused::zeros_before(skip, needed) else {
            return Err(located(memory::none_left_io(), &self.path));
        };
        let wanted = bytes.behind(skip);
        let (first, wrapped) = wanted.split_at_mut(straight);
        let file = map.file()?;
        file.read_exact_at(first, at as u64)?;
        file.read_exact_at(wrapped, self.shift as u64)?;
        let first = start.max(self.first()); // A ring's head may have gone past it meanwhile.
        let (place, frames) = ((self.path.clone(), base, shift), Arc::clone(&self.frames));
        let copy = Self::owned(place, bytes, skipped, first..end, frames, self.sides.clone());
        Ok(Some(Self { holes: self.holes.clone(), ..copy }))
    }
}

#[pymethods]
impl PySegment {
    /// The offsets `[start, end)` as a segment of their own, read by calls and not through a
    /// mapping. A file that is too short is `EOFError`.
    fn copy_range(slf: &Bound<'_, Self>, start: u64, end: u64) -> PyResult<Py<Self>> {
        let (py, segment) = (slf.py(), Arc::clone(&slf.get().0));
        let copied = py.detach(|| segment.copied(start, end)).map_err(|error| {
            let short = error.kind() == std::io::ErrorKind::UnexpectedEof;
            if short {
                pyo3::exceptions::PyEOFError::new_err(error.to_string())
            } else {
                error.into()
            }
        })?;
        match copied {
            Some(copied) => Py::new(py, Self(Arc::new(copied))),
            None => Ok(slf.clone().unbind()),
        }
    }
}
