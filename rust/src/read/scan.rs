//! Reading a range of a queue without taking anything: as messages, or as Arrow batches.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use pyo3::prelude::*;

use crate::bytes::tags::{self, Filter};
use crate::errors;
use crate::formats::frame::{Fault, FrameView, Step};
use crate::message::Message;
use crate::read::spot::Spot;
use crate::segment::{LIVE, PySegment, Segment};
use crate::shared::control::{Control, Shared};
use crate::shared::gate;
use crate::shared::vain::InVain;

/// One message in a range, in the segment where the scan stands.
#[derive(Default)]
pub struct Row {
    /// Its offset.
    pub offset: u64,
    /// Its frame's offset.
    pub frame: u64,
    /// What was found.
    pub view: FrameView,
}

impl Row {
    /// The bytes that the view's spans are into.
    #[inline]
    pub fn bytes<'a>(&'a self, segment: &'a Segment) -> &'a [u8] {
        match &self.view.owned {
            Some(owned) => owned,
            None => segment.frame_bytes(self.frame, self.view.size),
        }
    }
}

/// Where a scan is.
pub struct Place {
    start: u64,
    at: u64,
    end: u64,
    filter: Filter,
    /// The segment of the last row.
    pub segment: Option<Arc<Segment>>,
    /// Messages of a sealed frame that were not given out yet.
    pending: std::vec::IntoIter<(u64, u64, FrameView)>,
    pub(crate) is_tolerant: bool,
    in_vain: InVain,
    faults: Vec<(std::path::PathBuf, usize, String, String, u64)>,
}

/// Why `next` has no row.
pub enum Halt {
    /// The range is through.
    End,
    /// Python must open the segment of this offset.
    NeedSegment(u64),
    /// Damage; the scan stands behind it.
    Damaged(Arc<Segment>, Fault),
}

impl Place {
    /// Puts the next message of the range into `row`.
    #[inline]
    pub fn next(&mut self, row: &mut Row) -> Result<(), Halt> {
        loop {
            if let Some((offset, frame, view)) = self.pending.next() {
                *row = Row { offset, frame, view };
                if offset >= self.start && offset < self.end && self.passes(row) {
                    return Ok(());
                }
                continue;
            }
            if self.at >= self.end {
                return Err(Halt::End);
            }
            let Some(segment) = self
                .segment
                .as_ref()
                .filter(|s| self.at >= s.first() && self.at < s.end() && !s.is_stale())
            else {
                let first = self.segment.as_ref().map_or(0, |segment| segment.first());
                if first > self.at {
                    self.at = first;
                    continue;
                }
                return Err(Halt::NeedSegment(self.at));
            };
            let limit = segment.end().min(self.limit(segment));
            (row.offset, row.frame) = (self.at, self.at);
            if !segment.find_plain(self.at, limit, &mut row.view) {
                let step = segment.step(self.at, limit, true);
                if self.at < segment.first() {
                    continue; // A ring's head went past it while it was read.
                }
                match step {
                    Step::Frame(view) if !view.sealed => row.view = view,
                    other => {
                        let segment = Arc::clone(segment);
                        self.look_closely(&segment, limit, other)?;
                        continue;
                    }
                }
            }
            self.at += row.view.size as u64;
            if self.passes(row) {
                return Ok(());
            }
        }
    }

    /// Anything but a plain frame.
    fn look_closely(&mut self, segment: &Arc<Segment>, limit: u64, step: Step) -> Result<(), Halt> {
        match step {
            Step::Frame(view) => self.open_sealed(segment, limit, &view),
            Step::Hole(next) => {
                self.at = next;
                Ok(())
            }
            other => self.get_past(segment, limit, other),
        }
    }

    fn limit(&self, segment: &Segment) -> u64 {
        // A sealed frame may begin before the end and hold messages behind it.
        if segment.end() == LIVE { self.end.max(self.at) } else { segment.end() }
    }

    #[inline]
    fn passes(&self, row: &Row) -> bool {
        self.filter.is_open()
            || self
                .segment
                .as_ref()
                .is_some_and(|segment| self.filter.matches(row.view.tag.of(row.bytes(segment))))
    }

    /// Bytes of frames that are left at most.
    pub fn left(&self) -> usize {
        crate::bytes::words::size(self.end.saturating_sub(self.at))
    }

    fn open_sealed(
        &mut self,
        segment: &Arc<Segment>,
        limit: u64,
        view: &FrameView,
    ) -> Result<(), Halt> {
        let frame = self.at;
        let opened = segment.unseal(frame, limit, view);
        if opened.as_ref().err().is_none_or(|fault| !fault.is_ours) {
            self.at = frame + view.size as u64;
        }
        match opened {
            Ok(inner) => {
                let rows: Vec<_> =
                    (frame..).zip(inner).map(|(offset, one)| (offset, frame, one)).collect();
                self.pending = rows.into_iter();
                Ok(())
            }
            Err(fault) => self.report(segment, fault, view.size as u64),
        }
    }

    fn get_past(&mut self, segment: &Arc<Segment>, limit: u64, step: Step) -> Result<(), Halt> {
        if let Some((frame, view)) = segment.frame_around(self.at, limit) {
            self.at = frame;
            return self.open_sealed(segment, limit, &view);
        }
        let position = segment.position(self.at);
        let fault = match step {
            Step::CutShort(fault) | Step::Bad(fault) => fault,
            _ => Fault::new(position, "an end", "a frame: the queue goes on behind it"),
        };
        let next = segment.resync(self.at, limit).unwrap_or(limit);
        let skipped = next - self.at;
        self.at = next;
        self.report(segment, fault, skipped)
    }

    fn report(&mut self, segment: &Arc<Segment>, fault: Fault, skipped: u64) -> Result<(), Halt> {
        if !self.is_tolerant || fault.is_ours {
            return Err(Halt::Damaged(Arc::clone(segment), fault));
        }
        self.faults.push((
            segment.path().to_path_buf(),
            fault.at,
            fault.found,
            fault.expected,
            skipped,
        ));
        Ok(())
    }
}

/// A range of a queue, read in order.
#[pyclass(frozen, module = "penstock._core")]
pub struct Scan {
    /// Where it is.
    pub place: Mutex<Place>,
    host: Py<PyAny>,
    _control: Option<Arc<Control>>,
}

impl Scan {
    /// Where it is, locked.
    pub fn lock<'a>(&'a self, py: Python<'_>) -> MutexGuard<'a, Place> {
        gate::enter(py, &self.place)
    }

    /// Deals with a halt: true means "go on".
    pub fn resume(&self, py: Python<'_>, halt: Halt) -> PyResult<bool> {
        match halt {
            Halt::End => Ok(false),
            Halt::Damaged(segment, fault) => Err(errors::corrupt(py, &segment, &fault)),
            Halt::NeedSegment(offset) => {
                let segment = self.host.call_method1(py, "segment_at", (offset,))?;
                let segment = segment.bind(py).cast::<PySegment>()?.get();
                let mut place = self.lock(py);
                place.segment = Some(Arc::clone(&segment.0));
                let block = self._control.as_ref().map(|control| control.file_path());
                let block = block.unwrap_or_else(|| segment.0.path().to_path_buf());
                place.in_vain.again(py, &block, offset).map(|()| true)
            }
        }
    }
}

impl Scan {
    /// The file of the segment it is in, if that was cut short.
    pub fn cut(&self, py: Python<'_>) -> Option<PathBuf> {
        let place = self.lock(py);
        let segment = place.segment.as_ref().filter(|segment| segment.is_cut())?;
        Some(segment.path().to_path_buf())
    }
}

#[pymethods]
impl Scan {
    /// Reads `[start, end)`; `host` has `segment_at(offset)`. With `tolerant`, damage is noted in
    /// `faults` and passed over instead of raised.
    #[new]
    #[pyo3(signature = (host, start, end, *, shared=None, tags="", dialect="modern", tolerant=false))]
    fn new(
        host: Py<PyAny>,
        start: u64,
        end: u64,
        shared: Option<&Shared>,
        tags: &str,
        dialect: &str,
        tolerant: bool,
    ) -> PyResult<Self> {
        let unknown = || {
            pyo3::exceptions::PyValueError::new_err(format!("no tag dialect is called {dialect}"))
        };
        let filter = Filter::new(tags, tags::dialect(dialect).ok_or_else(unknown)?);
        let place = Place {
            start,
            at: start,
            end,
            filter,
            segment: None,
            pending: Vec::new().into_iter(),
            is_tolerant: tolerant,
            in_vain: InVain::default(),
            faults: Vec::new(),
        };
        Ok(Self {
            place: Mutex::new(place),
            host,
            _control: shared.map(|shared| Arc::clone(&shared.control)),
        })
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Message>> {
        loop {
            let mut place = self.lock(py);
            let mut row = Row::default();
            let halt = match place.next(&mut row) {
                Ok(()) => {
                    let Some(segment) = &place.segment else { continue };
                    if segment.is_cut() {
                        return Err(errors::vanished(py, segment.path()));
                    }
                    let spot = Spot::found(segment, row.frame, &mut row.view);
                    return Ok(Some(Message::found(row.offset, spot)));
                }
                Err(halt) => halt,
            };
            if let Some(segment) = place.segment.as_ref().filter(|segment| segment.is_cut()) {
                return Err(errors::vanished(py, segment.path()));
            }
            drop(place);
            if !self.resume(py, halt)? {
                return Ok(None);
            }
        }
    }

    /// Up to `count` messages.
    fn take(&self, py: Python<'_>, count: usize) -> PyResult<Vec<Message>> {
        let mut messages = Vec::new();
        while messages.len() < count {
            match self.__next__(py)? {
                Some(message) => messages.push(message),
                None => break,
            }
        }
        Ok(messages)
    }

    /// Damage so far: `(path, byte, found, expected, bytes passed over)`.
    #[getter]
    fn faults(&self, py: Python<'_>) -> Vec<(std::path::PathBuf, usize, String, String, u64)> {
        self.lock(py).faults.clone()
    }

    /// Where the scan stands.
    #[getter]
    fn at(&self, py: Python<'_>) -> u64 {
        self.lock(py).at
    }
}
