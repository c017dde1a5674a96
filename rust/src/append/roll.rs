//! Rolling: the next segment gets its name while nobody appends.

use pyo3::prelude::*;

use crate::append::{Obstacle, ROLLING, Writer};
use crate::errors;
use crate::files::region;
use crate::segment::publish::Batch;

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
        path: std::path::PathBuf,
        prepared: std::path::PathBuf,
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
        // The name comes first: a tail in a segment that nobody finds would be lost. The old base
        // is noted: if we die, the next holder of the lock compares it with the last segment's
        // base, and so knows how far we got.
        control.reserve(ROLLING, old_base);
        if let Err(error) = region::rename(&prepared, &path) {
            control.reserve_nothing(tail, control.next_number());
            return Err(errors::os(error, &path));
        }
        if let Some(map) = state.segment.map().filter(|_| !closing.is_empty()) {
            if closing.len() <= state.segment.room(tail) {
                map.store(state.segment.position(tail), closing);
            }
        }
        let next_number = control.next_number();
        let batch =
            Batch { first: tail, end: tail, first_word: 0, next_number, now_ns: self.now() };
        let begin = || self.publish.begin(&state.segment, &batch, base);
        let begun = control.publish_end(tail, begin);
        begun.map_err(|error| errors::os(error, state.segment.path()))?;
        // Before the tail: a reader must never look in the old segment for what is in the new one.
        control.map().publish64(crate::shared::control::at::SEGMENT_BASE, base);
        if first != tail {
            control.advance(first, next_number);
        }
        control.reserve_nothing(first, control.next_number());
        drop(held);
        self.control.wake();
        Ok(true)
    }
}
