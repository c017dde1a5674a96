//! Advice about memory of our own.

use super::mapping::PAGES_BYTES;

/// Asks for large blocks of pages under bytes that are about to be filled: fresh memory comes with
/// a fault per block then, not per page, and those cost as much as reading the bytes does.
pub fn advise_blocks(bytes: &mut [u8]) {
    let start = bytes.as_ptr().align_offset(PAGES_BYTES).min(bytes.len());
    let whole = (bytes.len() - start) / PAGES_BYTES * PAGES_BYTES;
    if whole > 0 {
        // SAFETY: whole pages inside the slice (checked); advice changes no byte.
        unsafe {
            let from = bytes.as_mut_ptr().add(start);
            libc::madvise(from.cast(), whole, libc::MADV_HUGEPAGE);
        }
    }
}
