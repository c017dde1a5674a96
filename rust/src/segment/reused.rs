//! Memory that one copy of a segment leaves to the next.
//!
//! Reading a table's worth of segments copies one after the other. Fresh memory comes as
//! zeros, and to write those took twice as long as to read the file into it. So the last copy's
//! memory is kept; while it waits the system may take it back, should it be short of any.

use std::ops::{Deref, Range, RangeInclusive};
use std::sync::Mutex;

use crate::sys::memory;

/// Less is not kept, since it costs little; nor is more, which is twice a segment's usual size.
const KEPT_BYTES: RangeInclusive<usize> = 4 << 20..=128 << 20;
/// Memory is taken in steps of this many bytes, since segments are seldom of exactly one size.
const STEP_BYTES: usize = 4 << 20;
/// As many bytes as this are made zeros again where memory is used for the next copy.
const CLEARED_BYTES: usize = 4 << 10;

static KEPT: Mutex<Option<Reused>> = Mutex::new(None);

/// Bytes of a segment that is not mapped.
#[derive(Default)]
pub struct Reused {
    room: Vec<u8>,
    len: usize,
    /// What copies have filled, this one or those before it. Empty: this is no copy.
    filled: Range<usize>,
}

impl From<Vec<u8>> for Reused {
    fn from(room: Vec<u8>) -> Self {
        Self { len: room.len(), room, filled: 0..0 }
    }
}

impl Reused {
    /// So many bytes, of which those before `at` are zeros that take no memory. None: there is not
    /// that much.
    pub fn zeros_before(at: usize, len: usize) -> Option<Self> {
        if !KEPT_BYTES.contains(&len.saturating_sub(at)) {
            return memory::has_room(len).then(|| vec![0; len].into());
        }
        if let Some(mut kept) = take(at, len) {
            let old = kept.filled.start.min(at)..at;
            kept.room.get_mut(old).unwrap_or_default().fill(0);
            kept.len = len;
            kept.filled = at..kept.filled.end.max(len);
            return Some(kept);
        }
        let room = len.next_multiple_of(STEP_BYTES);
        if !memory::has_room(room) {
            return None;
        }
        let mut found = Self { room: vec![0; room], len, filled: at..len };
        memory::advise_blocks(found.room.get_mut(at..).unwrap_or_default());
        Some(found)
    }

    /// What is to be filled.
    pub fn behind(&mut self, at: usize) -> &mut [u8] {
        self.room.get_mut(at..self.len).unwrap_or_default()
    }
}

impl Deref for Reused {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.room.get(..self.len).unwrap_or_default()
    }
}

impl Drop for Reused {
    fn drop(&mut self) {
        if !KEPT_BYTES.contains(&self.filled.len()) {
            return;
        }
        let mut mine = std::mem::take(self);
        memory::lend(mine.room.get_mut(mine.filled.clone()).unwrap_or_default());
        let before = match KEPT.try_lock() {
            Ok(mut kept) => kept.replace(mine),
            Err(_) => Some(mine),
        };
        if let Some(mut before) = before {
            before.filled = 0..0; // It is freed, outside of the lock.
        }
    }
}

/// What was kept, if it is large enough and has hardly more than zeros before `at`. A child that was
/// forked while another thread was here finds the lock taken for ever, and does without.
fn take(at: usize, len: usize) -> Option<Reused> {
    let mut kept = KEPT.try_lock().ok()?;
    let is_clear = |kept: &Reused| at <= kept.filled.start.saturating_add(CLEARED_BYTES);
    let fits = |kept: &Reused| len <= kept.room.len() && is_clear(kept);
    if kept.as_ref().is_some_and(fits) { kept.take() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = 5 << 20;

    #[test]
    fn a_copy_gets_the_memory_of_the_last_one_and_zeros_before_it() {
        let mut first = Reused::zeros_before(64, LEN).unwrap();
        first.behind(64).fill(7);
        let place = first.as_ptr();
        drop(first);
        let mut later = Reused::zeros_before(32, LEN - 9).unwrap();
        assert_eq!((later.as_ptr(), later.len()), (place, LEN - 9));
        assert!(later[..32].iter().all(|byte| *byte == 0));
        assert_eq!(later.behind(32).len(), LEN - 9 - 32);
        later.behind(32).fill(8);
        drop(later);
        let mut further_back = Reused::zeros_before(40, LEN).unwrap();
        assert_eq!(further_back.as_ptr(), place);
        assert!(further_back[..40].iter().all(|byte| *byte == 0));
        further_back.behind(40).fill(9);
        drop(further_back);
        let far = 3 * CLEARED_BYTES;
        let far_back = Reused::zeros_before(far, far + LEN).unwrap();
        assert!(far_back[..far].iter().all(|byte| *byte == 0), "it is not the kept one");
    }
}
