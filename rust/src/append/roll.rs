//! Rolling: the next segment gets its name while nobody appends.

use std::path::{Path, PathBuf};

use pyo3::prelude::*;

use crate::append::write::Outcome;
use crate::append::{Obstacle, ROLLING, Writer, WriterState};
use crate::errors;
use crate::files::region;
use crate::segment::Segment;
use crate::segment::publish::Batch;
use crate::shared::control::at;
use crate::shared::lock::patiently;
use crate::shared::protocol::TailWords;

/// What a segment's header may say about its frames is so long.
const HEADER_BYTES: usize = 4;

/// The segment that is to follow the one at `old_base`, which ends at `tail` with the message before
/// `number`.
struct Next<'a> {
    old_base: u64,
    tail: u64,
    number: u64,
    /// The file that was prepared for it, and the name that it gets.
    prepared: &'a Path,
    path: &'a Path,
    base: u64,
    /// Where its first message begins.
    first: u64,
    /// What ends the old one.
    closing: &'a [u8],
    /// Where in the old one's header something is said about its frames, and what.
    header: Option<(u64, [u8; HEADER_BYTES])>,
}

impl Writer {
    /// Begins `next`, if the old one is still the last and ends as `next` says. With the append
    /// lock held, and without the interpreter lock.
    fn begin_if_current(&self, state: &WriterState, next: &Next<'_>) -> Outcome<bool> {
        let (control, segment) = (&*self.control, &*state.segment);
        if control.segment_base() != next.old_base || segment.base() != next.old_base {
            return Ok(false);
        }
        self.sound_tail(state.low)?;
        if control.is_unfinished() {
            self.clear_unfinished(segment).map_err(Obstacle::Io)?;
        }
        if control.tail() != next.tail || control.next_number() != next.number {
            return Ok(false);
        }
        self.begin(segment, next).map_err(Obstacle::Io)?;
        Ok(true)
    }

    fn begin(&self, segment: &Segment, next: &Next<'_>) -> std::io::Result<()> {
        let (control, tail, next_number) = (&*self.control, next.tail, next.number);
        // The name comes first: a tail in a segment that nobody finds would be lost. The old base
        // is noted: if we die, the next holder of the lock compares it with the last segment's
        // base, and so knows how far we got.
        control.reserve(ROLLING, segment.base());
        let finished = self.finish_header(segment, next);
        if let Err(error) = finished.and_then(|()| region::rename(next.prepared, next.path)) {
            if let (Some(map), Some((at, _))) = (segment.map(), next.header) {
                // The old one goes on.
                let _ = map.file().and_then(|file| region::write_at(file, at, &[0; HEADER_BYTES]));
            }
            control.reserve_nothing(tail, next_number);
            return Err(error);
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
        begun.map_err(|error| errors::located(error, segment.path()))?;
        // Before the tail: a reader must never look in the old segment for what is in the new one.
        control.map().publish64(at::SEGMENT_BASE, next.base);
        if next.first != tail {
            control.advance(next.first, next_number);
        }
        control.reserve_nothing(next.first, next_number);
        Ok(())
    }

    /// Writes what the old one's header says about its frames: nothing is appended to it any more.
    /// At `always` this is on the disk before anyone can put into a later segment.
    fn finish_header(&self, segment: &Segment, next: &Next<'_>) -> std::io::Result<()> {
        let (Some(map), Some((at, bytes))) = (segment.map(), next.header) else { return Ok(()) };
        region::write_at(map.file()?, at, &bytes)?;
        match self.is_always {
            true => self.control.sync(|| region::sync(map.file()?)),
            false => Ok(()),
        }
    }
}

#[pymethods]
impl Writer {
    /// Begins a new segment at `base`, if the tail is still `tail`, the next number `number` and
    /// the segment still `old_base`. False: another process has put or rolled meanwhile; prepare
    /// the segment again, or use the one that is there.
    ///
    /// `prepared` is renamed to `path`; `first` is the offset of its first message; `closing` is
    /// stored where the old one ends, if there is room; `header` is written to the old one's file
    /// before that, and synced at `always`: where, and what.
    #[pyo3(signature = (*, old_base, tail, number, path, prepared, base, first, closing, header))]
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
        header: Option<(u64, [u8; HEADER_BYTES])>,
    ) -> PyResult<bool> {
        if self.current(py)?.base() != old_base {
            self.overcome(py, Obstacle::Moved(old_base))?;
        }
        if self.is_always {
            // The frames must be on the disk before anything ends their segment for ever.
            self.sync_up_to(py, tail)?;
        }
        let (prepared, path) = (&*prepared, &*path);
        let next = Next { old_base, tail, number, prepared, path, base, first, closing, header };
        let done = patiently(py, self.control.life(), || {
            let (state, _held) = self.enter_detached()?;
            Ok(self.begin_if_current(&state, &next))
        })?;
        match done.map_err(|error| errors::os(error, path))? {
            Ok(true) => {
                self.control.wake();
                Ok(true)
            }
            Ok(false) => Ok(false),
            Err(obstacle) => self.overcome(py, *obstacle).map(|()| false),
        }
    }
}
