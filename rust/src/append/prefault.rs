//! Pages around a quick writer: those ahead are made and mapped by a thread before they are stored
//! to, those behind begin their way to the disk by another one before they are synced.
//!
//! The first store to a page of a file costs ten times what the copy into it does. A writer that
//! fills megabytes between two syncs gets its pages in blocks as large as the processor maps at
//! once, a few blocks ahead. A slow one does not: what is synced is a whole block, however little
//! of it was stored to. Nothing of this changes a byte.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crate::files::region;
use crate::segment::Segment;
use crate::sys::thread_priority;

/// What the processor maps by one entry, and the page cache holds in one piece.
const BLOCK_BYTES: usize = 2 << 20;
/// The writer tells where it is this often.
const STEP_BYTES: u64 = 1 << 20;
/// So many bytes ahead of the writer there are pages.
const AHEAD_BYTES: usize = 8 << 20;
/// A writer is quick when a step takes no longer: half the usual time between two syncs.
const QUICK: Duration = Duration::from_millis(50);

/// Where a writer is.
struct Reached {
    segment: Arc<Segment>,
    position: usize,
}

/// What a writer leaves for a thread: never more than its latest place.
#[derive(Default)]
struct Desk {
    latest: Mutex<Option<Reached>>,
    is_over: AtomicBool,
}

impl Desk {
    /// The latest place, once there is one; none when it is over.
    fn next(&self) -> Option<Reached> {
        while !self.is_over.load(Ordering::Acquire) {
            let place = self.latest.lock().ok().and_then(|mut latest| latest.take());
            if place.is_some() {
                return place;
            }
            thread::park();
        }
        None
    }
}

/// A desk and the thread that works at it, which begins with the first place.
#[derive(Default)]
struct Helper {
    desk: Arc<Desk>,
    thread: OnceLock<Option<Thread>>,
}

impl Helper {
    /// Tells where the writer is. Never waits.
    fn tell(
        &self,
        segment: &Arc<Segment>,
        position: usize,
        name: &str,
        work: impl FnOnce(&Desk) + Send + 'static,
    ) {
        if let Ok(mut latest) = self.desk.latest.try_lock() {
            *latest = Some(Reached { segment: Arc::clone(segment), position });
        }
        let started = self.thread.get_or_init(|| {
            let desk = Arc::clone(&self.desk);
            let started = thread::Builder::new().name(name.to_owned()).spawn(move || work(&desk));
            started.ok().map(|handle| handle.thread().clone())
        });
        if let Some(thread) = started {
            thread.unpark();
        }
    }

    fn end(&self) {
        self.desk.is_over.store(true, Ordering::Release);
        if let Some(Some(thread)) = self.thread.get() {
            thread.unpark();
        }
    }
}

/// The helpers of one writer.
#[derive(Default)]
pub struct Prefault {
    pages: Helper,
    write_back: Helper,
    is_quick: Arc<AtomicBool>,
}

impl Prefault {
    /// Whether anything can be done ahead in `segment`: it is stored to through memory, has all
    /// its bytes, and is large enough.
    fn fits(segment: &Segment) -> bool {
        let is_large = segment.map().is_some_and(|map| map.len() >= 2 * BLOCK_BYTES);
        is_large && segment.ring().is_none() && !segment.is_by_write() && segment.is_whole()
    }

    /// The writer has come to `tail`; answers where it tells again. Never waits. `is_first` in a
    /// segment: then it matters only to those who were quick before. With `is_synced`, what it
    /// leaves behind is to be on the disk soon.
    #[cold]
    pub fn step(&self, segment: &Arc<Segment>, tail: u64, is_first: bool, is_synced: bool) -> u64 {
        if !Self::fits(segment) {
            return u64::MAX;
        }
        let position = segment.position(tail);
        if !is_first || self.is_quick() {
            let is_quick = Arc::clone(&self.is_quick);
            self.pages.tell(segment, position, "penstock-ahead", move |desk| {
                make_pages(desk, &is_quick);
            });
        }
        if is_synced && self.is_quick() {
            self.write_back.tell(segment, position, "penstock-behind", write_back);
        }
        tail.saturating_add(STEP_BYTES)
    }

    /// Whether the writer fills pages faster than they should be made one by one.
    pub fn is_quick(&self) -> bool {
        self.is_quick.load(Ordering::Relaxed)
    }

    /// Before a sync: what a quick writer has filled, and what was made ahead of it, is mapped anew
    /// by whoever comes there. What the sync finds mapped it makes unwritable page by page.
    pub fn let_go(&self, segment: &Segment) {
        if let (true, Some(map)) = (self.is_quick() && Self::fits(segment), segment.map()) {
            map.forget(0, map.len());
        }
    }

    /// Ends the threads.
    pub fn end(&self) {
        self.pages.end();
        self.write_back.end();
    }
}

impl Drop for Prefault {
    fn drop(&mut self) {
        self.end();
    }
}

/// Has what a writer leaves behind written to the disk as it goes, in pieces. Whoever stores to a
/// page of a file waits while a sync of that file ends, and a sync that finds all of a tenth of a
/// second to be written takes tens of milliseconds to end.
fn write_back(desk: &Desk) {
    thread_priority::lower(); // It may wait: nobody waits for it.
    let (mut begun, mut last) = (0, Weak::<Segment>::new());
    while let Some(Reached { segment, position }) = desk.next() {
        if last.as_ptr() != Arc::as_ptr(&segment) {
            if let Some(last) = last.upgrade() {
                begin_writing(&last, begun, usize::MAX);
            }
            (begun, last) = (0, Arc::downgrade(&segment));
        }
        // Not the block that the writer is in: it would fault there again.
        let whole = position / BLOCK_BYTES * BLOCK_BYTES;
        if whole > begun {
            begin_writing(&segment, begun, whole);
            begun = whole;
        }
    }
}

fn begin_writing(segment: &Segment, from: usize, to: usize) {
    if let Some(map) = segment.map() {
        let len = to.min(map.len()).saturating_sub(from);
        // A mapped page is made unwritable before it goes to the disk, and for each one the kernel
        // interrupts every processor that this process runs on, the writer's too.
        map.forget(from, len);
        region::begin_writing(map.file(), from as u64, len as u64);
    }
}

fn make_pages(desk: &Desk, is_quick: &AtomicBool) {
    let (mut base, mut done, mut told) = (u64::MAX, 0, Instant::now());
    while let Some(Reached { segment, position }) = desk.next() {
        is_quick.store(told.elapsed() < QUICK, Ordering::Relaxed);
        told = Instant::now();
        if !is_quick.load(Ordering::Relaxed) {
            continue;
        }
        if base != segment.base() {
            (base, done) = (segment.base(), 0);
            if let Some(map) = segment.map() {
                // Once for all of it: whoever faults while advice is taken waits for that.
                map.advise_blocks(position, map.len());
            }
        }
        done = make(desk, &segment, position, done);
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
