//! The append: one native call from `Queue.put` to bytes in the segment.
//!
//! Order, under the append lock: announce what will be occupied; copy the frames; publish them
//! (the first size word, or the format's own end); move the tail; give the lock back; wake. A
//! holder that dies anywhere leaves either the old tail and bytes that its successor clears, or
//! the new tail with everything below it in place.

pub mod arrow_in;
pub mod atomic;
mod limits;
mod note;
mod pack;
mod prefault;
mod roll;
pub mod sync;
mod write;

use std::borrow::Borrow;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};

use crate::append::limits::{batch_limit, mark_of, measure, refuse_large, rough_size};
use crate::append::note::Note;
use crate::append::pack::{Pieces, copy_packed, encode_all, pack};
use crate::append::prefault::Prefault;
use crate::append::write::{Obstacle, Outcome, Way};
use crate::clock::{Clock, seconds_to_ns};
use crate::errors;
use crate::message::{Body, Message, encode_headers, utf8};
use crate::segment::frame::{Draft, Drafts, NO_TIME, Place};
use crate::segment::publish::PyPublish;
use crate::segment::publish::{Batch, Publish};
use crate::segment::{PySegment, Segment};
use crate::shared::control::{Control, ROLLING, Shared, at};
use crate::shared::lock::{Held, Hindrance, patiently};
use crate::shared::mutex;
use crate::shared::pace::Pace;
use crate::shared::protocol::TailWords;
use crate::shared::retry_limit::RetryLimit;
use crate::sys::sigbus;

pub(crate) struct WriterState {
    pub(crate) segment: Arc<Segment>,
    /// The tail was here when this process looked last: it never goes back.
    low: u64,
    /// When the tail gets here, the next segment should be prepared.
    mark: u64,
    /// When the tail gets here, pages ahead of it should be made.
    step: u64,
    /// The segment has its pages up to this byte.
    made: usize,
    sizes: Vec<usize>,
    scratch: Vec<u8>,
}

impl WriterState {
    fn new(segment: &Arc<Segment>, low: u64) -> Self {
        let (mark, segment) = (mark_of(segment, false), Arc::clone(segment));
        Self { low, mark, step: 0, made: 0, segment, sizes: Vec::new(), scratch: Vec::new() }
    }

    /// From now on appends go to `segment`; returns the segment before it.
    fn turn_to(&mut self, segment: &Arc<Segment>, is_quick: bool) -> Arc<Segment> {
        (self.mark, self.step, self.made) = (mark_of(segment, is_quick), 0, 0);
        std::mem::replace(&mut self.segment, Arc::clone(segment))
    }
}

/// Appends to one queue. One per open queue, shared by its threads.
#[pyclass(frozen, module = "penstock._core")]
pub struct Writer {
    pub(crate) control: Arc<Control>,
    pub(crate) publish: Arc<dyn Publish>,
    clock: Py<Clock>,
    pub(crate) host: Py<PyAny>,
    state: Mutex<WriterState>,
    pub(crate) is_always: bool,
    wants_sync: bool,
    is_encrypting: bool,
    pub(crate) max_message_bytes: AtomicUsize,
    max_bytes: AtomicU64,
    delay_ns: AtomicI64,
    pub(crate) pace: Pace,
    ahead: Prefault,
    /// How often the maintenance threads of this opener were asked to do something at once.
    work: AtomicU32,
    is_closed: AtomicBool,
}

impl Writer {
    /// What this process knows of the segment. An error in a forked child: there a thread of the
    /// parent may hold the lock around it for ever.
    fn state<'a>(&'a self, py: Python<'_>) -> PyResult<MutexGuard<'a, WriterState>> {
        if self.control.life().is_over() {
            return Err(self.control.closed(py));
        }
        Ok(mutex::lock(py, &self.state))
    }

    /// The state and the append lock, to be given back before the interpreter lock is let go.
    /// Signals are looked at while neither is held: a handler may put, or close the queue.
    pub(crate) fn enter<'a>(
        &'a self,
        py: Python<'_>,
    ) -> PyResult<(MutexGuard<'a, WriterState>, Held<'a>)> {
        let (life, word) = (self.control.life(), self.control.lock_word());
        loop {
            let state = self.state(py)?;
            if life.take_soon(py, word).is_some() {
                let held = Held::new(life, word);
                if self.is_over() {
                    return Err(self.control.closed(py));
                }
                return Ok((state, held));
            }
            drop(state);
            py.check_signals()?;
        }
    }

    /// The same for a caller that has let the interpreter lock go, and syncs under the append lock.
    fn enter_detached(&self) -> std::io::Result<(MutexGuard<'_, WriterState>, Held<'_>)> {
        let state = self.state.lock().unwrap_or_else(|e| e.into_inner());
        let held = self.control.life().hold(self.control.lock_word())?;
        match self.is_over() {
            true => Err(std::io::Error::other(Hindrance::Over)),
            false => Ok((state, held)),
        }
    }

    /// Clears what a dead holder left half done. With the lock held.
    pub(crate) fn clear_unfinished(&self, segment: &Segment) -> std::io::Result<()> {
        let control = &*self.control;
        let (reserved, _) = control.unfinished();
        let (mut tail, next_number) = control.end_and_number();
        let is_rolled = reserved == ROLLING && !self.is_mid_roll();
        if is_rolled {
            // Only the tail was left to be moved, in formats where the new segment does not begin
            // at the end of the old one.
            tail = tail.max(control.segment_base());
        }
        control.advance(tail, next_number);
        if !is_rolled {
            let reserved = if reserved == ROLLING { tail } else { reserved };
            let batch = Batch { first: tail, end: tail, first_word: 0, next_number, now_ns: 0 };
            control.publish_end(tail, || self.publish.drop_above(segment, &batch, reserved))?;
        }
        if !self.is_mid_roll() && !self.is_encrypting {
            // Otherwise the caller rolls now: if it dies in that, the next one needs what is noted.
            control.reserve_nothing(tail, next_number);
        }
        Ok(())
    }

    /// Whether a holder died in the middle of a roll: the new segment may have its name, and the
    /// control block does not have its base yet. Once it does, the base that the holder noted is no
    /// longer the last segment's, and the roll counts as done.
    fn is_mid_roll(&self) -> bool {
        self.control.unfinished() == (ROLLING, self.control.segment_base())
    }

    fn append(&self, py: Python<'_>, drafts: &[Draft<'_>]) -> PyResult<u64> {
        let (first, end) = self.append_unsynced(py, drafts)?;
        if self.is_always {
            self.sync_up_to(py, end)?;
        }
        Ok(first)
    }

    /// Appends a body alone, for a format that keeps no times.
    pub fn append_body(&self, py: Python<'_>, body: &[u8]) -> PyResult<u64> {
        self.append(py, &[Draft { body, timestamp_ns: 0, ..Draft::default() }])
    }

    /// Whether the queue was closed, or this process is a fork of the one that opened it.
    pub fn is_over(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed) || self.control.life().is_over()
    }

    /// Appends all of `drafts` or nothing; answers the first offset and the new tail.
    #[inline]
    pub fn append_unsynced(&self, py: Python<'_>, drafts: &[Draft<'_>]) -> PyResult<(u64, u64)> {
        if self.is_synced_first(drafts) {
            return self.append_detached(py, drafts, None);
        }
        let mut in_vain = RetryLimit::default();
        loop {
            let (mut state, held) = self.enter(py)?;
            let done = self.append_checked(&mut state, drafts, None);
            let end = state.low;
            drop(held);
            drop(state);
            match done {
                Ok(first) => {
                    self.control.wake();
                    return Ok((first, end));
                }
                Err(obstacle) => self.overcome_again(py, *obstacle, &mut in_vain)?,
            }
        }
    }

    /// The same where something is synced with the append lock held: it lets the interpreter lock
    /// go before it takes that. With `note` it notes the drafts there before anyone sees them.
    pub fn append_detached<D: Drafts + ?Sized>(
        &self,
        py: Python<'_>,
        drafts: &D,
        note: Option<&Note>,
    ) -> PyResult<(u64, u64)> {
        let mut in_vain = RetryLimit::default();
        loop {
            let done = patiently(py, self.control.life(), || {
                let (mut state, _held) = self.enter_detached()?;
                Ok(self.append_checked(&mut state, drafts, note).map(|first| (first, state.low)))
            })?;
            match done? {
                Ok(done) => {
                    self.control.wake();
                    return Ok(done);
                }
                Err(obstacle) => self.overcome_again(py, *obstacle, &mut in_vain)?,
            }
        }
    }

    #[cold]
    fn overcome_again(
        &self,
        py: Python<'_>,
        obstacle: Obstacle,
        in_vain: &mut RetryLimit,
    ) -> PyResult<()> {
        if let Obstacle::Moved(base) | Obstacle::SegmentFull(base, _) = obstacle {
            in_vain.again(py, || self.control.file_path(), base)?;
        }
        self.overcome(py, obstacle)
    }

    /// Appends, unless a file was cut short under its mapping: then the frames are in no file.
    /// Returns the first offset; the new tail is in `state`.
    fn append_checked<D: Drafts + ?Sized>(
        &self,
        state: &mut WriterState,
        drafts: &D,
        note: Option<&Note>,
    ) -> Outcome<u64> {
        if let Some(path) = self.control.cut_file() {
            return Err(Obstacle::Vanished(path).into());
        }
        let done = self.append_locked(state, drafts, note);
        if sigbus::hits() != 0 && !is_poisoned(&done) {
            self.check_cut(state)?;
        }
        done
    }

    #[cold]
    fn check_cut(&self, state: &WriterState) -> Outcome<()> {
        let segment = state.segment.is_cut().then(|| state.segment.path().to_path_buf());
        match self.control.cut_file().or(segment) {
            None => Ok(()),
            Some(path) => {
                self.control.poison();
                Err(Obstacle::Vanished(path).into())
            }
        }
    }

    /// Has Python decide what to do about `obstacle`, which is rare.
    #[cold]
    pub(crate) fn overcome(&self, py: Python<'_>, obstacle: Obstacle) -> PyResult<()> {
        match obstacle {
            Obstacle::Moved(base) => {
                let segment = self.host.call_method1(py, "writable_segment", (base,))?;
                let segment = segment.bind(py).cast::<PySegment>()?.get();
                let before = self.state(py)?.turn_to(&segment.0, self.ahead.is_quick());
                py.detach(move || drop(before)); // It may be unmapped here.
                Ok(())
            }
            Obstacle::SegmentFull(base, needed) => {
                self.host.call_method1(py, "roll", (base, needed)).map(drop)
            }
            Obstacle::QueueFull(needed) => {
                self.host.call_method1(py, "make_room", (needed,)).map(drop)
            }
            Obstacle::Unfit(why) => self.host.call_method1(py, "unfit", (why,)).map(drop),
            Obstacle::Refused(why) => Err(errors::refused(py, &why)),
            Obstacle::Poisoned => Err(self.control.poisoned(py)),
            Obstacle::Vanished(path) => Err(errors::vanished(py, &path)),
            Obstacle::Impossible(tail, low) => {
                let (path, found) = (self.control.file_path(), format!("tail {tail}"));
                let expected = format!("where a frame may begin, {low} or above");
                Err(errors::corrupt(py, &path, at::TAIL, &found, &expected))
            }
            Obstacle::Io(error) => Err(errors::os(error, self.current(py)?.path())),
        }
    }

    /// The append itself, with the lock held: checks, then frames, then what makes them visible.
    #[inline(always)]
    fn append_locked<D: Drafts + ?Sized>(
        &self,
        state: &mut WriterState,
        drafts: &D,
        note: Option<&Note>,
    ) -> Outcome<u64> {
        let tail = self.tail_in(state)?;
        let most = self.max_message_bytes.load(Ordering::Relaxed);
        let total = measure(&state.segment, drafts, &mut state.sizes, most)?;
        let tail = match self.control.is_unfinished() {
            true => self.cleared_tail(&state.segment, total)?,
            false => tail,
        };
        self.check_room(state, tail, total)?;
        let batch = self.place_frames(state, drafts, tail, total)?;
        if let Some(note) = note {
            // Frames, then the note, then the word: a process that finds the note can tell from
            // the frames' check whether the word was stored, and a torn batch is never seen.
            note.write(&self.control, &state.segment, &batch).map_err(Obstacle::Io)?;
        }
        if self.is_held_back(drafts.count()) {
            // The word that shows the batch must not reach the disk before all of it has.
            let synced = self.control.sync(|| state.segment.sync(false));
            let written = || state.segment.write_word(batch.first, batch.first_word);
            synced.and_then(|()| written()).map_err(Obstacle::Io)?;
        }
        let publish = || match self.is_always {
            true => self.publish.publish_by_write(&state.segment, &batch).map(|()| true),
            false => self.publish.publish(&state.segment, &batch).map(|()| true),
        };
        match self.publish.is_word() {
            false => publish().map(drop).map_err(Obstacle::Io)?,
            true if self.is_always => {} // The sync publishes it.
            true => self.control.publish_end(batch.end, publish).map_err(Obstacle::Io)?,
        }
        self.control.advance(batch.end, batch.next_number);
        self.look_ahead(state, &batch);
        Ok(tail)
    }

    /// The tail, if it can be true: what this process knows counts more than a word of the control
    /// block. It is never below a tail that was seen here, and while an append is unfinished its
    /// complement must agree.
    #[inline(always)]
    fn sound_tail(&self, low: u64) -> Outcome<u64> {
        let (control, tail) = (&*self.control, self.control.tail());
        if tail < low || (control.is_unfinished() && !control.is_tail_whole()) {
            return Err(Obstacle::Impossible(tail, low).into());
        }
        Ok(tail)
    }

    /// The tail, if it is in the segment that this process knows.
    #[inline(always)]
    fn tail_in(&self, state: &WriterState) -> Outcome<u64> {
        let (control, segment) = (&*self.control, &*state.segment);
        if control.is_poisoned() {
            return Err(Obstacle::Poisoned.into());
        }
        let has_ended = segment.end() != crate::segment::LIVE || segment.is_stale();
        if control.segment_base() != segment.base() || has_ended {
            if control.segment_base() > control.tail() && !control.is_unfinished() {
                return Err(Obstacle::Impossible(control.tail(), control.segment_base()).into());
            }
            return Err(Obstacle::Moved(control.segment_base()).into());
        }
        let tail = self.sound_tail(state.low)?;
        if self.publish.foreign_end().is_some_and(|end| end > tail) {
            return Err(Obstacle::Moved(segment.base()).into()); // Another program has appended.
        }
        Ok(tail)
    }

    /// An appender died: clears what it left, and returns the tail as it is then.
    #[cold]
    fn cleared_tail(&self, segment: &Segment, total: usize) -> Outcome<u64> {
        if self.is_encrypting || self.is_mid_roll() {
            // Ciphertext of the dead appender may be on the disk: its offsets must not be used
            // again under this segment's key. After an unfinished roll, a segment that begins at
            // the tail may have its name already. Both times a new segment is begun.
            return Err(Obstacle::SegmentFull(segment.base(), total).into());
        }
        self.clear_unfinished(segment).map_err(Obstacle::Io)?;
        match segment.is_stale() {
            true => Err(Obstacle::Moved(segment.base()).into()),
            false => Ok(self.control.tail()),
        }
    }

    /// Whether `total` bytes of frames may go to `tail`, and fit.
    #[inline(always)]
    fn check_room(&self, state: &WriterState, tail: u64, total: usize) -> Outcome<()> {
        let WriterState { segment, low, .. } = state;
        if !segment.may_begin(tail) {
            // The file was cut short before it was opened: readers are told of the damage, and the
            // queue goes on in a new segment.
            return Err(Box::new(match tail == *low {
                true => Obstacle::SegmentFull(segment.base(), total),
                false => Obstacle::Impossible(tail, *low),
            }));
        }
        if segment.is_spoiled() {
            return Err(Obstacle::SegmentFull(segment.base(), total).into());
        }
        let max_bytes = self.max_bytes.load(Ordering::Relaxed);
        let kept = tail.saturating_sub(self.control.head());
        if max_bytes != 0 && kept.saturating_add(total as u64) > max_bytes {
            return Err(Obstacle::QueueFull(total).into());
        }
        let needed = total.saturating_add(segment.frames().trailing_zeros());
        if needed > segment.room(tail) {
            return Err(full(segment, total).into());
        }
        segment.ensure(segment.position(tail) + needed).map_err(|error| Obstacle::Io(error).into())
    }

    /// Announces which bytes will be occupied, and puts the frames there and their notes beside
    /// them.
    #[inline(always)]
    fn place_frames<D: Drafts + ?Sized>(
        &self,
        state: &mut WriterState,
        drafts: &D,
        tail: u64,
        total: usize,
    ) -> Outcome<Batch> {
        let (control, WriterState { segment, sizes, scratch, made, .. }) = (&*self.control, state);
        let number = control.next_number();
        let first = Place { offset: tail, number, has_more: false };
        let packed = pack(segment, drafts, sizes, first);
        let total = packed.as_ref().map_or(total, |(bytes, _)| bytes.len());
        let batch = Batch {
            first: tail,
            end: tail + total as u64,
            first_word: 0,
            next_number: number + drafts.count() as u64,
            now_ns: drafts.each().map(|draft| draft.borrow().timestamp_ns).max().unwrap_or(0),
        };
        control.reserve(batch.end, batch.next_number);
        let fill = |out: &mut [u8]| match &packed {
            Some((bytes, word)) => copy_packed(bytes, *word, out),
            None => encode_all(segment, drafts, sizes, first, out),
        };
        if let Some(sides) = segment.sides() {
            // What a frame can't hold is noted before anyone can meet the frame.
            let synced = self.is_always.then_some(control);
            let mut noted = drafts.whole();
            if segment.frames().holds_key() {
                noted.to_mut().iter_mut().for_each(|draft| draft.key = &[]);
            }
            sides.note_extras(&noted, sizes, first, synced).map_err(Obstacle::Io)?;
        }
        let len = total + segment.frames().trailing_zeros();
        let way = Way { is_held_back: self.is_held_back(drafts.count()), ..self.way() };
        let position = segment.position(tail);
        let first_word = if way.is_in_pieces(segment, len) {
            let packed = packed.as_ref().map(|(bytes, _)| bytes.as_slice());
            let pieces = Pieces::of(segment, drafts.each(), sizes, first, packed);
            way.place_pieces(segment, scratch, position, pieces)?
        } else {
            if position + len > *made && way.is_stored(segment, len) {
                *made = self.ahead.make_now(segment, position.max(*made), position + len);
            }
            way.place(segment, scratch, position, len, fill)?
        };
        if let Some(sides) = segment.sides() {
            let frame = |offset, size| segment.frame_bytes(offset, size);
            sides.note_checksums(frame, sizes, tail).map_err(Obstacle::Io)?;
        }
        Ok(Batch { first_word, ..batch })
    }

    #[inline(always)]
    fn way(&self) -> Way {
        Way { is_always: self.is_always, is_encrypting: self.is_encrypting, is_held_back: false }
    }

    /// Whether a batch of so many messages is synced before its first word is stored, and again
    /// after it: nothing else in the format's files tells after a power cut which frames were put
    /// together.
    #[inline(always)]
    fn is_held_back(&self, count: usize) -> bool {
        self.is_always && count > 1 && self.publish.is_first_word()
    }

    /// Whether something may be synced with the append lock held: the frames of a list, or keys and
    /// due times that the format has no place for.
    #[inline(always)]
    fn is_synced_first(&self, drafts: &[Draft<'_>]) -> bool {
        let has_extras = |draft: &Draft<'_>| !draft.key.is_empty() || draft.due_ns != 0;
        self.is_held_back(drafts.len()) || (self.is_always && drafts.iter().any(has_extras))
    }

    /// After an append: asks for what later appends will need: a sync, the next segment, pages.
    #[inline(always)]
    fn look_ahead(&self, state: &mut WriterState, batch: &Batch) {
        let WriterState { segment, low, mark, step, .. } = state;
        *low = batch.end;
        if self.wants_sync {
            self.control.ask_for_sync();
        }
        if batch.end >= *mark {
            *mark = u64::MAX;
            self.ask_for_work();
        }
        if batch.end >= *step {
            let is_first = std::mem::replace(step, u64::MAX) == 0;
            let len = crate::bytes::words::size(batch.end - batch.first);
            if self.way().is_stored(segment, len) {
                *step = self.ahead.step(segment, batch.end, is_first, self.wants_sync);
            } else if !self.is_always {
                *step = batch.end;
            }
        }
    }

    /// How long a message is held back.
    fn delay(&self, delay_s: Option<f64>) -> PyResult<i64> {
        match delay_s {
            None => Ok(self.delay_ns.load(Ordering::Relaxed)),
            Some(seconds) => seconds_to_ns("delay", seconds),
        }
    }

    /// Appends a list too long for one segment in pieces, in order.
    pub fn append_many(&self, py: Python<'_>, drafts: &[Draft<'_>]) -> PyResult<Option<u64>> {
        let segment = self.current(py)?;
        let limit = batch_limit(&segment);
        let mut first = None;
        let mut rest = drafts;
        while !rest.is_empty() {
            let mut bytes = 0usize;
            let fits = rest.iter().take_while(|draft| {
                bytes = bytes.saturating_add(rough_size(draft));
                bytes <= limit
            });
            let count = fits.count().max(1);
            let (now, later) = rest.split_at(count);
            let offset = self.append(py, now)?;
            first.get_or_insert(offset);
            rest = later;
        }
        Ok(first)
    }

    /// The segment that is appended to, as this process knows it.
    pub fn current(&self, py: Python<'_>) -> PyResult<Arc<Segment>> {
        Ok(Arc::clone(&self.state(py)?.segment))
    }

    /// The clock's wall time.
    pub fn now(&self) -> i64 {
        self.clock.get().wall()
    }

    /// Sets the times of drafts that came from elsewhere.
    pub fn stamp_all(&self, drafts: &mut [Draft<'_>], delay_s: Option<f64>) -> PyResult<()> {
        let (now_ns, delay_ns) = (self.now(), self.delay(delay_s)?);
        for draft in drafts {
            *draft = stamp(*draft, now_ns, delay_ns);
        }
        Ok(())
    }
}

fn is_poisoned(done: &Outcome<u64>) -> bool {
    done.as_ref().is_err_and(|obstacle| matches!(**obstacle, Obstacle::Poisoned))
}

/// A draft with its times set.
#[inline]
fn stamp(draft: Draft<'_>, now_ns: i64, delay_ns: i64) -> Draft<'_> {
    let due_ns = if delay_ns > 0 { now_ns.saturating_add(delay_ns) } else { draft.due_ns };
    let timestamp_ns = if draft.timestamp_ns == NO_TIME { now_ns } else { draft.timestamp_ns };
    Draft { timestamp_ns, due_ns, ..draft }
}

/// Why `needed` bytes do not fit: a ring must wait for its consumers, any other segment is followed
/// by a new one.
fn full(segment: &Segment, needed: usize) -> Obstacle {
    match segment.ring() {
        None => Obstacle::SegmentFull(segment.base(), needed),
        Some(ring) if needed as u64 > ring.len() => Obstacle::Refused(format!(
            "{needed} bytes never fit into the ring of {} bytes; resize the queue",
            ring.len()
        )),
        Some(_) => Obstacle::QueueFull(needed),
    }
}

#[pymethods]
impl Writer {
    /// `host` has `writable_segment(base)`, `roll(base, needed)`, `make_room(needed)`,
    /// `unsynced_segments(durable)`.
    #[new]
    #[pyo3(signature = (shared, segment, publish, clock, host, *, always, wants_sync, encrypting, max_message_bytes, max_bytes, delay_ns, quick_step_ns))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        shared: &Shared,
        segment: &PySegment,
        publish: &PyPublish,
        clock: Py<Clock>,
        host: Py<PyAny>,
        always: bool,
        wants_sync: bool,
        encrypting: bool,
        max_message_bytes: usize,
        max_bytes: u64,
        delay_ns: i64,
        quick_step_ns: u64,
    ) -> Self {
        Self {
            control: Arc::clone(&shared.control),
            publish: Arc::clone(&publish.0),
            clock,
            host,
            state: Mutex::new(WriterState::new(&segment.0, shared.control.tail())),
            is_always: always,
            wants_sync,
            is_encrypting: encrypting,
            max_message_bytes: max_message_bytes.into(),
            max_bytes: max_bytes.into(),
            delay_ns: delay_ns.into(),
            pace: Pace::default(),
            ahead: Prefault::new(Duration::from_nanos(quick_step_ns)),
            work: AtomicU32::new(0),
            is_closed: AtomicBool::new(false),
        }
    }

    /// Puts one message and returns its offset.
    ///
    /// `tag` is what groups filter on, `id` your own name for it, `key` orders it among messages
    /// with the same key, `headers` are text, `delay` keeps it back for that many seconds.
    #[pyo3(signature = (body, *, tag=None, id=None, key=None, headers=None, delay=None, timestamp_ns=None))]
    #[allow(clippy::too_many_arguments)]
    fn put<'py>(
        &self,
        py: Python<'py>,
        body: &Bound<'py, PyAny>,
        tag: Option<&Bound<'py, PyString>>,
        id: Option<&Bound<'py, PyString>>,
        key: Option<&Bound<'py, PyString>>,
        headers: Option<&Bound<'py, PyDict>>,
        delay: Option<f64>,
        timestamp_ns: Option<i64>,
    ) -> PyResult<u64> {
        let body = Body::of(body)?;
        let headers = if headers.is_some() { encode_headers(headers)? } else { Vec::new() };
        let draft = Draft {
            body: body.bytes(),
            tag: utf8("tag", tag)?,
            id: utf8("id", id)?,
            key: utf8("key", key)?,
            headers: &headers,
            timestamp_ns: timestamp_ns.unwrap_or(NO_TIME),
            due_ns: 0,
        };
        let draft = stamp(draft, self.clock.get().wall(), self.delay(delay)?);
        self.append(py, &[draft])
    }

    /// Puts a list of bodies or messages; returns the first one's offset, none for an empty list.
    ///
    /// They become visible together; only a list of more than half a segment goes in pieces.
    #[pyo3(signature = (items, *, tag=None, delay=None))]
    fn put_list<'py>(
        &self,
        py: Python<'py>,
        items: &Bound<'py, PyAny>,
        tag: Option<&Bound<'py, PyString>>,
        delay: Option<f64>,
    ) -> PyResult<Option<u64>> {
        let tag = utf8("tag", tag)?;
        // The items are held one by one: a roll calls Python, which may change the list.
        let items: Vec<Bound<'py, PyAny>> = match items.cast::<PyList>() {
            Ok(list) => list.iter().collect(),
            Err(_) => items.try_iter()?.collect::<PyResult<_>>()?,
        };
        let (now_ns, delay_ns) = (self.now(), self.delay(delay)?);
        let mut copies = Vec::new();
        for item in &items {
            if let Ok(message) = item.cast::<Message>() {
                message.get().check_whole(py)?;
            }
            if !item.is_instance_of::<PyBytes>() && !item.is_instance_of::<Message>() {
                copies.push(Body::of(item)?);
            }
        }
        let mut copied = copies.iter();
        let drafts = items.iter().map(|item| {
            let draft = if let Ok(bytes) = item.cast::<PyBytes>() {
                Draft { body: bytes.as_bytes(), tag, ..Draft::default() }
            } else if let Ok(message) = item.cast::<Message>() {
                message.get().draft()
            } else {
                let body = copied.next().map_or(&[][..], Body::bytes);
                Draft { body, tag, ..Draft::default() }
            };
            stamp(draft, now_ns, delay_ns)
        });
        let drafts: Vec<Draft<'_>> = drafts.collect();
        self.append_many(py, &drafts)
    }

    /// Why the queue can't hold `message`; none when it can.
    fn refusal(&self, py: Python<'_>, message: &Message) -> PyResult<Option<String>> {
        let draft = message.draft();
        let most = self.max_message_bytes.load(Ordering::Relaxed);
        let segment = self.current(py)?;
        Ok(refuse_large(&draft, most)
            .and_then(|()| segment.frames().measure(&draft).map(drop))
            .err())
    }

    /// The segment that is appended to, as this process knows it.
    #[getter]
    fn segment(&self, py: Python<'_>) -> PyResult<PySegment> {
        Ok(PySegment(self.current(py)?))
    }

    /// New limits, at once.
    #[pyo3(signature = (*, max_bytes=None, delay_ns=None, max_message_bytes=None))]
    fn set_limits(
        &self,
        max_bytes: Option<u64>,
        delay_ns: Option<i64>,
        max_message_bytes: Option<usize>,
    ) {
        if let Some(bytes) = max_message_bytes {
            self.max_message_bytes.store(bytes, Ordering::Relaxed);
        }
        if let Some(bytes) = max_bytes {
            self.max_bytes.store(bytes, Ordering::Relaxed);
        }
        if let Some(delay) = delay_ns {
            self.delay_ns.store(delay, Ordering::Relaxed);
        }
    }

    /// Whether puts fill pages faster than they are well made one by one: the next segment need
    /// not be zeroed by hand.
    #[getter]
    fn is_quick(&self) -> bool {
        self.ahead.is_quick()
    }

    /// Every later put raises; one that is under way is finished first.
    fn close(&self, py: Python<'_>) {
        self.is_closed.store(true, Ordering::SeqCst);
        if !self.control.life().is_forked() {
            drop(mutex::lock(py, &self.state));
        }
        self.ahead.end();
    }
}
