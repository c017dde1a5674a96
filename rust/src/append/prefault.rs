//! Pages ahead of a quick writer: made and mapped by a thread of its own before they are stored to.
//!
//! The first store to a page of a file costs ten times what the copy into it does. A writer that
//! fills megabytes between two syncs gets its pages in blocks as large as the processor maps at
//! once, a few blocks ahead. A slow one does not: what is synced is a whole block, however little
//! of it was stored to. Nothing of this changes a byte.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crate::segment::Segment;

/// What the processor maps by one entry, and the page cache holds in one piece.
const BLOCK_BYTES: usize = 2 << 20;
/// The writer tells where it is this often.
const STEP_BYTES: u64 = 1 << 20;
/// So many bytes ahead of the writer there are pages.
const AHEAD_BYTES: usize = 8 << 20;
/// So many bytes ahead a writer that overtakes the thread makes whole blocks itself.
const ADVISED_BYTES: usize = 4 * AHEAD_BYTES;
/// A writer is quick when a step takes no longer: half the usual time between two syncs.
const QUICK: Duration = Duration::from_millis(50);

/// Where a writer is.
struct Reached {
    segment: Arc<Segment>,
    position: usize,
}

#[derive(Default)]
struct Desk {
    latest: Mutex<Option<Reached>>,
    is_quick: AtomicBool,
    is_over: AtomicBool,
}

/// The helper of one writer. Its thread begins with the first step.
#[derive(Default)]
pub struct Prefault {
    desk: Arc<Desk>,
    thread: OnceLock<Option<Thread>>,
}

impl Prefault {
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
            *latest = Some(Reached { segment: Arc::clone(segment), position });
        }
        let started = self.thread.get_or_init(|| {
            let desk = Arc::clone(&self.desk);
            let name = "penstock-ahead".to_owned();
            let started = thread::Builder::new().name(name).spawn(move || serve(&desk));
            started.ok().map(|handle| handle.thread().clone())
        });
        if let Some(thread) = started {
            thread.unpark();
        }
    }

    /// Whether the writer fills pages faster than they should be made one by one.
    pub fn is_quick(&self) -> bool {
        self.desk.is_quick.load(Ordering::Relaxed)
    }

    /// Ends the thread.
    pub fn end(&self) {
        self.desk.is_over.store(true, Ordering::Release);
        if let Some(Some(thread)) = self.thread.get() {
            thread.unpark();
        }
    }
}

impl Drop for Prefault {
    fn drop(&mut self) {
        self.end();
    }
}

fn serve(desk: &Desk) {
    let (mut base, mut done, mut told) = (u64::MAX, 0, Instant::now());
    while !desk.is_over.load(Ordering::Acquire) {
        let place = desk.latest.lock().ok().and_then(|mut latest| latest.take());
        let Some(Reached { segment, position }) = place else {
            thread::park();
            continue;
        };
        let is_quick = told.elapsed() < QUICK;
        told = Instant::now();
        desk.is_quick.store(is_quick, Ordering::Relaxed);
        if base != segment.base() {
            (base, done) = (segment.base(), 0);
        }
        if is_quick {
            done = make(desk, &segment, position, done);
        }
    }
}

/// Makes the pages ahead of `position`, from `done` on; answers how far there are some.
fn make(desk: &Desk, segment: &Segment, position: usize, done: usize) -> usize {
    let Some(map) = segment.map() else { return done };
    let mut at = done.max(position / BLOCK_BYTES * BLOCK_BYTES);
    let end = position.saturating_add(AHEAD_BYTES).min(map.len());
    if at < end {
        map.advise_blocks(at, position.saturating_add(ADVISED_BYTES));
    }
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
