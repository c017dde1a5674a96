//! Rolling: the next segment gets its name while nobody appends.

use std::path::{Path, PathBuf};

use pyo3::prelude::*;

use crate::append::{Obstacle, ROLLING, Writer, WriterState};
use crate::errors;
use crate::files::region;
use crate::segment::publish::Batch;
use crate::shared::control::at;

/// The segment that is to follow: the file that was prepared for it, the name that it gets, where
/// it begins, where its first message does, and what ends the segment before it.
struct Next<'a> {
    prepared: &'a Path,
    path: &'a Path,
    base: u64,
    first: u64,
    closing: &'a [u8],
}

impl Writer {
    /// Begins `next` behind the last segment, which ends at `tail`. With the append lock held.
    fn begin(&self, state: &WriterState, tail: u64, next: &Next<'_>) -> PyResult<()> {
        let (control, segment) = (&*self.control, &*state.segment);
        // The name comes first: a tail in a segment that nobody finds would be lost. The old base
        // is noted: if we die, the next holder of the lock compares it with the last segment's
        // base, and so knows how far we got.
        control.reserve(ROLLING, segment.base());
        let next_number = control.next_number();
        if let Err(error) = region::rename(next.prepared, next.path) {
            control.reserve_nothing(tail, next_number);
            return Err(errors::os(error, next.path));
        }
        if let Some(map) = segment.map().filter(|_| !next.closing.is_empty()) {
            if next.closing.len() <= segment.room(tail) {
                map.store(segment.position(tail), next.closing);
            }
        }
        let batch =
            Batch { first: tail, end: tail, first_word: 0, next_number, now_ns: self.now() };
        let begin = || self.publish.begin(segment, &batch, next.base);
        let begun = control.publish_end(tail, begin);
        begun.map_err(|error| errors::os(error, segment.path()))?;
        // Before the tail: a reader must never look in the old segment for what is in the new one.
        control.map().publish64(at::SEGMENT_BASE, next.base);
        if next.first != tail {
            control.advance(next.first, next_number);
        }
        control.reserve_nothing(next.first, next_number);
        Ok(())
    }
}

#[pymethods]
impl Writer {
    /// Begins a new segment at `base`, if the tail is still `tail`, the next number `number` and
    /// the segment still `old_base`. False: another process has put or rolled meanwhile; prepare
    /// the segment again, or use the one that is there.
    ///
    /// `prepared` is renamed to `path`; `first` is the offset of its first message; `closing` is
    /// stored where the old one ends, if there is room.
    #[pyo3(signature = (*, old_base, tail, number, path, prepared, base, first, closing))]
    #[allow(clippy::too_many_arguments)]
    fn switch(
        &self,
        py: Python<'_>,
        old_base: u64,
        tail: u64,
        number: u64,
        path: PathBuf,
        prepared: PathBuf,
        base: u64,
        first: u64,
        closing: &[u8],
    ) -> PyResult<bool> {
        if self.current(py)?.base() != old_base {
            self.overcome(py, Obstacle::Moved(old_base))?;
        }
        if self.is_always {
            // The frames must be on the disk before anything ends their segment for ever.
            self.sync_up_to(py, tail)?;
        }
        let (state, held) = self.enter(py)?;
        let control = &*self.control;
        if control.segment_base() != old_base || state.segment.base() != old_base {
            return Ok(false);
        }
        if let Err(obstacle) = self.sound_tail(state.low) {
            drop((state, held));
            return self.overcome(py, *obstacle).map(|()| false);
        }
        if control.is_unfinished() {
            let cleared = self.clear_unfinished(&state.segment);
            cleared.map_err(|error| errors::os(error, state.segment.path()))?;
        }
        if control.tail() != tail || control.next_number() != number {
            return Ok(false);
        }
        let next = Next { prepared: &prepared, path: &path, base, first, closing };
        self.begin(&state, tail, &next)?;
        drop(held);
        self.control.wake();
        Ok(true)
    }
}
