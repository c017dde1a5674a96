//! Ahead of a quick writer: pages are made and mapped, and the next segment is filled with zeros, by
//! a thread of its own. It needs no interpreter lock, which a quick writer hardly lets go of, and
//! syncs nothing, which takes as long as filling segments does.
//!
//! The first store to a page of a file costs ten times what the copy into it does; to one that was
//! only allocated it costs thousands of times as much, for the kernel reads megabytes around it. A
//! slow writer has no use for this: its keeper is quick enough. Nothing of it changes a byte.

use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use crate::files::region;
use crate::segment::Segment;

/// Made at once: pages, or zeros of the next segment.
const BLOCK_BYTES: usize = 2 << 20;
/// The writer tells where it is this often.
const STEP_BYTES: u64 = 1 << 20;
/// So many bytes ahead of the writer there are pages.
const AHEAD_BYTES: usize = 8 << 20;
/// A writer is quick when a step takes no longer: half the usual time between two syncs.
const QUICK: Duration = Duration::from_millis(50);

/// Where a writer is.
struct Place {
    segment: Arc<Segment>,
    position: usize,
}

/// A file of `size` zeros that is to be made as `made`, and named `ready` when it is whole.
pub struct Spare {
    /// Its name until then; nobody else has it.
    pub made: PathBuf,
    /// Where whoever begins a segment looks for it.
    pub ready: PathBuf,
    /// Bytes.
    pub size: u64,
}

#[derive(Default)]
struct Desk {
    latest: Mutex<Option<Place>>,
    wanted: Mutex<Option<Spare>>,
    is_quick: AtomicBool,
    is_preparing: AtomicBool,
    is_over: AtomicBool,
}

/// The helper of one writer. Its thread begins with the first step.
#[derive(Default)]
pub struct Ahead {
    desk: Arc<Desk>,
    thread: OnceLock<Option<Thread>>,
    handle: Mutex<Option<JoinHandle<()>>>,
}

impl Ahead {
    /// Whether anything can be done ahead in `segment`: it is stored to through memory, has all
    /// its bytes, and is large enough.
    fn fits(segment: &Segment) -> bool {
        let is_large = segment.map().is_some_and(|map| map.len() >= 2 * BLOCK_BYTES);
        is_large && segment.ring().is_none() && !segment.is_by_write() && segment.is_whole()
    }

    /// The writer has come to `tail`; answers where it tells again. Never waits. `is_first` in a
    /// segment: then it matters only to those who were quick before.
    #[cold]
    pub fn step(&self, segment: &Arc<Segment>, tail: u64, is_first: bool) -> u64 {
        if !Self::fits(segment) {
            return u64::MAX;
        }
        if !is_first || self.is_quick() {
            self.tell(segment, segment.position(tail));
        }
        tail.saturating_add(STEP_BYTES)
    }

    fn tell(&self, segment: &Arc<Segment>, position: usize) {
        if let Ok(mut latest) = self.desk.latest.try_lock() {
            *latest = Some(Place { segment: Arc::clone(segment), position });
        }
        let started = self.thread.get_or_init(|| {
            let desk = Arc::clone(&self.desk);
            let name = "penstock-ahead".to_owned();
            let started = thread::Builder::new().name(name).spawn(move || serve(&desk));
            let handle = started.ok()?;
            let thread = handle.thread().clone();
            *locked(&self.handle) = Some(handle);
            Some(thread)
        });
        if let Some(thread) = started {
            thread.unpark();
        }
    }

    /// Whether the writer fills pages faster than they should be made one by one.
    pub fn is_quick(&self) -> bool {
        self.desk.is_quick.load(Ordering::Relaxed)
    }

    /// The next segment is wanted: made if the writer is quick, or is soon.
    pub fn want(&self, spare: Spare) {
        *locked(&self.desk.wanted) = Some(spare);
    }

    /// Whether the next segment is being made here.
    pub fn is_preparing(&self) -> bool {
        self.desk.is_preparing.load(Ordering::Acquire)
    }

    /// Ends the thread.
    pub fn end(&self) {
        self.desk.is_over.store(true, Ordering::Release);
        if let Some(Some(thread)) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Waits for the thread's end: then it has no file open, and makes none.
    pub fn wait(&self) {
        let handle = locked(&self.handle).take();
        let _ = handle.map(JoinHandle::join);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.end();
    }
}

fn serve(desk: &Desk) {
    let (mut base, mut done, mut told) = (u64::MAX, 0, Instant::now());
    let mut making = None;
    while !desk.is_over.load(Ordering::Acquire) {
        let place = locked(&desk.latest).take();
        if place.is_none() && making.is_none() {
            thread::park();
            continue;
        }
        if let Some(Place { segment, position }) = place {
            let is_quick = told.elapsed() < QUICK;
            told = Instant::now();
            desk.is_quick.store(is_quick, Ordering::Relaxed);
            if base != segment.base() {
                (base, done) = (segment.base(), 0);
            }
            if is_quick {
                done = make(desk, &segment, position, done);
                making = making.or_else(|| Making::begin(desk));
            }
        }
        making = making.and_then(Making::go_on);
        desk.is_preparing.store(making.is_some(), Ordering::Release);
    }
    if let Some(making) = making {
        making.give_up();
    }
    desk.is_preparing.store(false, Ordering::Release);
}

/// A segment that is filled with zeros, piece by piece. Whatever goes wrong with it is no harm: the
/// writer's keeper makes one, or the writer itself, and says what is wrong.
struct Making {
    spare: Spare,
    file: File,
    done: u64,
}

impl Making {
    fn begin(desk: &Desk) -> Option<Self> {
        let spare = locked(&desk.wanted).take().filter(|spare| !spare.ready.exists())?;
        let file = region::create(&spare.made).ok()?;
        let making = Self { spare, file, done: 0 };
        match region::allocate(&making.file, making.spare.size) {
            Ok(()) => Some(making),
            Err(_) => making.give_up(),
        }
    }

    fn go_on(mut self) -> Option<Self> {
        let end = self.done.saturating_add(BLOCK_BYTES as u64).min(self.spare.size);
        if region::fill_zeros(&self.file, self.done, end).is_err() {
            return self.give_up();
        }
        self.done = end;
        if end < self.spare.size {
            return Some(self);
        }
        let Spare { made, ready, .. } = &self.spare;
        match !ready.exists() && region::rename(made, ready).is_ok() {
            true => None,
            false => self.give_up(),
        }
    }

    fn give_up(self) -> Option<Self> {
        let _ = region::unlink(&self.spare.made);
        None
    }
}

/// Makes the pages ahead of `position`, from `done` on; answers how far there are some.
fn make(desk: &Desk, segment: &Segment, position: usize, done: usize) -> usize {
    let Some(map) = segment.map() else { return done };
    let mut at = done.max(position / BLOCK_BYTES * BLOCK_BYTES);
    let end = position.saturating_add(AHEAD_BYTES).min(map.len());
    while at < end {
        let has_news = desk.latest.try_lock().is_ok_and(|latest| latest.is_some());
        if has_news || desk.is_over.load(Ordering::Relaxed) {
            break;
        }
        if !map.populate(at, BLOCK_BYTES) {
            return usize::MAX; // This system can't, or the file was cut: stores will tell.
        }
        at += BLOCK_BYTES;
    }
    at
}
