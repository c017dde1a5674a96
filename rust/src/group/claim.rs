//! Deciding which message a consumer gets next.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use pyo3::prelude::*;

use super::Group;
use super::journal::Kind;
use super::reader::{Found, Reader};
use super::receipt::Receipt;
use super::table::{Entry, NEVER, State, at};
use crate::bytes::checksum::key_hash;
use crate::errors;
use crate::formats::frame::{Fault, FrameView, NO_TIME};
use crate::message::Message;
use crate::read::spot::Spot;
use crate::segment::Segment;
use crate::shared::vain::InVain;
use crate::sys::sigbus;

/// A message that was just given to this consumer.
pub struct Claimed {
    offset: u64,
    spot: Spot,
    lease: Option<(u32, u64, u32)>,
    /// It was handed out too often: it goes to the dead letters.
    pub is_dead: bool,
}

impl Claimed {
    /// As Python sees it.
    #[inline(always)]
    pub fn into_message(self, group: &Arc<Group>, codec: OnceLock<Py<PyAny>>) -> Message {
        let Self { offset, spot, lease, .. } = self;
        let receipt = lease.map(|(entry, token, receives)| {
            let group = Arc::clone(group);
            Receipt { group, entry, token, offset, receives }
        });
        Message { offset: Some(offset), spot, receipt, codec }
    }
}

/// Why no more was claimed.
pub enum Stop {
    /// As many as asked for, or nothing more is there.
    Enough,
    /// The segment of this offset must be opened.
    NeedSegment(u64),
    /// Damage was met; reading goes on behind it.
    Damaged(Arc<Segment>, Fault),
    /// The table or the journal could not be written.
    Io(std::io::Error),
}

impl From<std::io::Error> for Stop {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

#[derive(Clone, Copy)]
pub(super) struct Wish {
    pub count: usize,
    pub visibility_ns: i64,
    pub owner: u32,
}

impl Group {
    /// Claims up to `count` messages into `out`. An error is raised only by a call that has nothing
    /// to hand out: what was claimed before it was met is not lost, and whatever is wrong stays where
    /// it is and is met first by the next call.
    pub(super) fn claim(
        &self,
        py: Python<'_>,
        count: usize,
        visibility_ns: Option<i64>,
        out: &mut Vec<Claimed>,
    ) -> PyResult<()> {
        let mut in_vain = InVain::default();
        loop {
            self.ensure_open(py)?;
            let stop = self.claim_once(py, count, visibility_ns, out)?;
            self.check_files(py)?;
            let met = match stop {
                Stop::Enough => return Ok(()),
                Stop::NeedSegment(offset) => match self.fetch_segment(py, offset) {
                    Ok(()) => {
                        in_vain.again(py, &self.control.file_path(), offset)?;
                        continue;
                    }
                    // It may be a signal handler's: then nothing but this call ever meets it.
                    Err(error) if !out.is_empty() => return self.owe(error),
                    Err(error) => error,
                },
                Stop::Damaged(segment, fault) => errors::corrupt(py, &segment, &fault),
                Stop::Io(error) => errors::os(error, &self.folder),
            };
            return if out.is_empty() { Err(met) } else { Ok(()) };
        }
    }

    /// An error that came with something to hand out: the next call raises it.
    #[cold]
    pub(super) fn owe(&self, error: PyErr) -> PyResult<()> {
        *self.owed.lock().unwrap_or_else(|e| e.into_inner()) = Some(error);
        self.owes.store(true, Ordering::Release);
        Ok(())
    }

    /// What a call before this one kept back.
    #[cold]
    pub(super) fn take_owed(&self) -> PyResult<()> {
        self.owes.store(false, Ordering::Release);
        self.owed.lock().unwrap_or_else(|e| e.into_inner()).take().map_or(Ok(()), Err)
    }

    /// An error if a file was cut short under its mapping: what was claimed may be zeros. Once that
    /// was found, it stays so.
    pub(super) fn check_files(&self, py: Python<'_>) -> PyResult<()> {
        let cut = if sigbus::hits() == 0 { None } else { self.cut_file(&self.reader(py)) };
        cut.map_or(Ok(()), |path| Err(errors::vanished(py, &path)))
    }

    /// The file that was cut short, of those that a get goes by.
    #[cold]
    pub(super) fn cut_file(&self, reader: &Reader) -> Option<PathBuf> {
        let segment = reader.segment.as_ref().filter(|segment| segment.is_cut());
        let table = || self.table.map().is_cut().then(|| self.folder.join("table"));
        let control = self.control.cut_file();
        control.or_else(|| segment.map(|segment| segment.path().to_path_buf())).or_else(table)
    }

    /// Opens the segment of `offset` here.
    fn fetch_segment(&self, py: Python<'_>, offset: u64) -> PyResult<()> {
        let found = self.host.call_method1(py, "segment_at", (offset,));
        let segment = found.map_err(|error| match self.is_closed.load(Ordering::Relaxed) {
            true => errors::plain(py, "ClosedError"), // The host may be gone already.
            false => error,
        })?;
        let segment = segment.bind(py).cast::<crate::segment::PySegment>()?.get();
        self.reader(py).turn_to(&segment.0, offset);
        Ok(())
    }

    fn claim_once(
        &self,
        py: Python<'_>,
        count: usize,
        visibility_ns: Option<i64>,
        out: &mut Vec<Claimed>,
    ) -> PyResult<Stop> {
        let visibility_ns =
            visibility_ns.unwrap_or_else(|| self.settings.visibility_ns.load(Ordering::Relaxed));
        let wish = Wish { count, visibility_ns, owner: self.owner };
        if self.is_plain() {
            if let Some(stop) = self.claim_plain(&mut self.reader(py), &wish, out) {
                return Ok(stop);
            }
        }
        let (mut reader, held) = self.take_both(py)?;
        let stop = self.claim_locked(&mut reader, &wish, out);
        drop(held);
        Ok(stop.unwrap_or_else(|stop| stop))
    }

    /// Whether the one word is all there is to look at.
    pub(super) fn is_plain(&self) -> bool {
        !self.is_lease
            && self.mirror.is_none()
            && self.table.attention() == NEVER
            && self.table.small(at::READY_LEN) == 0
            && self.table.small(at::FLAGS) == 0
            && self.settings.expire_ns.load(Ordering::Relaxed) == 0
            && !self.is_always
    }

    /// Without the lock: reads ahead, then moves the word over all of it at once. None: the next
    /// message needs the table.
    fn claim_plain(
        &self,
        reader: &mut Reader,
        wish: &Wish,
        out: &mut Vec<Claimed>,
    ) -> Option<Stop> {
        let word = self.table.map().word64(at::NEXT);
        loop {
            let kept = out.len();
            let start = word.load(Ordering::Acquire);
            let limit = self.control.tail();
            let mut next = start;
            let mut needs_table = false;
            let mut stop = Stop::Enough;
            while out.len() < wish.count {
                match reader.find(&self.control, next, limit) {
                    Found::Message { frame, next: after } => {
                        if !reader.is_usual(next, frame, after) {
                            needs_table = true;
                            break;
                        }
                        let is_wanted = reader.wants(frame);
                        let Some(segment) = reader.segment.as_ref() else { break };
                        if is_wanted {
                            let spot = Spot::found(segment, frame, &mut reader.view);
                            out.push(Claimed { offset: next, spot, lease: None, is_dead: false });
                        }
                        next = after;
                    }
                    Found::Nothing => break,
                    Found::Hole { next: after } => next = after,
                    Found::NeedSegment => match first_of(reader, next) {
                        Some(first) => next = first,
                        None => {
                            stop = Stop::NeedSegment(next);
                            break;
                        }
                    },
                    Found::Damaged { fault, next: after } => {
                        if let (true, Some(segment)) = (out.is_empty(), reader.segment.as_ref()) {
                            if !fault.is_ours {
                                next = after;
                            }
                            stop = Stop::Damaged(Arc::clone(segment), fault);
                        }
                        break;
                    }
                }
            }
            if next == start
                || word.compare_exchange(start, next, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            {
                self.table.count_among_others(at::DELIVERED, (out.len() - kept) as u64);
                // With the table goes on whoever asked for more than came so far.
                return (!needs_table).then_some(stop);
            }
            out.truncate(kept);
        }
    }

    fn claim_locked(
        &self,
        reader: &mut Reader,
        wish: &Wish,
        out: &mut Vec<Claimed>,
    ) -> Result<Stop, Stop> {
        if self.is_paused() || self.is_gone() {
            return Ok(Stop::Enough);
        }
        let stop = self.hand_out(reader, wish, out);
        self.mirror()?; // However it ended: something may have been handed out before.
        self.checkpoint_if_long()?;
        stop
    }

    fn hand_out(
        &self,
        reader: &mut Reader,
        wish: &Wish,
        out: &mut Vec<Claimed>,
    ) -> Result<Stop, Stop> {
        let limit = self.control.tail();
        let now = self.clock().boot();
        if self.is_time_for_dead(now) {
            self.release_dead(now)?;
        }
        self.expire(now)?;
        while out.len() < wish.count {
            if let Some(entry) = self.table.first_ready() {
                self.lease_again(reader, wish, entry, now, out)?;
            } else if self.is_window_full() || !self.read_on(reader, wish, limit, out)? {
                break;
            }
        }
        Ok(Stop::Enough)
    }

    /// Whether as much is out, held back or waiting as may be.
    #[inline(always)]
    pub(super) fn is_window_full(&self) -> bool {
        self.table.span() >= self.settings.window.load(Ordering::Relaxed)
    }

    /// What was leased too long or is due now may be handed out.
    fn expire(&self, now: i64) -> std::io::Result<()> {
        if self.table.attention() > now {
            return Ok(());
        }
        while let Some(entry) = self.table.due(now) {
            let Some(mut found) = self.table.entry(entry) else { break };
            if found.state == State::Leased {
                self.table.count(at::EXPIRED, 1);
            }
            found.state = State::Ready;
            self.write(Kind::Ready, &found, now)?;
            self.table.make_ready(entry);
        }
        Ok(())
    }

    fn lease_again(
        &self,
        reader: &mut Reader,
        wish: &Wish,
        entry: u32,
        now: i64,
        out: &mut Vec<Claimed>,
    ) -> Result<(), Stop> {
        let Some(mut found) = self.table.entry(entry) else { return Ok(()) };
        let frame = match reader.find(&self.control, found.offset, self.control.tail()) {
            Found::Message { frame, .. } => frame,
            Found::NeedSegment if first_of(reader, found.offset).is_none() => {
                return Err(Stop::NeedSegment(found.offset));
            }
            // Reported first, by a call that has nothing else to say; then given up.
            Found::Damaged { .. } if !out.is_empty() => return Err(Stop::Enough),
            Found::Damaged { fault, .. } if fault.is_ours => {
                let segment = reader.segment.as_ref().ok_or(Stop::Enough)?;
                return Err(Stop::Damaged(Arc::clone(segment), fault));
            }
            other => {
                // Retention took it, or its bytes are damaged: it can't be handed out any more.
                self.lease_table(entry, &mut found, 0, now, wish)?;
                self.write(Kind::Done, &found, now)?;
                self.table.finish(entry, now);
                self.table.count(at::SKIPPED, 1);
                return match (other, &reader.segment) {
                    (Found::Damaged { fault, .. }, Some(segment)) => {
                        Err(Stop::Damaged(Arc::clone(segment), fault))
                    }
                    _ => Ok(()),
                };
            }
        };
        let most = self.settings.max_receives.load(Ordering::Relaxed);
        let is_dead = most != 0 && found.receives >= most;
        if self.is_lease || is_dead {
            let token = self.next_token();
            self.lease_table(entry, &mut found, token, now, wish)?;
            let receives = if is_dead { found.receives - 1 } else { found.receives };
            self.push(reader, found.offset, frame, Some((entry, token, receives)), is_dead, out);
        } else {
            self.lease_table(entry, &mut found, 0, now, wish)?;
            self.write(Kind::Done, &found, now)?;
            self.table.finish(entry, now);
            self.push(reader, found.offset, frame, None, false, out);
        }
        Ok(())
    }

    fn lease_table(
        &self,
        entry: u32,
        found: &mut Entry,
        token: u64,
        now: i64,
        wish: &Wish,
    ) -> std::io::Result<()> {
        found.state = State::Leased;
        found.token = token;
        found.owner = wish.owner;
        found.receives += 1;
        (found.deadline, found.timeout) =
            (now.saturating_add(wish.visibility_ns), wish.visibility_ns);
        self.write(Kind::Lease, found, now)?;
        self.table.lease_ready(entry, token, wish.owner, found.deadline, found.timeout);
        Ok(())
    }

    #[inline(always)]
    fn next_token(&self) -> u64 {
        let token = self.table.wide(at::TOKEN) + 1;
        self.table.set_wide(at::TOKEN, token);
        if token % 1024 == 0 {
            self.measure_skew(); // The wall clock may have been set meanwhile.
        }
        token
    }

    /// Gives out what the reader has just found.
    fn push(
        &self,
        reader: &mut Reader,
        offset: u64,
        frame: u64,
        lease: Option<(u32, u64, u32)>,
        is_dead: bool,
        out: &mut Vec<Claimed>,
    ) {
        if let Some(segment) = &reader.segment {
            let spot = Spot::found(segment, frame, &mut reader.view);
            out.push(Claimed { offset, spot, lease, is_dead });
            match self.is_lease {
                true => self.table.count(at::DELIVERED, 1),
                false => self.table.count_among_others(at::DELIVERED, 1),
            }
        }
    }

    /// Reads the next message and gives it out, holds it back or passes over it. False: nothing
    /// more is there.
    fn read_on(
        &self,
        reader: &mut Reader,
        wish: &Wish,
        limit: u64,
        out: &mut Vec<Claimed>,
    ) -> Result<bool, Stop> {
        let word = self.table.map().word64(at::NEXT);
        let offset = word.load(Ordering::Acquire);
        let (frame, next) = match reader.find(&self.control, offset, limit) {
            Found::Nothing => return Ok(false),
            Found::NeedSegment => {
                let Some(first) = first_of(reader, offset) else {
                    return Err(Stop::NeedSegment(offset));
                };
                self.table.count(at::SKIPPED, u64::from(offset < self.control.head()));
                let _ = word.compare_exchange(offset, first, Ordering::AcqRel, Ordering::Relaxed);
                return Ok(true);
            }
            Found::Hole { next } => {
                let _ = word.compare_exchange(offset, next, Ordering::AcqRel, Ordering::Relaxed);
                return Ok(true);
            }
            Found::Damaged { fault, next } => {
                if out.is_empty() && !fault.is_ours {
                    let _ =
                        word.compare_exchange(offset, next, Ordering::AcqRel, Ordering::Relaxed);
                }
                return match &reader.segment {
                    Some(segment) => Err(Stop::Damaged(Arc::clone(segment), fault)),
                    None => Ok(false),
                };
            }
            Found::Message { frame, next } => (frame, next),
        };
        // Others may be moving the word without the lock (`claim_plain`): whoever moves it owns
        // the message.
        let move_on =
            || word.compare_exchange(offset, next, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        let Some(segment) = reader.segment.clone() else { return Ok(false) };
        if !reader.wants(frame) {
            move_on();
            return Ok(true);
        }
        if self.has_expired(&reader.view) {
            self.table.count(at::SKIPPED, u64::from(move_on()));
            return Ok(true);
        }
        let key = key_hash(key_of(&segment, frame, &reader.view));
        let mut entry = Entry { key, ..Entry::read(offset, frame, wish.owner) };
        let due_in = self.due_in(&reader.view);
        if due_in > 0 {
            // From now, not from when the claim began: a million others may lie in between.
            let now = self.clock().boot();
            (entry.deadline, entry.timeout) = (now.saturating_add(due_in), due_in);
        }
        if self.table.is_key_busy(key) {
            entry.state = State::Blocked;
        } else if due_in > 0 {
            entry.state = State::Delayed;
        }
        if entry.state != State::Ready {
            // Journaled before the word moves: whoever dies in between must not take a message
            // with him that nobody was given. Without the lock nobody passes over such a one.
            self.write_next(Kind::Enter, &entry, next, self.clock().boot())?;
            self.table.enter(&entry)?;
            move_on();
            return Ok(true);
        }
        let lease = match self.is_lease {
            true => Some(self.lease_new(&mut entry, wish, next)?),
            false if move_on() => None,
            false => return Ok(true),
        };
        self.push(reader, offset, frame, lease, false, out);
        Ok(true)
    }

    /// Leases what was just read; reading goes on at `next`. The word moves last: whoever looks at
    /// it without the lock finds everything below it in the journal and in the table.
    #[inline(always)]
    pub(super) fn lease_new(
        &self,
        entry: &mut Entry,
        wish: &Wish,
        next: u64,
    ) -> std::io::Result<(u32, u64, u32)> {
        let (now, visibility_ns) = self.lease_times(wish.visibility_ns);
        entry.state = State::Leased;
        entry.token = self.next_token();
        entry.receives = 1;
        (entry.deadline, entry.timeout) = (now.saturating_add(visibility_ns), visibility_ns);
        self.write_next(Kind::Enter, entry, next, now)?;
        let place = self.table.enter(entry)?;
        self.table.set_wide(at::NEXT, next);
        Ok((place, entry.token, 1))
    }

    /// How long the message is still held back. A wall clock that was set back since it was put
    /// must not hold it for longer than its own delay.
    fn due_in(&self, view: &FrameView) -> i64 {
        if view.due_ns == 0 {
            return 0;
        }
        let left = view.due_ns.saturating_sub(self.clock().wall());
        let put_ns = if view.timestamp_ns == NO_TIME { view.noted_ns } else { view.timestamp_ns };
        match view.due_ns.saturating_sub(put_ns) {
            delay if put_ns != NO_TIME && delay > 0 => left.min(delay),
            _ => left,
        }
    }

    fn has_expired(&self, view: &FrameView) -> bool {
        let expire_ns = self.settings.expire_ns.load(Ordering::Relaxed);
        expire_ns != 0
            && view.timestamp_ns != NO_TIME
            && self.control.is_older(self.clock(), view.timestamp_ns, expire_ns)
    }
}

/// Where the segment begins that was opened for `offset`, if `offset` lies before it: what was
/// there is gone, or the offset named the end of the segment before.
fn first_of(reader: &Reader, offset: u64) -> Option<u64> {
    let segment = reader.segment.as_ref().filter(|_| reader.wanted == offset)?;
    Some(segment.first()).filter(|first| *first > offset)
}

/// The tag of a message that was found.
pub fn tag_of<'a>(segment: &'a Segment, frame: u64, view: &'a FrameView) -> &'a [u8] {
    match &view.owned {
        Some(owned) => view.tag.of(owned),
        None => view.tag.of(segment.frame_bytes(frame, view.size)),
    }
}

fn key_of<'a>(segment: &'a Segment, frame: u64, view: &'a FrameView) -> &'a [u8] {
    match &view.owned {
        Some(owned) => view.key.of(owned),
        None => view.key.of(segment.frame_bytes(frame, view.size)),
    }
}
