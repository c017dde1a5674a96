//! Files whose locks are this process's alone.
//!
//! A lock by open file description lives as long as any copy of its descriptor does, and a fork
//! copies them all. So every such file is listed here, from before it is locked; in a forked child
//! its descriptor is closed before any other code runs, no matter what called `fork` and what other
//! threads were doing. A new program closes its copies by itself.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Once, Weak};

use super::descriptor::Descriptor;

/// A file whose locks end with this process, and are not its children's.
pub struct Owned {
    descriptor: Descriptor,
    is_over: AtomicBool,
    is_forked: AtomicBool,
}

impl Owned {
    /// Opens a file by `open`; no fork comes between the opening and the listing.
    pub fn open(open: impl FnOnce() -> io::Result<File>) -> io::Result<Arc<Self>> {
        watch_forks()?;
        let _gate = Gate::enter();
        let (is_over, is_forked) = (AtomicBool::new(false), AtomicBool::new(false));
        let descriptor = Descriptor::new(open()?)?;
        let owned = Arc::new(Self { descriptor, is_over, is_forked });
        if let Ok(mut listed) = LISTED.lock() {
            listed.retain(|one| one.strong_count() > 0);
            listed.push(Arc::downgrade(&owned));
        }
        Ok(owned)
    }

    /// The file; an error if it was closed by someone else, or in a forked child.
    pub fn file(&self) -> io::Result<&File> {
        self.descriptor.file()
    }

    /// From now on no lock may be taken or given back by this file.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
    }

    /// Lets go of the file's locks without ending them by itself: other copies of its descriptor
    /// keep them. Allocates nothing.
    pub fn detach(&self) {
        self.end();
        self.descriptor.close();
    }

    /// Whether that was said, or this process is a fork of the one that opened it.
    #[inline(always)]
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// Whether this process is a fork of the one that opened it.
    pub fn is_forked(&self) -> bool {
        self.is_forked.load(Ordering::Relaxed)
    }
}

static LISTED: Mutex<Vec<Weak<Owned>>> = Mutex::new(Vec::new());
/// Held while the list changes and while a fork goes on. No `Mutex`: the child opens it again.
static GATE: AtomicBool = AtomicBool::new(false);

struct Gate;

impl Gate {
    fn enter() -> Self {
        while GATE.swap(true, Ordering::Acquire) {
            std::thread::yield_now();
        }
        Self
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        GATE.store(false, Ordering::Release);
    }
}

/// Does `work` without a fork in between: a child would find the locks that it takes locked for
/// ever.
pub fn between_forks<T>(work: impl FnOnce() -> T) -> T {
    let _gate = Gate::enter();
    work()
}

/// Asks to be told of every fork, once per process.
fn watch_forks() -> io::Result<()> {
    static ONCE: Once = Once::new();
    let mut refused = 0;
    ONCE.call_once(|| {
        // SAFETY: the three functions live as long as the process: an extension is never unloaded.
        refused = unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
    });
    if refused == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(refused)) }
}

extern "C" fn before() {
    std::mem::forget(Gate::enter());
}

extern "C" fn in_parent() {
    drop(Gate);
}

/// Only this thread is in the child, and the gate kept the list whole. Allocates nothing.
extern "C" fn in_child() {
    if let Ok(listed) = LISTED.try_lock() {
        for owned in listed.iter().filter_map(Weak::upgrade) {
            owned.is_forked.store(true, Ordering::SeqCst);
            owned.detach(); // The parent's locks neither end with it nor live on in it.
        }
    }
    drop(Gate);
}
