//! A file in memory. Stores are recorded when a crash test asks for it (`region`).

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::descriptor::Descriptor;
use super::sigbus;
use crate::errors::{located_file, path_of};
use crate::sys::recorder;

/// A multiple of every page size there is.
pub const PAGES_BYTES: usize = 64 << 10;
/// No page is smaller.
const LEAST_PAGE_BYTES: usize = 4 << 10;

/// A shared mapping of the first `len` bytes of a file.
///
/// Bytes below a published end never change, and words that do change are only touched through
/// the atomic accessors: that is what makes handing out `&[u8]` sound here.
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
    descriptor: Descriptor,
    /// Dropped before the memory is.
    guard: Option<sigbus::TruncationGuard>,
    writable: bool,
}

// SAFETY: the pointer is to shared memory that stays mapped until drop; all mutation is either
// atomic or made by the one holder of the append lock into bytes that nobody reads yet.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes. The file must already have them (see `region::allocate`), except where
    /// the caller grows the file before it touches the rest.
    pub fn new(file: File, len: usize, writable: bool) -> io::Result<Self> {
        let protection =
            if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        let descriptor = Descriptor::new(file)?;
        let file = descriptor.file()?;
        // SAFETY: a fresh mapping at an address of the kernel's choice; the descriptor is open.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len.max(1),
                protection,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(located_file(io::Error::last_os_error(), file));
        }
        let base = NonNull::new(base.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let guard = Some(sigbus::guard(base.as_ptr() as usize, len));
        Ok(Self { base, len, descriptor, guard, writable })
    }

    /// Maps the whole of `file` once, then the bytes from `again_from` a second time right behind
    /// it (at most `extra` of them): a ring whose records may run past the end.
    pub fn ring(
        file: File,
        len: usize,
        again_from: usize,
        extra: usize,
        writable: bool,
    ) -> io::Result<Self> {
        let protection =
            if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        let descriptor = Descriptor::new(file)?;
        let file = descriptor.file()?;
        let total = len.checked_add(extra).ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: reserves address space nobody else has; the two fixed mappings below replace
        // exactly that reservation, page by page, and both lengths are multiples of the page.
        let base = unsafe {
            let base = libc::mmap(
                std::ptr::null_mut(),
                total,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            if base == libc::MAP_FAILED {
                return Err(located_file(io::Error::last_os_error(), file));
            }
            let fixed = libc::MAP_SHARED | libc::MAP_FIXED;
            let first = libc::mmap(base, len, protection, fixed, file.as_raw_fd(), 0);
            let second = libc::mmap(
                base.cast::<u8>().add(len).cast(),
                extra,
                protection,
                fixed,
                file.as_raw_fd(),
                i64::try_from(again_from).unwrap_or(0),
            );
            if first == libc::MAP_FAILED || second == libc::MAP_FAILED {
                let error = io::Error::last_os_error();
                libc::munmap(base, total);
                return Err(located_file(error, file));
            }
            if writable {
                // Read-ahead makes large folios of pages that are stored to one by one, and each
                // first store to a page then costs as much as its whole folio.
                libc::madvise(base, total, libc::MADV_RANDOM);
            }
            base
        };
        let base = NonNull::new(base.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let guard = Some(sigbus::guard(base.as_ptr() as usize, total));
        Ok(Self { base, len: total, descriptor, guard, writable })
    }

    /// Mapped bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the file was found cut short under the mapping: then bytes that were read may be
    /// zeros, and stores are lost. It stays so.
    #[inline(always)]
    pub fn is_cut(&self) -> bool {
        sigbus::hits() != 0 && self.guard.as_ref().is_some_and(sigbus::TruncationGuard::is_cut)
    }

    /// The file behind the mapping, to be asked for each time that it is used: an error if it was
    /// closed by someone else.
    pub fn file(&self) -> io::Result<&File> {
        self.descriptor.file()
    }

    /// The file's number on its device.
    pub fn inode(&self) -> u64 {
        self.descriptor.inode()
    }

    /// The file's name.
    pub fn path(&self) -> PathBuf {
        self.file().map_or_else(|_| PathBuf::from("a file that was closed"), path_of)
    }

    /// All bytes. Only those below a published end mean anything.
    #[inline(always)]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: mapped for `len` bytes until drop; see the type's comment on mutation.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }

    /// The bytes `[at, at + len)`, if they are inside.
    #[inline(always)]
    pub fn get(&self, at: usize, len: usize) -> Option<&[u8]> {
        self.bytes().get(at..at.checked_add(len)?)
    }

    /// Lets `fill` write `[at, at + len)`. The caller holds the lock that makes it the only writer.
    pub fn write_with<R>(
        &self,
        at: usize,
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> R,
    ) -> Option<R> {
        let end = at.checked_add(len)?;
        if end > self.len || !self.writable {
            return None;
        }
        // SAFETY: inside the mapping (checked), writable, and by the append lock nobody else
        // writes or reads these bytes before they are published.
        let bytes = unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr().add(at), len) };
        let answer = fill(bytes);
        if recorder::is_recording() {
            recorder::record_store(self.inode(), at, bytes);
        }
        Some(answer)
    }

    /// Stores `words` at `at`, little-endian. It is no copy of bytes: words that were put together
    /// just now are in registers, and a copy would wait until they are in memory.
    #[inline(always)]
    pub fn store_words<const N: usize>(&self, at: usize, words: &[u64; N]) {
        let is_inside = at.checked_add(N * 8).is_some_and(|end| end <= self.len);
        assert!(at % 8 == 0 && is_inside && self.writable, "words outside the mapping");
        for (index, word) in words.iter().enumerate() {
            // SAFETY: aligned and inside (asserted above for all of them), else as in `word64`.
            let to = unsafe { &*self.base.as_ptr().add(at + index * 8).cast::<AtomicU64>() };
            to.store(word.to_le(), Ordering::Relaxed);
        }
        if recorder::is_recording() {
            recorder::record_store(self.inode(), at, words.map(u64::to_le_bytes).as_flattened());
        }
    }

    /// Copies `bytes` to `at`.
    pub fn store(&self, at: usize, bytes: &[u8]) -> Option<()> {
        self.write_with(at, bytes.len(), |to| to.copy_from_slice(bytes))
    }

    /// Forgets how the whole pages of `[at, at + len)` are mapped, not what is in them. A page that
    /// was synced faults at its next store, and for a page of a large folio that costs as much as
    /// the folio; what is not mapped at all is mapped again folio by folio, with one fault.
    pub fn forget(&self, at: usize, len: usize) {
        let start = at.next_multiple_of(PAGES_BYTES);
        let end = at.saturating_add(len).min(self.len) / PAGES_BYTES * PAGES_BYTES;
        if start < end {
            // SAFETY: whole pages inside the mapping (checked), which is shared and of a file: this
            // drops page table entries alone, the bytes stay in the page cache, and a thread
            // that reads or stores meanwhile faults them in again.
            unsafe {
                let from = self.base.as_ptr().add(start);
                libc::madvise(from.cast(), end - start, libc::MADV_DONTNEED);
            }
        }
    }

    /// Whether all pages of `[at, at + len)` are in memory, at most `MOST_LOOKED_AT` bytes of them.
    pub fn is_resident(&self, at: usize, len: usize) -> bool {
        // Where pages are larger there are fewer answers, and the rest stays as it is.
        let mut pages = [1u8; Self::MOST_LOOKED_AT / LEAST_PAGE_BYTES];
        let start = at / PAGES_BYTES * PAGES_BYTES;
        let end = at.saturating_add(len).min(self.len);
        let asked = end.saturating_sub(start);
        if asked == 0 || asked > Self::MOST_LOOKED_AT {
            return asked == 0;
        }
        // SAFETY: inside the mapping (checked), from a page's beginning on, and the answer has room
        // for as many pages as so many bytes can be.
        let answer = unsafe {
            libc::mincore(self.base.as_ptr().add(start).cast(), asked, pages.as_mut_ptr())
        };
        answer == 0 && pages.iter().all(|page| page & 1 != 0)
    }

    /// What `is_resident` looks at, at most.
    pub const MOST_LOOKED_AT: usize = 512 << 10;

    /// `at`, if a word is there. Else what led here was read where the file was cut short: the
    /// caller raises soon, and until then has a word that was cut off.
    #[inline(always)]
    fn inside(&self, at: usize, size: usize) -> usize {
        let is_inside = at % size == 0 && at.saturating_add(size) <= self.len;
        if is_inside { at } else { self.cut_off(size) }
    }

    #[cold]
    fn cut_off(&self, size: usize) -> usize {
        assert!(self.is_cut() && self.len >= PAGES_BYTES, "word outside the mapping");
        (self.len - size) / size * size
    }

    /// The 8-byte word at `at`, to be used atomically.
    #[inline(always)]
    pub fn word64(&self, at: usize) -> &AtomicU64 {
        let at = self.inside(at, 8);
        // SAFETY: aligned and inside (by `inside`), the mapping lives as long as `self`, and every
        // process touches this word only through atomic loads and stores.
        unsafe { &*self.base.as_ptr().add(at).cast::<AtomicU64>() }
    }

    /// Stores `new` in the two 8-byte words from `at` on, a multiple of 16, if they are `current`, at
    /// once for all who use them, together or one of them; else answers what they are. None: the
    /// processor has no such exchange.
    #[inline(always)]
    pub fn exchange_pair(
        &self,
        at: usize,
        current: [u64; 2],
        new: [u64; 2],
    ) -> Option<Result<(), [u64; 2]>> {
        assert!(at % 16 == 0 && at + 16 <= self.len && self.writable, "words outside the mapping");
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("cmpxchg16b") {
            // SAFETY: aligned, inside and writable (asserted); the processor has the instruction;
            // to it, one on both words and one on either of them are in one order.
            return Some(unsafe { exchange_both(self.base.as_ptr().add(at).cast(), current, new) });
        }
        let _ = (current, new);
        None
    }

    /// The 4-byte word at `at`, to be used atomically.
    #[inline(always)]
    pub fn word32(&self, at: usize) -> &AtomicU32 {
        let at = self.inside(at, 4);
        // SAFETY: as in `word64`.
        unsafe { &*self.base.as_ptr().add(at).cast::<AtomicU32>() }
    }

    /// Stores a word that recovery reads: with release order, and recorded.
    #[inline(always)]
    pub fn publish64(&self, at: usize, value: u64) {
        self.word64(at).store(value, Ordering::Release);
        if recorder::is_recording() {
            recorder::record_store(self.inode(), at, &value.to_le_bytes());
        }
    }

    /// Stores a 4-byte word that recovery reads: with release order, and recorded.
    #[inline(always)]
    pub fn publish32(&self, at: usize, value: u32) {
        self.word32(at).store(value, Ordering::Release);
        if recorder::is_recording() {
            recorder::record_store(self.inode(), at, &value.to_le_bytes());
        }
    }
}

/// The exchange of `exchange_pair`. By hand: the compiler's is a call.
///
/// # Safety
/// `pair` is aligned to 16 bytes and may be written, and the processor has `cmpxchg16b`.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn exchange_both(pair: *mut u64, current: [u64; 2], new: [u64; 2]) -> Result<(), [u64; 2]> {
    let [mut low, mut high] = current;
    let is_done: u8;
    // SAFETY: by the caller. `rbx` is the compiler's own: it is as before behind the exchange, and
    // the other operands are in registers that are not `rbx`.
    unsafe {
        std::arch::asm!(
            "xchg rsi, rbx",
            "lock cmpxchg16b [rdi]",
            "mov rbx, rsi",
            "sete {is_done}",
            is_done = out(reg_byte) is_done,
            in("rdi") pair,
            inout("rsi") new[0] => _,
            in("rcx") new[1],
            inout("rax") low,
            inout("rdx") high,
            options(nostack),
        );
    }
    if is_done != 0 { Ok(()) } else { Err([low, high]) }
}

/// Bytes of a file that grows, mapped as far as they were asked for: each time four times as far.
/// What was mapped before stays, and so does what was handed out of it.
pub struct Growing {
    first: Mapping,
    further: [OnceLock<Mapping>; FURTHER],
}

const FIRST_BYTES: usize = 1 << 20;
const FURTHER: usize = 6;

impl Growing {
    /// Bytes at most.
    pub const MOST_BYTES: usize = FIRST_BYTES << (2 * FURTHER);

    /// Maps the beginning. The file must have what is touched.
    pub fn new(file: File, writable: bool) -> io::Result<Self> {
        let first = Mapping::new(file, FIRST_BYTES, writable)?;
        Ok(Self { first, further: [const { OnceLock::new() }; FURTHER] })
    }

    /// The header, and what else is within the first megabyte.
    #[inline(always)]
    pub fn first(&self) -> &Mapping {
        &self.first
    }

    /// A mapping that reaches to `end`.
    #[inline]
    pub fn to(&self, end: usize) -> io::Result<&Mapping> {
        if end <= FIRST_BYTES { Ok(&self.first) } else { self.further_to(end) }
    }

    #[inline(never)]
    fn further_to(&self, end: usize) -> io::Result<&Mapping> {
        let full = || io::Error::new(io::ErrorKind::FileTooLarge, "the file is full");
        let step = |step: &usize| FIRST_BYTES << (2 * (step + 1)) >= end;
        let step = (0..FURTHER).find(step).ok_or_else(full)?;
        let slot = self.further.get(step).ok_or_else(full)?;
        if slot.get().is_none() {
            let file = self.first.file()?.try_clone()?;
            let len = FIRST_BYTES << (2 * (step + 1));
            let _ = slot.set(Mapping::new(file, len, self.first.writable)?);
        }
        slot.get().ok_or_else(full)
    }

    /// The bytes `[at, at + len)`, if they can be had.
    #[inline]
    pub fn get(&self, at: usize, len: usize) -> Option<&[u8]> {
        self.to(at.checked_add(len)?).ok()?.get(at, len)
    }

    /// The file behind it, as `Mapping::file` has it.
    pub fn file(&self) -> io::Result<&File> {
        self.first.file()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        drop(self.guard.take());
        // SAFETY: mapped by us with this length, and nobody can hold a borrow any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len.max(1)) };
    }
}
