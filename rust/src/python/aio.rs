//! Readiness for event loops: one thread per process sleeps for all of them.
//!
//! A `Watch` belongs to one open queue and one loop. While it is armed, the thread sleeps on the
//! queue's event word and raises the watch's eventfd whenever the word has moved. Arm, look, then
//! wait: what was put before the arming is seen by the look, what comes later raises the eventfd.
//! A kernel that can't wait for several words gets a thread per watch.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};

use pyo3::prelude::*;

use crate::append::Writer;
use crate::message::Message;
use crate::shared::control::{Control, Shared};
use crate::sys::eventfd::EventFd;
use crate::sys::futex;

struct Watched {
    control: Arc<Control>,
    event: EventFd,
    seen: AtomicU32,
    is_armed: AtomicBool,
}

impl Watched {
    /// Raises the eventfd if the word has moved since the last look.
    fn look(&self) {
        let now = self.control.event_word().load(Ordering::SeqCst);
        if self.seen.swap(now, Ordering::SeqCst) != now && self.is_armed.load(Ordering::SeqCst) {
            self.event.raise();
        }
    }
}

/// One sleeping thread and what it sleeps for.
struct Sleeper {
    watched: Mutex<Vec<Arc<Watched>>>,
    /// Raised when the list or an arming has changed.
    changed: AtomicU32,
}

impl Sleeper {
    fn watched(&self) -> MutexGuard<'_, Vec<Arc<Watched>>> {
        self.watched.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn start() -> std::io::Result<Arc<Self>> {
        let sleeper = Arc::new(Self { watched: Mutex::default(), changed: AtomicU32::new(0) });
        let mine = Arc::clone(&sleeper);
        std::thread::Builder::new().name("penstock-wait".into()).spawn(move || {
            loop {
                mine.sleep_once();
            }
        })?;
        Ok(sleeper)
    }

    fn sleep_once(&self) {
        let changed = self.changed.load(Ordering::SeqCst);
        let armed: Vec<Arc<Watched>> = self
            .watched()
            .iter()
            .filter(|one| one.is_armed.load(Ordering::SeqCst))
            .map(Arc::clone)
            .collect();
        let mut words = vec![(&self.changed, changed)];
        let event = |one: &'_ Arc<Watched>| one.seen.load(Ordering::SeqCst);
        words.extend(armed.iter().map(|one| (one.control.event_word(), event(one))));
        match (capacity() > 1, words.last()) {
            (true, _) | (_, None) => futex::wait_any(&words),
            (false, Some((word, value))) => drop(futex::wait(word, *value, None)),
        }
        for one in &armed {
            one.look();
        }
    }

    /// The thread looks at its list again.
    fn poke(&self) {
        self.changed.fetch_add(1, Ordering::SeqCst);
        futex::wake(&self.changed, 1);
        if capacity() == 1 {
            // With one slot the thread may be asleep on the queue's own word instead.
            for one in self.watched().iter() {
                one.control.signal();
            }
        }
    }
}

/// Watches per thread.
fn capacity() -> usize {
    static CAPACITY: LazyLock<usize> =
        LazyLock::new(|| if futex::can_wait_any() { futex::MANY - 1 } else { 1 });
    *CAPACITY
}

/// The threads of this process; those of the process it was forked from did not come along.
static SLEEPERS: Mutex<(u32, Vec<Arc<Sleeper>>)> = Mutex::new((0, Vec::new()));

fn enroll(watched: &Arc<Watched>) -> std::io::Result<Arc<Sleeper>> {
    let mut sleepers = SLEEPERS.lock().unwrap_or_else(|e| e.into_inner());
    if sleepers.0 != std::process::id() {
        // The locks inside may have been held at the fork: leave them alone for ever.
        std::mem::forget(std::mem::take(&mut sleepers.1));
        sleepers.0 = std::process::id();
    }
    let found = sleepers.1.iter().find(|one| one.watched().len() < capacity());
    let sleeper = match found {
        Some(sleeper) => Arc::clone(sleeper),
        None => {
            let sleeper = Sleeper::start()?;
            sleepers.1.push(Arc::clone(&sleeper));
            sleeper
        }
    };
    sleeper.watched().push(Arc::clone(watched));
    Ok(sleeper)
}

/// Tells an event loop, through a file descriptor, that a queue is worth another look.
#[pyclass(frozen, module = "penstock._core")]
pub struct Watch {
    watched: Arc<Watched>,
    sleeper: Arc<Sleeper>,
    pid: u32,
}

#[pymethods]
impl Watch {
    /// A watch of the queue behind `shared`; not armed yet.
    #[new]
    fn new(shared: &Shared) -> PyResult<Self> {
        let watched = Arc::new(Watched {
            control: Arc::clone(&shared.control),
            event: EventFd::new()?,
            seen: AtomicU32::new(0),
            is_armed: AtomicBool::new(false),
        });
        let sleeper = enroll(&watched)?;
        Ok(Self { watched, sleeper, pid: std::process::id() })
    }

    /// The eventfd: readable when there may be something new.
    fn fileno(&self) -> i32 {
        self.watched.event.number()
    }

    /// From now on every signal of the queue raises the eventfd. Look at the queue afterwards.
    fn arm(&self) {
        if !self.watched.is_armed.swap(true, Ordering::SeqCst) {
            self.watched.control.join_waiters();
            let event = self.watched.control.event_word().load(Ordering::SeqCst);
            self.watched.seen.store(event, Ordering::SeqCst);
            self.sleeper.poke();
        }
    }

    /// Nobody waits any more: producers need not wake us. In a forked child it is the parent who
    /// waits.
    fn disarm(&self) {
        if self.pid == std::process::id() && self.watched.is_armed.swap(false, Ordering::SeqCst) {
            self.watched.control.leave_waiters();
        }
    }

    /// Takes no further part.
    fn close(&self) {
        self.disarm();
        if self.pid == std::process::id() {
            self.sleeper.watched().retain(|one| !Arc::ptr_eq(one, &self.watched));
            self.sleeper.poke();
        }
    }
}

#[pymethods]
impl Writer {
    /// Appends without waiting for the sync that `always` asks for: the caller must `sync()`
    /// before it tells anyone. Answers the message's offset.
    #[pyo3(signature = (message, delay=None))]
    fn put_unsynced(
        &self,
        py: Python<'_>,
        message: &Bound<'_, Message>,
        delay: Option<f64>,
    ) -> PyResult<u64> {
        message.get().check_whole(py)?;
        let mut drafts = [message.get().draft()];
        self.stamp_all(&mut drafts, delay)?;
        Ok(self.append_unsynced(py, &drafts)?.0)
    }
}
