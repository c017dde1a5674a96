//! A file cut short under a mapping kills a process with SIGBUS. The guard puts a page of zeros
//! under the touched address instead and notes it with the mapping: the call that touched it then
//! raises, and so does every later one that goes by this mapping, since the zeros stay.
//!
//! The signal belongs to the whole process: other libraries take it over too (`faulthandler` does).
//! So every new mapping makes sure that the handler is ours, and a signal that is not ours goes to
//! the handler that was there before. The handler walks a list of blocks that only ever grows: no
//! lock, nothing freed, safe in a signal handler and after a fork.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

const SLOTS: usize = 1024;
const PAGE: usize = 4096;

/// Where a watched mapping is; a base of 0 is a free slot.
struct Slot {
    base: AtomicUsize,
    end: AtomicUsize,
    is_cut: AtomicBool,
}

impl Slot {
    const fn free() -> Self {
        let (base, end) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { base, end, is_cut: AtomicBool::new(false) }
    }
}

struct Block {
    slots: [Slot; SLOTS],
    next: AtomicPtr<Block>,
}

static FIRST: Block = Block::new();
static HITS: AtomicU64 = AtomicU64::new(0);
static PREVIOUS: AtomicPtr<libc::sigaction> = AtomicPtr::new(null_mut());
static IS_DYING: AtomicBool = AtomicBool::new(false);

impl Block {
    const fn new() -> Self {
        Self { slots: [const { Slot::free() }; SLOTS], next: AtomicPtr::new(null_mut()) }
    }

    fn next(&self) -> Option<&'static Self> {
        // SAFETY: null or a block that was leaked below.
        unsafe { self.next.load(Ordering::Acquire).as_ref() }
    }

    /// The block behind this one, made if there is none yet.
    fn next_or_new(&self) -> &'static Self {
        if let Some(next) = self.next() {
            return next;
        }
        let new = Box::into_raw(Box::new(Self::new()));
        match self.next.compare_exchange(null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: just leaked; nobody frees it any more.
            Ok(_) => unsafe { &*new },
            Err(theirs) => {
                // SAFETY: ours was seen by nobody else; theirs is a leaked block.
                unsafe {
                    drop(Box::from_raw(new));
                    &*theirs
                }
            }
        }
    }
}

/// Ends the guard of a mapping when it is dropped: before the mapping goes.
pub struct TruncationGuard(&'static Slot);

impl TruncationGuard {
    /// Whether the mapping was found to have lost its file, somewhere, at some time.
    pub fn is_cut(&self) -> bool {
        self.0.is_cut.load(Ordering::Relaxed)
    }
}

impl Drop for TruncationGuard {
    fn drop(&mut self) {
        self.0.end.store(0, Ordering::Release);
        self.0.base.store(0, Ordering::Release);
    }
}

/// How many times any mapping was found to have lost its file.
pub fn hits() -> u64 {
    HITS.load(Ordering::Relaxed)
}

/// Watches `[base, base + len)`.
pub fn guard(base: usize, len: usize) -> TruncationGuard {
    install();
    let mut block = &FIRST;
    loop {
        for slot in &block.slots {
            if slot.base.compare_exchange(0, base, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                slot.is_cut.store(false, Ordering::Relaxed);
                slot.end.store(base.saturating_add(len), Ordering::Release);
                return TruncationGuard(slot);
            }
        }
        block = block.next_or_new();
    }
}

fn watched(address: usize) -> Option<&'static Slot> {
    let mut block = Some(&FIRST);
    while let Some(here) = block {
        let is_inside = |slot: &&Slot| {
            let (base, end) = (slot.base.load(Ordering::Acquire), slot.end.load(Ordering::Acquire));
            base != 0 && address >= base && address < end
        };
        if let Some(slot) = here.slots.iter().find(is_inside) {
            return Some(slot);
        }
        block = here.next();
    }
    None
}

/// Makes our handler that of the signal, unless it is already, and keeps the one before.
pub fn install() {
    // SAFETY: all zeros is a valid `sigaction`, and both calls get valid ones.
    unsafe {
        let mut current: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut current);
        if current.sa_sigaction == handle as *const () as usize {
            return;
        }
        // Leaked: the handler may be reading the one before right now, and it happens rarely.
        PREVIOUS.store(Box::into_raw(Box::new(current)), Ordering::Release);
        let mut ours: libc::sigaction = std::mem::zeroed();
        ours.sa_sigaction = handle as *const () as usize;
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        IS_DYING.store(false, Ordering::Release);
        libc::sigaction(libc::SIGBUS, &raw const ours, null_mut());
    }
}

extern "C" fn handle(signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel hands a valid siginfo for SIGBUS.
    let (address, code) = unsafe { ((*info).si_addr() as usize, (*info).si_code) };
    // A code above 0 is a fault of this thread; anything else was sent, and has no address.
    if let Some(slot) = watched(address).filter(|_| code > 0) {
        // SAFETY: the page lies inside a mapping of ours whose file is gone there; replacing it by
        // zeros changes nothing that still exists.
        let page = unsafe {
            libc::mmap(
                (address & !(PAGE - 1)) as *mut libc::c_void,
                PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
                -1,
                0,
            )
        };
        if page != libc::MAP_FAILED {
            slot.is_cut.store(true, Ordering::Relaxed);
            HITS.fetch_add(1, Ordering::Relaxed);
            return;
        }
    }
    // The fault is not ours: the handler that was there before gets it, or the process dies as it
    // would without us. A handler that passes the signal back to us is not called again.
    let previous = PREVIOUS.load(Ordering::Acquire);
    // SAFETY: `previous` is null or a leaked `sigaction`; all zeros is the default action. The
    // fault comes again as soon as we return; a signal that was sent is sent again.
    unsafe {
        let default: libc::sigaction = std::mem::zeroed();
        let is_again = IS_DYING.swap(true, Ordering::AcqRel);
        let next = if is_again || previous.is_null() { &raw const default } else { previous };
        libc::sigaction(signal, next, null_mut());
        if code <= 0 {
            libc::raise(signal);
        }
    }
}
