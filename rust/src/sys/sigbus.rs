//! A file cut short under a mapping kills a process with SIGBUS. The guard puts a page of zeros
//! under the touched address instead and counts it: the call that touched it then raises.

use std::sync::Once;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

const SLOTS: usize = 8192;
static BASES: [AtomicUsize; SLOTS] = [const { AtomicUsize::new(0) }; SLOTS];
static ENDS: [AtomicUsize; SLOTS] = [const { AtomicUsize::new(0) }; SLOTS];
static HITS: AtomicU64 = AtomicU64::new(0);
static INSTALL: Once = Once::new();
static PREVIOUS: AtomicUsize = AtomicUsize::new(0);

/// How many times a mapping was found to have lost its file. Compare before and after.
pub fn hits() -> u64 {
    HITS.load(Ordering::Relaxed)
}

/// Watches `[base, base + len)`; the answer is given back to `forget`.
pub fn watch(base: usize, len: usize) -> Option<usize> {
    INSTALL.call_once(install);
    for (slot, (start, end)) in BASES.iter().zip(&ENDS).enumerate() {
        if start.compare_exchange(0, base, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            end.store(base.saturating_add(len), Ordering::Release);
            return Some(slot);
        }
    }
    None
}

/// Ends the watch.
pub fn forget(slot: usize) {
    if let (Some(start), Some(end)) = (BASES.get(slot), ENDS.get(slot)) {
        end.store(0, Ordering::Release);
        start.store(0, Ordering::Release);
    }
}

fn install() {
    // SAFETY: the handler is async-signal-safe (atomics, mmap, sigaction); both structs are valid.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let mut previous: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handle as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigaction(libc::SIGBUS, &raw const action, &raw mut previous);
        PREVIOUS.store(previous.sa_sigaction, Ordering::Release);
    }
}

extern "C" fn handle(signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel hands a valid siginfo for SIGBUS.
    let address = unsafe { (*info).si_addr() } as usize;
    let ours = BASES.iter().zip(&ENDS).any(|(start, end)| {
        let (base, end) = (start.load(Ordering::Acquire), end.load(Ordering::Acquire));
        base != 0 && address >= base && address < end
    });
    if ours {
        let page = address & !4095;
        // SAFETY: the page lies inside a mapping of ours whose file is gone there; replacing it by
        // zeros changes nothing that still exists.
        unsafe {
            libc::mmap(
                page as *mut libc::c_void,
                4096,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
                -1,
                0,
            );
        }
        HITS.fetch_add(1, Ordering::Relaxed);
        return;
    }
    // SAFETY: not ours: hand over to whoever was there before, or die as without us.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = PREVIOUS.load(Ordering::Acquire);
        libc::sigaction(signal, &raw const action, std::ptr::null_mut());
    }
}
