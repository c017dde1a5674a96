//! The one consumer of an mfq queue: reads on at `consumer.offset`, which moves by commit.
//!
//! It waits as the original does, spinning first and then looking again at intervals; a producer
//! of ours wakes it from its sleep, other programs do not.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::types::PyMemoryView;

use super::mfq::OffsetFile;
use crate::control::{Control, Shared};
use crate::errors;
use crate::frame::Publish;
use crate::gate;
use crate::group::reader::{Found, Reader};
use crate::segment::{PyPublish, PySegment, Segment};
use crate::sys::view::View;
use crate::tags::{Filter, MODERN};

/// Spins without a look at Python's signals, at most.
const PATIENCE: Duration = Duration::from_millis(10);
/// Sleeps so long at most: a signal that comes just before does not end a sleep.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// A message that was handed out and not committed.
struct Pending {
    next: u64,
}

struct State {
    reader: Reader,
    pending: Option<Pending>,
}

/// What a look at the queue gave.
enum Look {
    Message(Arc<Segment>, u64, crate::frame::FrameView),
    Nothing,
    /// Python was asked to open a segment or to follow: look again.
    Again,
}

/// The consumer.
#[pyclass(frozen, module = "penstock._core")]
pub struct MfqConsumer {
    control: Arc<Control>,
    publish: Arc<dyn Publish>,
    word: OffsetFile,
    host: Py<PyAny>,
    state: Mutex<State>,
    synced: AtomicU64,
    is_always: bool,
}

impl MfqConsumer {
    fn is_behind(&self) -> bool {
        let end = self.publish.foreign_end().unwrap_or(0);
        end > self.control.tail() && self.control.lock_word().load(Ordering::Acquire) == 0
    }

    fn look(&self, py: Python<'_>, is_patient: bool) -> PyResult<Look> {
        let limit = self.control.tail();
        let offset = self.word.get();
        let mut state = gate::enter(py, &self.state);
        match state.reader.find(&self.control, offset, limit) {
            Found::Message { next, .. } => {
                state.pending = Some(Pending { next });
                let view = std::mem::take(&mut state.reader.view);
                let Some(segment) = state.reader.segment.clone() else { return Ok(Look::Nothing) };
                Ok(Look::Message(segment, offset, view))
            }
            Found::Nothing => {
                drop(state);
                let end = self.publish.foreign_end().unwrap_or(0);
                if self.is_behind() || (is_patient && end > self.control.tail()) {
                    self.host.call_method0(py, "follow")?;
                    let is_news = self.control.tail() != limit;
                    return Ok(if is_news { Look::Again } else { Look::Nothing });
                }
                Ok(Look::Nothing)
            }
            Found::NeedSegment => {
                drop(state);
                let segment = self.host.call_method1(py, "segment_at", (offset,))?;
                let segment = Arc::clone(&segment.bind(py).cast::<PySegment>()?.get().0);
                if segment.first() > offset {
                    self.word.set(segment.first()); // What was there is gone: retention.
                }
                gate::enter(py, &self.state).reader.segment = Some(segment);
                Ok(Look::Again)
            }
            Found::Hole { next } => {
                self.word.set(next);
                Ok(Look::Again)
            }
            Found::Damaged { fault, .. } => Err(match &state.reader.segment {
                Some(segment) => errors::corrupt(py, segment, &fault),
                None => errors::plain(py, "ClosedError"),
            }),
        }
    }

    /// Until something may be there, `spin` is over, or it is time to look at signals.
    fn spin(&self, spin: Duration) -> bool {
        let (start, limit) = (Instant::now(), self.control.tail());
        let spin = spin.min(PATIENCE);
        loop {
            for _ in 0..64 {
                if self.control.tail() != limit || self.is_behind() {
                    return true;
                }
                std::hint::spin_loop();
            }
            if start.elapsed() >= spin {
                return false;
            }
        }
    }

    fn spin_for(&self, py: Python<'_>, spin: Duration) -> PyResult<bool> {
        let start = Instant::now();
        while start.elapsed() < spin {
            let left = spin.saturating_sub(start.elapsed());
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
        py.detach(|| self.control.wait(seen, Some(nap.min(LONGEST_SLEEP)), ready));
        py.check_signals()
    }
}

fn seconds(value: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(value)
        .map_err(|_| pyo3::exceptions::PyValueError::new_err(format!("{value} is no time span")))
}

#[pymethods]
impl MfqConsumer {
    /// `path` is `consumer.offset`; `host` has `segment_at(offset)` and `follow()`.
    #[new]
    #[pyo3(signature = (shared, publish, path, host, *, always))]
    fn new(
        shared: &Shared,
        publish: &PyPublish,
        path: PathBuf,
        host: Py<PyAny>,
        always: bool,
    ) -> PyResult<Self> {
        let word = OffsetFile::open(&path)?;
        let synced = word.get().into();
        let everything = Filter::new("", MODERN);
        let state = State { reader: Reader::new(everything), pending: None };
        Ok(Self {
            control: Arc::clone(&shared.control),
            publish: Arc::clone(&publish.0),
            word,
            host,
            state: Mutex::new(state),
            synced,
            is_always: always,
        })
    }

    /// The next offset to consume: moved by `commit`, or by hand before consuming.
    #[getter]
    fn next_offset(&self) -> u64 {
        self.word.get()
    }

    #[setter]
    fn set_next_offset(&self, py: Python<'_>, offset: u64) {
        gate::enter(py, &self.state).pending = None;
        self.word.set(offset);
    }

    /// Whether a message was handed out and not committed.
    #[getter]
    fn has_pending(&self, py: Python<'_>) -> bool {
        gate::enter(py, &self.state).pending.is_some()
    }

    /// The next message's bytes, not copied; the same ones again until `commit`. Spins for
    /// `spin_s`, then sleeps `retry_s` at a time; `Empty` after `timeout` seconds.
    #[pyo3(signature = (spin_s, retry_s, timeout=None))]
    fn consume<'py>(
        &self,
        py: Python<'py>,
        spin_s: f64,
        retry_s: f64,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyMemoryView>> {
        let mut start = None;
        loop {
            match self.look(py, start.is_some())? {
                Look::Message(segment, offset, view) => {
                    let body = view.body;
                    return View::of(py, &segment, offset, body.at as usize, body.len as usize);
                }
                Look::Again => continue,
                Look::Nothing => {}
            }
            let start = *start.get_or_insert_with(Instant::now);
            let left = match timeout {
                None => Duration::MAX,
                Some(limit) => seconds(limit.max(0.0))?.saturating_sub(start.elapsed()),
            };
            if left.is_zero() {
                return Err(errors::plain(py, "Empty"));
            }
            if self.spin_for(py, seconds(spin_s)?.min(left))? {
                continue;
            }
            let left = match timeout {
                None => Duration::MAX,
                Some(limit) => seconds(limit.max(0.0))?.saturating_sub(start.elapsed()),
            };
            self.sleep(py, seconds(retry_s)?.min(left))?;
        }
    }

    /// The message that was consumed is done; false when there is none.
    fn commit(&self, py: Python<'_>) -> PyResult<bool> {
        let Some(pending) = gate::enter(py, &self.state).pending.take() else { return Ok(false) };
        let before = self.word.get();
        self.word.set(pending.next);
        if self.is_always {
            self.sync(py)?;
        } else if self.synced.load(Ordering::Relaxed) == before {
            self.control.announce_dirty();
        }
        Ok(true)
    }

    /// Syncs the progress.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        let offset = self.word.get();
        if self.synced.load(Ordering::Relaxed) != offset {
            py.detach(|| self.word.sync())?;
            self.synced.store(offset, Ordering::Relaxed);
            if self.word.get() != offset {
                self.control.announce_dirty(); // Committed meanwhile, when nobody had to be told.
            }
        }
        Ok(())
    }
}
