//! Memory of our own: what there is of it, and advice about it.
//!
//! An allocation that fails in the midst of native code ends the process. So code that needs much
//! memory asks for it first (`has_room`) and raises an error if there is none. Other allocations
//! are small; where one of them fails, it gets a spare block, so that the call goes on to the next
//! such question.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::hint::{black_box, spin_loop};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};

use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use pyo3::{PyErr, ffi, types::PyBytes};

use super::mapping::PAGES_BYTES;

/// Code that needs less than this does not ask: the spare has as much.
const LARGE_BYTES: usize = 1 << 20;
const SPARE_BYTES: usize = 4 << 20;
/// A large block of pages, where there are any.
const BLOCK_BYTES: usize = 2 << 20;
const SPINS: u32 = 10_000;

/// For tests: how many questions are left until one is answered with no; below 0: none will be.
static REFUSED_AT: AtomicI64 = AtomicI64::new(-1);

/// Lets the `nth` question after this one be answered with no; below 0: none. Whether the question
/// that was named before has come.
#[cfg(feature = "recorder")]
pub fn refuse_at(nth: i64) -> bool {
    REFUSED_AT.swap(nth, Ordering::SeqCst) < 0
}

#[inline(always)]
fn is_asked_to_refuse() -> bool {
    cfg!(feature = "recorder") && REFUSED_AT.load(Ordering::Relaxed) >= 0
}

#[cold]
fn is_refused() -> bool {
    REFUSED_AT.fetch_sub(1, Ordering::SeqCst) == 0
}

/// Whether `bytes` can be had right now. Another thread may take them meanwhile; a process with so
/// little left meets the next question soon.
#[inline]
pub fn has_room(bytes: usize) -> bool {
    if is_asked_to_refuse() && is_refused() {
        return false;
    }
    bytes < LARGE_BYTES || can_allocate(bytes)
}

/// Makes room for `more` in `bytes`; false where there is none.
pub fn reserve(bytes: &mut Vec<u8>, more: usize) -> bool {
    let is_refused = is_asked_to_refuse() && is_refused();
    !is_refused && bytes.try_reserve(more).is_ok()
}

#[cold]
fn can_allocate(bytes: usize) -> bool {
    let mut tried = Vec::<u8>::new();
    let is_there = tried.try_reserve_exact(bytes).is_ok();
    black_box(&mut tried); // Otherwise the compiler drops the allocation, which is not used.
    is_there
}

/// Lists of so many bytes come and go. Of what is freed, glibc gives all but 128 KiB back to the
/// system, and each page of the next list is faulted in and zeroed again, which takes longer than
/// to read the list. After a block of this size was freed once, it keeps as much.
#[inline]
pub fn keep(bytes: usize) {
    // What glibc keeps by itself, and the most that it can be taught to.
    const LEAST_BYTES: usize = 128 << 10;
    const MOST_BYTES: usize = 32 << 20;
    static KEPT: AtomicUsize = AtomicUsize::new(LEAST_BYTES);
    if bytes > KEPT.load(Ordering::Relaxed) && bytes <= MOST_BYTES {
        // Twice: so that lists that grow a little do not teach it again and again.
        let kept = bytes.saturating_mul(2).min(MOST_BYTES);
        KEPT.store(kept, Ordering::Relaxed);
        can_allocate(kept);
    }
}

/// The error where there is no memory.
#[cold]
pub fn none_left(bytes: usize) -> PyErr {
    PyMemoryError::new_err(format!("no memory is left for {bytes} bytes"))
}

/// The same inside native code.
#[cold]
pub fn none_left_io() -> std::io::Error {
    std::io::Error::from_raw_os_error(libc::ENOMEM)
}

/// `data` as a bytes object; `MemoryError` where it does not fit.
#[inline]
pub fn bytes_object<'py>(py: Python<'py>, data: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    let len = isize::try_from(data.len()).map_err(|_| none_left(data.len()))?;
    if is_asked_to_refuse() && is_refused() {
        return Err(none_left(data.len()));
    }
    // SAFETY: `data` is readable for `len` bytes, the interpreter lock is held, and the answer is a
    // new reference to a bytes object, or null with the exception set.
    unsafe {
        let object = ffi::PyBytes_FromStringAndSize(data.as_ptr().cast(), len);
        Ok(Bound::from_owned_ptr_or_err(py, object)?.cast_into_unchecked())
    }
}

/// Takes `object` out of what the collector of cycles goes through.
#[inline]
pub fn untrack<T>(object: &Bound<'_, T>) {
    // SAFETY: every class of ours is one that the collector knows, the interpreter lock is held,
    // and an object may be taken out at any time, also again: its end does so too.
    unsafe { ffi::PyObject_GC_UnTrack(object.as_ptr().cast()) }
}

#[cfg(target_arch = "x86_64")]
const LINE_BYTES: usize = 64;
#[cfg(target_arch = "x86_64")]
const MOST_LINES: usize = 24;

/// Has the processor fetch `bytes`, or the first lines of many, while it does other things.
#[inline(always)]
#[cfg(target_arch = "x86_64")]
pub fn prefetch(bytes: &[u8]) {
    for line in bytes.chunks(LINE_BYTES).take(MOST_LINES) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: every x86-64 has it; it neither reads for the program nor faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
}

/// The same of as many bytes as these right behind them: what most likely is read next.
#[inline(always)]
#[cfg(target_arch = "x86_64")]
pub fn prefetch_behind(bytes: &[u8]) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    let behind = bytes.as_ptr().wrapping_add(bytes.len());
    for line in 0..=(bytes.len() / LINE_BYTES).min(MOST_LINES) {
        // SAFETY: every x86-64 has it; it neither reads for the program nor faults, wherever it is
        // told to look.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(behind.wrapping_add(line * LINE_BYTES).cast()) };
    }
}

/// Other processors are told nothing ahead: they fetch what they are asked for.
#[inline(always)]
#[cfg(not(target_arch = "x86_64"))]
pub fn prefetch(_bytes: &[u8]) {}

/// Other processors are told nothing ahead.
#[inline(always)]
#[cfg(not(target_arch = "x86_64"))]
pub fn prefetch_behind(_bytes: &[u8]) {}

/// Asks for large blocks of pages under bytes that are about to be filled: fresh memory comes with
/// a fault per block then, not per page, and those cost as much as reading the bytes does.
pub fn advise_blocks(bytes: &mut [u8]) {
    advise(bytes, PAGES_BYTES, libc::MADV_HUGEPAGE);
}

/// Lets the system take back the pages under bytes that nobody needs, as soon as it is short of
/// memory. Until then they are as they were, afterwards they are zeros.
pub fn lend(bytes: &mut [u8]) {
    advise(bytes, BLOCK_BYTES, libc::MADV_FREE); // A part of a block would take the block apart.
}

/// Advice about what of `bytes` is whole units, which are whole pages.
fn advise(bytes: &mut [u8], unit: usize, advice: i32) {
    let start = bytes.as_ptr().align_offset(unit).min(bytes.len());
    let whole = (bytes.len() - start) / unit * unit;
    if whole > 0 {
        // SAFETY: whole pages inside the slice (checked), of which no other thread knows, and whose
        // bytes nobody needs where the advice changes any.
        unsafe {
            let from = bytes.as_mut_ptr().add(start);
            libc::madvise(from.cast(), whole, advice);
        }
    }
}

/// The system's allocator, with a spare behind it.
struct Frugal;

#[global_allocator]
static FRUGAL: Frugal = Frugal;
static SPARE: Spare = Spare {
    bytes: UnsafeCell::new([0; SPARE_BYTES]),
    is_taken: AtomicBool::new(false),
    used: AtomicUsize::new(0),
    live: AtomicUsize::new(0),
};

/// Bytes for small things when the system has none. They are given out in a row, and all at once
/// come back when the last of them does. Pages that nobody touched cost nothing.
struct Spare {
    bytes: UnsafeCell<[u8; SPARE_BYTES]>,
    is_taken: AtomicBool,
    used: AtomicUsize,
    live: AtomicUsize,
}

// SAFETY: each byte is given to one owner at a time, under `is_taken`.
unsafe impl Sync for Spare {}

impl Spare {
    fn start(&self) -> usize {
        self.bytes.get() as usize
    }

    #[inline(always)]
    fn holds(&self, pointer: *mut u8) -> bool {
        (pointer as usize).wrapping_sub(self.start()) < SPARE_BYTES
    }

    /// Runs `work` alone; none when others keep it for long, as in a fork amid their work.
    fn alone<R>(&self, work: impl FnOnce() -> R) -> Option<R> {
        for _ in 0..SPINS {
            if !self.is_taken.swap(true, Ordering::Acquire) {
                let answer = work();
                self.is_taken.store(false, Ordering::Release);
                return Some(answer);
            }
            spin_loop();
        }
        None
    }

    #[cold]
    fn take(&self, layout: Layout) -> *mut u8 {
        if layout.size() >= LARGE_BYTES {
            return null_mut();
        }
        let taken = self.alone(|| {
            let from = (self.start() + self.used.load(Ordering::Relaxed))
                .checked_next_multiple_of(layout.align())?;
            let end = from.checked_add(layout.size())?.checked_sub(self.start())?;
            if end > SPARE_BYTES {
                return None;
            }
            self.used.store(end, Ordering::Relaxed);
            self.live.fetch_add(1, Ordering::Relaxed);
            // SAFETY: `from` is inside (checked), and nobody else has got these bytes.
            Some(unsafe { self.bytes.get().cast::<u8>().add(from - self.start()) })
        });
        taken.flatten().unwrap_or(null_mut())
    }

    #[cold]
    fn give(&self) {
        self.alone(|| {
            if self.live.fetch_sub(1, Ordering::Relaxed) == 1 {
                self.used.store(0, Ordering::Relaxed);
            }
        });
    }
}

// SAFETY: whatever the system gives is its own to take back, whatever the spare gave is inside the
// spare's bytes and nobody else's until it is given back.
unsafe impl GlobalAlloc for Frugal {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are the system's.
        let pointer = unsafe { System.alloc(layout) };
        if pointer.is_null() { SPARE.take(layout) } else { pointer }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are the system's.
        let pointer = unsafe { System.alloc_zeroed(layout) };
        if !pointer.is_null() {
            return pointer;
        }
        let spare = SPARE.take(layout);
        if !spare.is_null() {
            // SAFETY: just given to us, this long; what it held before is not zero.
            unsafe { spare.write_bytes(0, layout.size()) };
        }
        spare
    }

    #[inline]
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        if SPARE.holds(pointer) {
            return SPARE.give();
        }
        // SAFETY: not from the spare, so from the system; the rest the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !SPARE.holds(pointer) {
            // SAFETY: from the system; the rest the caller promises.
            let moved = unsafe { System.realloc(pointer, layout, size) };
            if !moved.is_null() {
                return moved;
            }
        }
        // SAFETY: the caller promises that `size`, rounded up to the alignment, is a layout.
        let wanted = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        // SAFETY: as for `alloc`; both places have as many bytes as are copied, and are apart.
        unsafe {
            let moved = self.alloc(wanted);
            if !moved.is_null() {
                moved.copy_from_nonoverlapping(pointer, layout.size().min(size));
                self.dealloc(pointer, layout);
            }
            moved
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spare_gives_bytes_apart_and_takes_all_of_them_back() {
        let layout = Layout::from_size_align(1000, 64).expect("a layout");
        let (one, two) = (SPARE.take(layout), SPARE.take(layout));
        assert!(SPARE.holds(one) && SPARE.holds(two));
        assert!((two as usize) >= one as usize + 1000 && two as usize % 64 == 0);
        SPARE.give();
        assert!(SPARE.used.load(Ordering::Relaxed) > 0);
        SPARE.give();
        assert_eq!(SPARE.used.load(Ordering::Relaxed), 0);
        let large = Layout::from_size_align(LARGE_BYTES, 8).expect("a layout");
        assert!(SPARE.take(large).is_null(), "so much has to be asked for");
    }

    #[test]
    fn there_is_room_for_megabytes_and_not_for_a_quarter_of_all_addresses() {
        assert!(has_room(1) && has_room(2 << 20));
        assert!(!has_room(usize::MAX / 4));
    }
}
