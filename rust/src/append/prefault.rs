//! Pages around a writer. Those that it is about to store to are made a few at a time. Those that a
//! quick writer leaves behind are sent to the disk by a thread, before a sync waits for them.
//!
//! The first store to a page of a file costs ten times what the copy into it does, and the kernel
//! then makes megabytes of pages at once: the store waits for all of them. So the writer makes its
//! pages itself, by a write of zeros where nothing is yet. Nothing of this changes a byte.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crate::files::region;
use crate::segment::Segment;
use crate::sys::thread_priority;

/// Nothing is done in smaller segments: they are zeroed before they are used.
const LEAST_BYTES: usize = 4 << 20;
/// So many bytes behind a quick writer are sent to the disk at a time.
const BLOCK_BYTES: usize = 2 << 20;
/// The writer says where it is after every so many bytes.
const STEP_BYTES: u64 = 1 << 20;
/// How much a quick writer makes at a time: pages made together cost less each, but take longer.
/// They are also synced together, however few of them were stored to: a slow writer makes fewer.
const PIECE_BYTES: usize = 128 << 10;
const SMALL_PIECE_BYTES: usize = 64 << 10;
static ZEROS: [u8; PIECE_BYTES] = [0; PIECE_BYTES];

/// Where a writer is.
struct Reached {
    segment: Arc<Segment>,
    position: usize,
}

/// Where a writer leaves word for its thread: never more than the latest position.
#[derive(Default)]
struct Desk {
    latest: Mutex<Option<Reached>>,
    is_over: AtomicBool,
}

impl Desk {
    /// Waits for the next position; none when the writer is closed.
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

/// A desk and the thread that works at it, which is started with the first position.
#[derive(Default)]
struct Helper {
    desk: Arc<Desk>,
    thread: OnceLock<Option<Thread>>,
}

impl Helper {
    /// Says where the writer is. Never waits.
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

/// What is known of one writer, and its helper.
pub struct Prefault {
    write_back: Helper,
    /// A writer is quick when a step takes it less than this.
    quick_step: Duration,
    is_quick: AtomicBool,
    told: Mutex<Option<Instant>>,
}

impl Prefault {
    /// For a writer that counts as quick when a step takes it less than `quick_step`.
    pub fn new(quick_step: Duration) -> Self {
        Self {
            write_back: Helper::default(),
            quick_step,
            is_quick: AtomicBool::new(false),
            told: Mutex::new(None),
        }
    }

    /// Whether anything can be done in `segment`: it is stored to through memory, has all its
    /// bytes, and is large enough.
    fn fits(segment: &Segment) -> bool {
        let is_large = segment.map().is_some_and(|map| map.len() >= LEAST_BYTES);
        is_large && segment.ring().is_none() && !segment.is_by_write() && segment.is_whole()
    }

    /// The writer has come to `tail`; returns where it should say so again. Never waits.
    /// `is_first`: the first time in a segment, which tells how quick the writer is only if it was
    /// quick before. `is_synced`: what it leaves behind will be synced soon.
    #[cold]
    pub fn step(&self, segment: &Arc<Segment>, tail: u64, is_first: bool, is_synced: bool) -> u64 {
        if !Self::fits(segment) {
            return u64::MAX;
        }
        if !is_first || self.is_quick() {
            let now = Instant::now();
            let told = self.told.lock().ok().and_then(|mut told| told.replace(now));
            let is_quick = told.is_some_and(|told| now.duration_since(told) < self.quick_step);
            self.is_quick.store(is_quick, Ordering::Relaxed);
        }
        if is_synced && self.is_quick() {
            self.write_back.tell(segment, segment.position(tail), "penstock-behind", write_back);
        }
        tail.saturating_add(STEP_BYTES)
    }

    /// The writer is about to store to `[position, end)`: where there are no pages yet, it makes a
    /// few by a write of zeros. On a store the kernel would read ahead, which makes megabytes of
    /// pages at once, and the writer would wait for all of them. Returns up to where there are
    /// pages. With the append lock held, so that the zeros cover no frame.
    #[cold]
    pub fn make_now(&self, segment: &Segment, position: usize, end: usize) -> usize {
        let piece = if self.is_quick() { PIECE_BYTES } else { SMALL_PIECE_BYTES };
        let Some(map) = segment.map().filter(|_| Self::fits(segment)) else { return usize::MAX };
        let until = end.next_multiple_of(piece).min(map.len());
        let mut at = position;
        while at < until {
            let next = (at + 1).next_multiple_of(piece).min(until);
            let zeros = ZEROS.get(..next - at).unwrap_or_default();
            if !map.is_resident(at, zeros.len()) {
                let _ = map.file().map(|file| region::fill_zeros(file, at as u64, zeros));
            }
            at = next;
        }
        until
    }

    /// Whether the writer fills megabytes between two syncs.
    pub fn is_quick(&self) -> bool {
        self.is_quick.load(Ordering::Relaxed)
    }

    /// Before a sync: unmaps what a quick writer has filled; a reader that comes there maps it
    /// again. The sync would make each page that it finds mapped read-only, one after the other.
    pub fn let_go(&self, segment: &Segment) {
        if let (true, Some(map)) = (self.is_quick() && Self::fits(segment), segment.map()) {
            map.forget(0, map.len());
        }
    }

    /// Ends the thread.
    pub fn end(&self) {
        self.write_back.end();
    }
}

impl Drop for Prefault {
    fn drop(&mut self) {
        self.end();
    }
}

/// Sends what a writer leaves behind to the disk as it goes, in pieces. A store to a page of a file
/// waits while a sync of that file ends, and a sync that has to write all that came in a tenth of a
/// second takes tens of milliseconds to end.
fn write_back(desk: &Desk) {
    thread_priority::lower(); // Nobody waits for this thread.
    let (mut begun, mut last) = (0, Weak::<Segment>::new());
    while let Some(Reached { segment, position }) = desk.next() {
        if last.as_ptr() != Arc::as_ptr(&segment) {
            if let Some(last) = last.upgrade() {
                begin_writing(&last, begun, usize::MAX);
            }
            (begun, last) = (0, Arc::downgrade(&segment));
        }
        // The block that the writer is in stays: it would fault there again.
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
        // Before a mapped page goes to the disk the kernel makes it read-only, and for each one it
        // interrupts every processor that this process runs on, the writer's too.
        map.forget(from, len);
        let _ = map.file().map(|file| region::begin_writing(file, from as u64, len as u64));
    }
}
