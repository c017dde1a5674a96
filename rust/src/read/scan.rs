//! Reading a range of a queue without taking anything: as messages, or as Arrow batches.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use pyo3::prelude::*;

use crate::bytes::tags::{self, Filter};
use crate::errors;
use crate::message::Message;
use crate::read::reader::{Found, Reader};
use crate::segment::frame::{Fault, FrameView};
use crate::segment::message_bytes::MessageBytes;
use crate::segment::{Bare, LIVE, PySegment, Segment, Taken};
use crate::shared::control::{Control, Shared};
use crate::shared::mutex;
use crate::shared::retry_limit::RetryLimit;

/// Where a scan is.
pub struct Scanner {
    at: u64,
    end: u64,
    /// Holds the last message and its segment.
    pub reader: Reader,
    is_tolerant: bool,
    /// The segment is the one of an earlier scan: whatever is not in order there is looked at in
    /// the one that Python names.
    is_recent: bool,
    in_vain: RetryLimit,
    faults: Vec<(PathBuf, usize, String, String, u64)>,
}

/// Where bodies go, one by one. No closure: each that hands bodies on to another would have the
/// innermost loop look up where the other's things are, at every message.
pub trait Bodies {
    /// Takes a body, or says that it needs a closer look.
    fn take(&mut self, body: &[u8]) -> Taken;

    /// The same for the body of a frame that has nothing else.
    fn take_bare(&mut self, bare: &Bare<'_>) -> Taken;
}

/// Why `next` has no row.
pub enum Halt {
    /// The range was read to its end.
    End,
    /// Python must open the segment of this offset.
    NeedSegment(u64),
    /// Damage: the scan goes on behind it.
    Damaged(Arc<Segment>, Fault),
}

impl Scanner {
    /// Reads the next message of the range into the reader; returns its offset and its frame's.
    #[inline]
    pub fn next(&mut self) -> Result<(u64, u64), Halt> {
        while self.at < self.end {
            let (at, end) = (self.at, self.end);
            // An opaque frame may begin before the end and hold messages behind it.
            let is_live = |segment: &Arc<Segment>| segment.end() == LIVE;
            let most = self.reader.segment.as_ref().is_none_or(is_live);
            match self.reader.find(at, || if most { end } else { LIVE }, |_| true) {
                Found::Message { frame, next } => {
                    self.at = next;
                    if self.reader.wants(frame) {
                        return Ok((at, frame));
                    }
                }
                Found::Hole { .. } | Found::Damaged { .. } if self.is_recent => {
                    return Err(Halt::NeedSegment(at));
                }
                Found::Hole { next } => self.at = next,
                Found::Damaged { fault, next } => {
                    self.at = next;
                    self.report(*fault, next.saturating_sub(at))?;
                }
                Found::NeedSegment | Found::Nothing => match &self.reader.segment {
                    Some(segment) if segment.first() > at => self.at = segment.first(),
                    _ => return Err(Halt::NeedSegment(at)),
                },
            }
        }
        Err(Halt::End)
    }

    /// What `next` would say while no segment is open yet.
    pub fn unopened(&self) -> Option<Halt> {
        let is_unopened = self.reader.segment.is_none() && self.at < self.end;
        is_unopened.then_some(Halt::NeedSegment(self.at))
    }

    /// Hands the messages that follow to `take`, until it has enough or one needs a closer look.
    #[inline]
    pub fn each_known(
        &mut self,
        take: impl FnMut(&Arc<Segment>, u64, &mut FrameView, &[u8]) -> Taken,
    ) {
        self.at = self.reader.each_known(self.at, self.end, take);
    }

    /// The bodies of those.
    #[inline]
    pub fn each_body(&mut self, bodies: &mut impl Bodies) {
        let mut is_last = false;
        self.at = self.reader.each_bare(self.at, self.end, |_, _, bare| {
            let taken = bodies.take_bare(&bare);
            if let Taken::Last = taken {
                is_last = true;
            }
            taken
        });
        if !is_last {
            self.each_known(|_, _, view, frame| bodies.take(view.body.of(frame)));
        }
    }

    /// How many bytes of frames are left at most.
    pub fn left(&self) -> usize {
        crate::bytes::words::size(self.end.saturating_sub(self.at))
    }

    fn report(&mut self, fault: Fault, skipped: u64) -> Result<(), Halt> {
        let Some(segment) = self.reader.segment.clone() else { return Ok(()) };
        if !self.is_tolerant || fault.is_ours {
            return Err(Halt::Damaged(segment, fault));
        }
        let path = segment.path().to_path_buf();
        self.faults.push((path, fault.at, fault.found, fault.expected, skipped));
        Ok(())
    }
}

/// The segment in which the last scan of an opening began, as long as somebody else has it open:
/// where it holds what the next scan begins with, Python need not find it again.
#[pyclass(frozen, module = "penstock._core")]
#[derive(Default)]
pub struct Recent(Mutex<Weak<Segment>>);

impl Recent {
    /// It, if `offset` is in it for certain: below its end, or in the one that is appended to now.
    /// Rings move on, and what lies beside a segment may be set right: they are found anew.
    fn holding(&self, offset: u64, control: &Control) -> Option<Arc<Segment>> {
        let segment = self.0.lock().ok()?.upgrade()?;
        let is_in = match segment.end() {
            LIVE => segment.base() == control.segment_base(),
            end => offset < end,
        };
        (is_in && offset >= segment.first() && segment.is_simple()).then_some(segment)
    }

    fn note(&self, segment: &Arc<Segment>) {
        if let Ok(mut recent) = self.0.lock() {
            *recent = Arc::downgrade(segment);
        }
    }
}

#[pymethods]
impl Recent {
    #[new]
    fn new() -> Self {
        Self::default()
    }
}

/// A range of a queue, read in order.
#[pyclass(frozen, module = "penstock._core")]
pub struct Scan {
    /// Where it is.
    pub place: Mutex<Scanner>,
    host: Py<PyAny>,
    _control: Option<Arc<Control>>,
    recent: Option<Py<Recent>>,
}

impl Scan {
    /// Where it is, locked.
    pub fn lock<'a>(&'a self, py: Python<'_>) -> MutexGuard<'a, Scanner> {
        mutex::lock(py, &self.place)
    }

    /// Deals with a halt; true: the scan may go on.
    pub fn resume(&self, py: Python<'_>, halt: Halt) -> PyResult<bool> {
        match halt {
            Halt::End => Ok(false),
            Halt::Damaged(segment, fault) => Err(segment.corrupt(py, &fault)),
            Halt::NeedSegment(offset) => {
                let segment = self.host.call_method1(py, "segment_at", (offset,))?;
                let segment = segment.bind(py).cast::<PySegment>()?.get();
                let mut place = self.lock(py);
                drop(place.reader.turn_to(&segment.0, offset));
                place.is_recent = false;
                if let Some(recent) = &self.recent {
                    recent.get().note(&segment.0);
                }
                let block = || match &self._control {
                    Some(control) => control.file_path(),
                    None => segment.0.path().to_path_buf(),
                };
                place.in_vain.again(py, block, offset).map(|()| true)
            }
        }
    }
}

impl Scan {
    /// The file of the segment it is in, if that was cut short.
    pub fn cut(&self, py: Python<'_>) -> Option<PathBuf> {
        let place = self.lock(py);
        let segment = place.reader.segment.as_ref().filter(|segment| segment.is_cut())?;
        Some(segment.path().to_path_buf())
    }
}

#[pymethods]
impl Scan {
    /// Reads `[start, end)`; `host` has `segment_at(offset)`. With `tolerant`, damage is noted in
    /// `faults` and passed over instead of raised. With `recent` it begins where the last scan did
    /// that had the same, if that is right.
    #[new]
    #[pyo3(signature = (host, start, end, shared=None, tags="", dialect="modern", tolerant=false, recent=None))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        host: Py<PyAny>,
        start: u64,
        end: u64,
        shared: Option<&Shared>,
        tags: &str,
        dialect: &str,
        tolerant: bool,
        recent: Option<Py<Recent>>,
    ) -> PyResult<Self> {
        let unknown = || {
            pyo3::exceptions::PyValueError::new_err(format!("no tag dialect is called {dialect}"))
        };
        let filter = Filter::new(tags, tags::dialect(dialect).ok_or_else(unknown)?);
        let mut place = Scanner {
            at: start,
            end,
            reader: Reader::new(filter),
            is_tolerant: tolerant,
            is_recent: false,
            in_vain: RetryLimit::default(),
            faults: Vec::new(),
        };
        let recent = recent.filter(|_| !tolerant);
        if let (Some(recent), Some(shared)) = (&recent, shared)
            && let Some(segment) = recent.get().holding(start, &shared.control)
        {
            place.is_recent = true;
            drop(place.reader.turn_to(&segment, start));
        }
        Ok(Self {
            place: Mutex::new(place),
            host,
            recent,
            _control: shared.map(|shared| Arc::clone(&shared.control)),
        })
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, Message>>> {
        loop {
            let mut place = self.lock(py);
            let found = place.next();
            let Scanner { reader: Reader { segment, view, .. }, .. } = &mut *place;
            if let Some(segment) = segment.as_ref().filter(|segment| segment.is_cut()) {
                return Err(errors::vanished(py, segment.path()));
            }
            let halt = match (found, segment) {
                (Ok((offset, frame)), Some(segment)) => {
                    let content = MessageBytes::found(Arc::clone(segment), frame, view);
                    // A new object may set off the garbage collector, which may run any code.
                    drop(place);
                    return Message::found(offset, content).into_object(py).map(Some);
                }
                (Ok(_), None) => Halt::End,
                (Err(halt), _) => halt,
            };
            drop(place);
            if !self.resume(py, halt)? {
                return Ok(None);
            }
        }
    }

    /// Up to `count` messages.
    fn take<'py>(&self, py: Python<'py>, count: usize) -> PyResult<Vec<Bound<'py, Message>>> {
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
    fn faults(&self, py: Python<'_>) -> Vec<(PathBuf, usize, String, String, u64)> {
        self.lock(py).faults.clone()
    }

    /// Where the scan stands.
    #[getter]
    fn at(&self, py: Python<'_>) -> u64 {
        self.lock(py).at
    }
}
