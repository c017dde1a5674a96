//! The segment as Python sees it.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock, OnceLock};

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::{Backing, LIVE, Plain, PyFrames, Ring, Segment};
use crate::bytes::words;
use crate::errors;
use crate::files::region;
use crate::segment::penstock_frame::PenstockFrames;
use crate::segment::ring::RingControl;
use crate::segment::side_files::SideFiles;
use crate::segment::walk::{Care, Met, Walk};
use crate::sys::mapping::Mapping;
use crate::sys::memory;

/// A segment, as Python hands it around.
#[pyclass(frozen, module = "penstock._core", name = "Segment")]
pub struct PySegment(pub Arc<Segment>);

/// A segment without a file, which stands for one that was given away.
static NONE: LazyLock<Arc<Segment>> = LazyLock::new(|| {
    let frames = PenstockFrames { cipher: None, is_encrypted: false, compress: false };
    let place = (PathBuf::new(), 0, 0);
    Arc::new(Segment::owned(place, Vec::new(), 0, 0..0, Arc::new(frames), None))
});

impl Drop for PySegment {
    /// The last one who drops a segment unmaps it and, if its file was deleted meanwhile, frees its
    /// pages. No other thread of the interpreter waits for that.
    fn drop(&mut self) {
        if Arc::strong_count(&self.0) == 1 && self.0.map().is_some() {
            let last = std::mem::replace(&mut self.0, Arc::clone(&NONE));
            Python::attach(|py| py.detach(move || drop(last)));
        }
    }
}

#[pymethods]
impl PySegment {
    /// Maps the file at `path`.
    ///
    /// `capacity` maps more than the file has: the file grows by `grow_step` before it is
    /// stored to. `by_write` appends by write calls. `ring` makes it one, from `shift` to the
    /// end of the file, which is mapped again behind its end, and `control` is the control block
    /// with its head; `side_span` bytes share one file beside it. `extras` and
    /// `integrity` are the folders of what its format has no place for; without `covers`,
    /// appended frames get no checksum there. No frame begins at or behind `soft_bytes`.
    #[new]
    #[pyo3(signature = (path, base, shift, frames, *, first=None, end=None, writable=false, capacity=None, grow_step=0, by_write=false, ring=false, control=None, side_span=0, extras=None, integrity=None, covers=true, soft_bytes=None))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        path: PathBuf,
        base: u64,
        shift: usize,
        frames: &PyFrames,
        first: Option<u64>,
        end: Option<u64>,
        writable: bool,
        capacity: Option<usize>,
        grow_step: u64,
        by_write: bool,
        ring: bool,
        control: Option<PathBuf>,
        side_span: u64,
        extras: Option<PathBuf>,
        integrity: Option<PathBuf>,
        covers: bool,
        soft_bytes: Option<usize>,
    ) -> PyResult<Self> {
        let sides = match (&extras, &integrity) {
            (None, None) => None,
            _ => Some(SideFiles::new(extras, integrity, base, side_span, writable, covers)?),
        };
        // This comes first, so that a file which is replaced from here on is stale. In the other
        // order one that was replaced just now would be taken for the new one for ever.
        let ring_control = control.filter(|_| ring).as_deref().map(RingControl::new).transpose()?;
        let file = region::open(&path, writable).map_err(|error| errors::os(error, &path))?;
        let size = file.metadata()?.len();
        let len = capacity.unwrap_or_else(|| words::size(size));
        let (map, ring) = if ring {
            let ring = Ring::new(len, shift, ring_control);
            (Mapping::ring(file, len, shift, words::size(ring.len()), writable)?, Some(ring))
        } else {
            (Mapping::new(file, len, writable)?, None)
        };
        Ok(Self(Arc::new(Segment {
            path,
            base,
            first: first.unwrap_or(base),
            shift,
            ring,
            end: end.unwrap_or(LIVE).into(),
            backing: Backing::Mapped(map),
            allocated: size.into(),
            grow_step,
            soft_bytes: soft_bytes.unwrap_or(usize::MAX),
            by_write,
            is_spoiled: false.into(),
            plain: Plain::of(&*frames.0, sides.is_some()),
            alignment: frames.0.alignment().max(1) as u64,
            frames: Arc::clone(&frames.0),
            sides: sides.map(Arc::new),
            holes: OnceLock::new(),
        })))
    }

    /// A segment over bytes that were read, decrypted or decompressed: `at` is where in the file
    /// (or in the plain stream) they begin.
    #[staticmethod]
    #[pyo3(signature = (path, base, shift, frames, bytes, *, at=0, first=None, end=None, extras=None))]
    #[allow(clippy::too_many_arguments)]
    fn over(
        path: PathBuf,
        base: u64,
        shift: usize,
        frames: &PyFrames,
        bytes: Vec<u8>,
        at: usize,
        first: Option<u64>,
        end: Option<u64>,
        extras: Option<PathBuf>,
    ) -> PyResult<Self> {
        let sides = extras
            .map(|folder| SideFiles::new(Some(folder), None, base, 0, false, false))
            .transpose()?;
        let range = first.unwrap_or(base)..end.unwrap_or(LIVE);
        let (place, frames) = ((path, base, shift), Arc::clone(&frames.0));
        let segment = Segment::owned(place, bytes, at, range, frames, sides.map(Arc::new));
        Ok(Self(Arc::new(segment)))
    }

    /// Offset of the first byte.
    #[getter]
    fn base(&self) -> u64 {
        self.0.base
    }

    /// Whether it is the file itself that is read, not bytes made from it.
    #[getter]
    fn is_mapped(&self) -> bool {
        self.0.map().is_some()
    }

    /// First offset after it, none while it is written to.
    #[getter]
    fn end(&self) -> Option<u64> {
        Some(self.0.end()).filter(|end| *end != LIVE)
    }

    /// Whether its file was replaced while it was written to, or as a ring: open it again.
    #[getter]
    fn is_stale(&self) -> bool {
        let is_named = |map: &Mapping| map.file().and_then(region::check_named).is_ok();
        self.0.is_stale() || (self.0.end() == LIVE && !self.0.map().is_none_or(is_named))
    }

    /// No more appends: it ends here.
    fn set_end(&self, end: u64) {
        self.0.end.store(end, Ordering::Release);
    }

    /// Known damage, `[first, last)` offsets each: nobody reads it. Said once, after opening.
    fn set_holes(&self, holes: Vec<(u64, u64)>) {
        let _ = self.0.holes.set(holes);
    }

    /// The file.
    #[getter]
    fn path(&self) -> PathBuf {
        self.0.path.clone()
    }

    /// The byte of the file where `offset` is.
    fn position(&self, offset: u64) -> usize {
        self.0.position(offset)
    }

    /// Mapped bytes `[at, at + len)` as a copy, fewer at the end.
    fn read<'py>(&self, py: Python<'py>, at: usize, len: usize) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self.0.bytes();
        let end = at.saturating_add(len).min(bytes.len());
        memory::bytes_object(py, bytes.get(at..end).unwrap_or_default())
    }

    /// Stores `bytes` at byte `at` of the file (headers, summaries).
    fn store(&self, at: usize, bytes: &[u8]) -> PyResult<()> {
        self.0.ensure(at.saturating_add(bytes.len()))?;
        let stored = self.0.map().and_then(|map| map.store(at, bytes));
        stored.ok_or_else(|| {
            let len = self.0.map().map_or(0, Mapping::len);
            let (found, needed) =
                (format!("a file of {len} bytes"), at.saturating_add(bytes.len()));
            errors::damaged(&self.0.path, len, found, &format!("at least {needed}")).into()
        })
    }

    /// Zeroes the offsets `[first, last)`.
    fn zero(&self, first: u64, last: u64) {
        self.0.zero(first, last);
    }

    /// Zeroes every page from `offset` to the end of the file that is not zero yet; answers how
    /// many bytes that were.
    fn scrub(&self, py: Python<'_>, offset: u64) -> u64 {
        py.detach(|| self.0.scrub(offset))
    }

    /// Syncs the file and what lies beside it.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        Ok(py.detach(|| self.0.sync(false))?)
    }

    /// After an unclean end: what lies beside the segment forgets everything at or above `tail`,
    /// and frames below `vouched` that lost their checksum get it anew.
    #[pyo3(signature = (tail, vouched=0))]
    fn recover_sides(&self, py: Python<'_>, tail: u64, vouched: u64) -> PyResult<()> {
        Ok(py.detach(|| recover_sides(&self.0, tail, vouched))?)
    }

    /// The file of extras and the byte from which on its records do not check, if any.
    fn extras_fault(&self) -> Option<(PathBuf, usize)> {
        self.0.sides()?.extras_fault()
    }
}

fn recover_sides(segment: &Segment, tail: u64, vouched: u64) -> std::io::Result<()> {
    let Some(sides) = segment.sides() else { return Ok(()) };
    sides.forget(tail)?;
    let Some(start) = sides.covered_end(tail) else { return Ok(()) };
    let mut walk = Walk::new(segment, start, tail, Care::Fields);
    while walk.at < vouched
        && let Some((at, Met::Frame)) = walk.next()
    {
        let frame = |offset, size| segment.frame_bytes(offset, size);
        sides.note_checksums(frame, &[walk.view.size], at)?;
    }
    sides.sync(false)
}
