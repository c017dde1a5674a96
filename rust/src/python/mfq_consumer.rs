//! The one consumer of an mfq queue: reads on at `consumer.offset`, which moves by commit.
//!
//! It waits as the original does, spinning first and then looking again at intervals; a producer
//! of ours wakes it from its sleep, other programs do not.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyMemoryView};

use crate::bytes::tags::{Filter, MODERN};
use crate::clock::check_timeout;
use crate::errors;
use crate::formats::mfq::OffsetFile;
use crate::group::settings::WaitTimes;
use crate::read::reader::{Found, Reader};
use crate::segment::publish::Publish;
use crate::segment::publish::PyPublish;
use crate::segment::{PySegment, Segment};
use crate::shared::control::{Control, Shared};
use crate::shared::mutex;
use crate::sys::memory;
use crate::sys::view::{self, View};

/// Between two looks at the tail, in a spin.
const RESTS: u32 = 8;
/// Looks before a thread lets the interpreter go to spin on: about two microseconds.
const FIRST_LOOKS: u32 = 16;
/// Rests before the first look at the heels of a quick producer, at most.
const MOST_RESTS: u32 = 64;

/// The queue as this process has it open. A forked child has another one.
struct Opening {
    control: Arc<Control>,
    publish: Arc<dyn Publish>,
    word: OffsetFile,
    synced: AtomicU64,
}

impl Opening {
    fn is_behind(&self) -> bool {
        let end = self.publish.foreign_end().unwrap_or(0);
        end > self.control.tail() && self.control.lock_word().load(Ordering::Acquire) == 0
    }

    /// Looks `times` for a tail above `limit`, with a rest after each look: a look takes the
    /// word from the producer, which must fetch it back before it can go on. Answers how many looks
    /// were in vain.
    fn watch(&self, limit: u64, times: u32) -> u32 {
        for vain in 0..times {
            if self.control.tail() != limit {
                return vain;
            }
            rest(RESTS);
        }
        times
    }

    /// Until something may be there, or `spin` is over.
    fn spin(&self, spin: Duration) -> bool {
        let (start, limit) = (Instant::now(), self.control.tail());
        loop {
            if self.watch(limit, 64) < 64 || self.is_behind() {
                return true;
            }
            if start.elapsed() >= spin {
                return false;
            }
        }
    }

    /// Spins for `spin`, at most `longest` without a look at Python's signals.
    fn spin_for(&self, py: Python<'_>, spin: Duration, longest: Duration) -> PyResult<bool> {
        let start = Instant::now();
        while start.elapsed() < spin {
            let left = spin.saturating_sub(start.elapsed()).min(longest);
            if py.detach(|| self.spin(left)) {
                return Ok(true);
            }
            py.check_signals()?;
        }
        Ok(false)
    }

    fn sleep(&self, py: Python<'_>, nap: Duration) -> PyResult<()> {
        let seen = self.control.event_word().load(Ordering::SeqCst);
        let offset = self.word.get();
        let ready = || self.control.tail() > offset || self.is_behind();
        py.detach(|| self.control.wait(seen, Some(nap), ready));
        py.check_signals()
    }

    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        let offset = self.word.get();
        if self.synced.load(Ordering::Relaxed) != offset {
            py.detach(|| self.word.sync())?;
            self.synced.store(offset, Ordering::Relaxed);
            if self.word.get() != offset {
                self.control.announce_unsynced(); // Committed meanwhile, when nobody had to be told.
            }
        }
        Ok(())
    }
}

fn rest(times: u32) {
    for _ in 0..times {
        std::hint::spin_loop();
    }
}

struct ConsumerState {
    opening: Arc<Opening>,
    reader: Reader,
    /// Rests before a look at the tail: more while the producer is always further on by then.
    rests: u32,
    /// Where what was handed out and not committed begins, and where the next message does.
    pending: Option<(u64, u64)>,
    has_begun: bool,
    lender: Option<Py<View>>,
    /// What was handed out and ends with the commit.
    lent: Option<Py<PyMemoryView>>,
}

impl ConsumerState {
    /// Everything known was handed out: looks for more, though not at every message of a quick
    /// producer. Both would wait for the word that each takes from the other.
    fn watch(&mut self, offset: u64) {
        rest(self.rests);
        self.rests = match self.opening.watch(offset, FIRST_LOOKS) {
            0 => (self.rests + RESTS).min(MOST_RESTS),
            FIRST_LOOKS => 0,
            _ => self.rests,
        };
    }

    /// Ends a view that was handed out. Someone may still look at a part of it: its bytes never
    /// change, so that does no harm.
    #[inline]
    fn end_view(&mut self, py: Python<'_>) -> PyResult<()> {
        let Some(view) = self.lent.take() else { return Ok(()) };
        if view::is_last(&view) {
            return Ok(()); // Nobody else has it any more.
        }
        match view.bind(py).call_method0(intern!(py, "release")) {
            Err(error) if !error.is_instance_of::<PyBufferError>(py) => Err(error),
            _ => Ok(()),
        }
    }
}

/// What a look at the queue gave.
enum Look {
    /// A message of this many bytes is in `Reader::view`.
    Message(u64),
    Nothing,
    /// Python was asked to open a segment or to follow: look again.
    Again,
}

/// The form in which the caller wants a message.
enum As<'a, 'py> {
    View,
    Bytes,
    Object(&'a Bound<'py, PyAny>),
}

/// The consumer.
#[pyclass(frozen, module = "penstock._core")]
pub struct MfqConsumer {
    host: Py<PyAny>,
    state: Mutex<ConsumerState>,
    spin: Duration,
    retry: Duration,
    longest_spin: Duration,
    longest_sleep: Duration,
    is_always: bool,
}

impl MfqConsumer {
    fn enter(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, ConsumerState>> {
        let state = mutex::lock(py, &self.state);
        if !state.opening.control.life().is_over() {
            return Ok(state);
        }
        drop(state);
        self.renew(py)
    }

    /// In a forked child: opens anew. An error once the queue was closed.
    #[cold]
    fn renew(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, ConsumerState>> {
        let opening = Arc::new(open(self.host.bind(py))?);
        let mut state = mutex::lock(py, &self.state);
        state.reader = Reader::new(Filter::new("", MODERN));
        state.opening = opening;
        (state.pending, state.lender, state.lent) = (None, None, None);
        Ok(state)
    }

    /// Looks at `offset`.
    fn look<'a>(
        &'a self,
        py: Python<'_>,
        mut state: MutexGuard<'a, ConsumerState>,
        offset: u64,
        is_patient: bool,
    ) -> PyResult<(MutexGuard<'a, ConsumerState>, Look)> {
        if let Some(next) = state.reader.next_known(offset) {
            return Ok((state, Look::Message(next)));
        }
        let opening = Arc::clone(&state.opening);
        let limit = opening.control.tail();
        let look = match state.reader.find_in(&opening.control, offset, || limit) {
            Found::Message { next, .. } => return Ok((state, Look::Message(next))),
            Found::Nothing => {
                drop(state);
                let end = opening.publish.foreign_end().unwrap_or(0);
                if opening.is_behind() || (is_patient && end > opening.control.tail()) {
                    self.host.call_method0(py, intern!(py, "follow"))?;
                }
                if opening.control.tail() == limit { Look::Nothing } else { Look::Again }
            }
            Found::NeedSegment => {
                drop(state);
                let segment = self.host.call_method1(py, intern!(py, "segment_at"), (offset,))?;
                let segment = Arc::clone(&segment.bind(py).cast::<PySegment>()?.get().0);
                if segment.first() > offset {
                    opening.word.set(segment.first()); // What was there is gone: retention.
                }
                let before = mutex::lock(py, &self.state).reader.turn_to(&segment, offset);
                py.detach(move || drop(before));
                Look::Again
            }
            Found::Hole { next } => {
                opening.word.set(next);
                drop(state);
                Look::Again
            }
            Found::Damaged { fault, .. } => {
                return Err(match &state.reader.segment {
                    Some(segment) => segment.corrupt(py, &fault),
                    None => errors::plain(py, "ClosedError"),
                });
            }
        };
        Ok((mutex::lock(py, &self.state), look))
    }

    /// Waits until the next message is there: then it is in the reader of the state, which is
    /// given with the offset and the next one.
    #[inline]
    fn find(
        &self,
        py: Python<'_>,
        timeout: Option<f64>,
    ) -> PyResult<(MutexGuard<'_, ConsumerState>, u64, u64)> {
        check_timeout(timeout)?;
        let (mut since, mut has_watched) = (None, false);
        loop {
            let mut state = self.enter(py)?;
            state.has_begun = true;
            let offset = state.opening.word.get();
            // Before anything else, and before the producer's own file: it is most often close.
            if !has_watched && !self.spin.is_zero() && !state.reader.knows(offset) {
                has_watched = true;
                state.watch(offset);
            }
            let (state, look) = self.look(py, state, offset, since.is_some())?;
            match look {
                Look::Message(next) => return Ok((state, offset, next)),
                Look::Again => continue,
                Look::Nothing => {}
            }
            let opening = Arc::clone(&state.opening);
            drop(state);
            self.wait(py, &opening, *since.get_or_insert_with(Instant::now), timeout)?;
        }
    }

    #[cold]
    fn wait(
        &self,
        py: Python<'_>,
        opening: &Opening,
        since: Instant,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let limit = timeout.map_or(Ok(Duration::MAX), seconds)?;
        let left = || limit.saturating_sub(since.elapsed());
        if left().is_zero() {
            return Err(errors::plain(py, "Empty"));
        }
        if opening.spin_for(py, self.spin.min(left()), self.longest_spin)? {
            return Ok(());
        }
        opening.sleep(py, self.retry.min(left()).min(self.longest_sleep))
    }
}

fn seconds(value: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(value)
        .map_err(|_| PyValueError::new_err(format!("{value} is no time span")))
}

/// Another program consumes: to go on from here would set it back, or take what it has not seen.
#[cold]
fn moved(py: Python<'_>, first: u64, now: u64) -> PyErr {
    let why = format!(
        "consumer.offset was moved from {first} to {now} after this message was consumed: \
         a queue of format mfq has one consumer; others use a group each (Queue.group)"
    );
    errors::error(py, "CommitError", (why,))
}

/// Asks `host` for the queue as it is open now.
fn open(host: &Bound<'_, PyAny>) -> PyResult<Opening> {
    type Parts<'py> = (Bound<'py, Shared>, Bound<'py, PyPublish>, PathBuf);
    let (shared, publish, path): Parts<'_> = host.call_method0("opening")?.extract()?;
    let word = OffsetFile::open(&path)?;
    Ok(Opening {
        control: Arc::clone(&shared.get().control),
        publish: Arc::clone(&publish.get().0),
        synced: word.get().into(),
        word,
    })
}

#[pymethods]
impl MfqConsumer {
    /// `host` has `opening()`, which gives the shared words, the end and the path of
    /// `consumer.offset`, `segment_at(offset)` and `follow()`. An empty queue is looked at for
    /// `spin_s`, then every `retry_s`; `wait_times` says how often signals are looked at.
    #[new]
    #[pyo3(signature = (host, *, spin_s, retry_s, wait_times, always))]
    fn new(
        host: &Bound<'_, PyAny>,
        spin_s: f64,
        retry_s: f64,
        wait_times: WaitTimes,
        always: bool,
    ) -> PyResult<Self> {
        let state = ConsumerState {
            opening: Arc::new(open(host)?),
            reader: Reader::new(Filter::new("", MODERN)),
            rests: 0,
            pending: None,
            has_begun: false,
            lender: None,
            lent: None,
        };
        Ok(Self {
            host: host.clone().unbind(),
            state: Mutex::new(state),
            spin: seconds(spin_s)?,
            retry: seconds(retry_s)?,
            longest_spin: Duration::from_nanos(wait_times.longest_spin_ns),
            longest_sleep: Duration::from_nanos(wait_times.longest_sleep_ns.unsigned_abs()),
            is_always: always,
        })
    }

    /// The next offset to consume: moved by `commit`, or by hand before consuming.
    #[getter]
    fn next_offset(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.enter(py)?.opening.word.get())
    }

    #[setter]
    fn set_next_offset(&self, py: Python<'_>, offset: u64) -> PyResult<()> {
        let state = self.enter(py)?;
        if state.has_begun {
            let why = "the offset can be set only before consuming begins";
            return Err(errors::error(py, "CommitError", (why,)));
        }
        state.opening.word.set(offset);
        Ok(())
    }

    /// The next message, not copied: a view of the mapped file that ends with `commit`, and the
    /// same message again until then. With `bytes` a copy that is yours, with a deserializer the
    /// object it makes.
    ///
    /// Waits for one: spins first, then looks again at intervals. `Empty` after `timeout`
    /// seconds; without one it waits for ever.
    #[pyo3(signature = (deserializer=None, *, timeout=None))]
    fn consume<'py>(
        &self,
        py: Python<'py>,
        deserializer: Option<&Bound<'py, PyAny>>,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let kind = match deserializer {
            None => As::View,
            Some(given) if given.is(py.get_type::<PyBytes>()) => As::Bytes,
            Some(given) => As::Object(given),
        };
        let (mut state, offset, next) = self.find(py, timeout)?;
        state.pending = Some((offset, next));
        let body = state.reader.view.body;
        let (skip, len) = (body.at as usize, body.len as usize);
        let Some(segment) = state.reader.segment.clone() else {
            return Err(errors::plain(py, "ClosedError"));
        };
        if let As::Bytes = kind {
            let frame = segment.frame_bytes(offset, skip.saturating_add(len));
            return Ok(memory::bytes_object(py, frame.get(skip..).unwrap_or_default())?.into_any());
        }
        let known = state.lender.as_ref().filter(|lender| lender.get().is_of(&segment));
        let lender = match known {
            Some(lender) => lender.clone_ref(py),
            None => {
                let lender: Arc<Segment> = Arc::clone(&segment);
                Py::new(py, View::new(lender))?
            }
        };
        if segment.is_cut() {
            return Err(errors::vanished(py, segment.path()));
        }
        let view = View::lend(lender.bind(py), offset, skip, len)?;
        state.lender = Some(lender);
        if let As::Object(deserializer) = kind {
            drop(state);
            let made = deserializer.call_method1(intern!(py, "deserialize"), (&view,));
            let ended = view.call_method0(intern!(py, "release"));
            return made.and_then(|made| ended.map(|_| made));
        }
        state.end_view(py)?;
        state.lent = Some(view.clone().unbind());
        Ok(view.into_any())
    }

    /// Up to `limit` messages as bytes that are yours, in order, as soon as there is one: the same
    /// ones again until `commit`, which is for all of them.
    #[pyo3(signature = (limit, *, timeout=None))]
    fn consume_many<'py>(
        &self,
        py: Python<'py>,
        limit: usize,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyList>> {
        if limit == 0 {
            return Err(PyValueError::new_err("a limit is 1 or more"));
        }
        let (mut state, first, mut next) = self.find(py, timeout)?;
        let mut offset = first;
        let found = PyList::empty(py);
        loop {
            let body = state.reader.view.body;
            let (skip, len) = (body.at as usize, body.len as usize);
            let segment = state.reader.segment.as_ref();
            let frame = segment.map_or(&[][..], |s| s.frame_bytes(offset, skip + len));
            found.append(memory::bytes_object(py, frame.get(skip..).unwrap_or_default())?)?;
            state.pending = Some((first, next));
            if found.len() >= limit {
                return Ok(found);
            }
            offset = next;
            match state.reader.next_known(offset) {
                Some(after) => next = after,
                // The next segment, the end, damage: that is for the next call.
                None => return Ok(found),
            }
        }
    }

    /// What was consumed is done. An error when there is nothing.
    fn commit(&self, py: Python<'_>) -> PyResult<()> {
        let mut state = self.enter(py)?;
        let Some((first, next)) = state.pending.take() else {
            let why = "there is no message to commit: consume one first";
            return Err(errors::error(py, "CommitError", (why,)));
        };
        state.end_view(py)?;
        let opening = &state.opening;
        let before = opening.word.get();
        if before != first {
            return Err(moved(py, first, before));
        }
        opening.word.set(next);
        if self.is_always {
            let opening = Arc::clone(opening);
            drop(state);
            return opening.sync(py);
        }
        if opening.synced.load(Ordering::Relaxed) == before {
            opening.control.announce_unsynced();
        }
        Ok(())
    }

    /// Returns when the progress is on the disk.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        let opening = Arc::clone(&self.enter(py)?.opening);
        opening.sync(py)
    }

    /// Ends a view that was handed out.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        mutex::lock(py, &self.state).end_view(py)
    }
}
