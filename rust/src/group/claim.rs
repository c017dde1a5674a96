//! Deciding which message a consumer gets next.
//!
//! There are two ways. A group that acks by getting moves one word, without the lock, as long as no
//! message is delayed, keyed or inside an opaque frame, and no format keeps the group's progress
//! (`claim_freely`). Every other claim takes the lock (`claim_locked`). Both serve one message or
//! many.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pyo3::prelude::*;

use super::Group;
use super::journal::Kind;
use super::table::{Entry, EntryState, NEVER, at};
use crate::bytes::checksum::key_hash;
use crate::bytes::words;
use crate::clock::Clock;
use crate::errors;
use crate::message::{Lease, Message, MessageParts};
use crate::read::reader::{Found, Reader};
use crate::segment::frame::{Fault, FrameView, NO_TIME};
use crate::segment::message_bytes::MessageBytes;
use crate::segment::{Segment, Taken};
use crate::shared::retry_limit::RetryLimit;
use crate::sys::{memory, sigbus};

/// Where what is claimed goes: a `get` has room for one message, a `get_many` for a list of them.
pub trait Basket {
    /// How many are in it.
    fn len(&self) -> usize;

    /// Whether nothing more goes in.
    fn is_full(&self) -> bool;

    /// Takes one more; with `is_dead`, it was handed out too often and goes to the dead letters.
    fn push(&mut self, lease: Lease, content: MessageBytes, is_dead: bool);

    /// Takes what the reader knows to follow from `next` on and has nothing but a body; where
    /// reading goes on.
    fn take_bare(&mut self, reader: &Reader, next: u64) -> u64;

    /// Forgets all but the first `len`.
    fn truncate(&mut self, len: usize);

    /// Whether one of them goes to the dead letters.
    fn has_dead(&self) -> bool;

    /// Takes those out that go to the dead letters.
    fn take_dead(&mut self) -> Vec<Message>;

    /// Those that are to be handed out.
    fn claimed(&self) -> Vec<&MessageParts>;

    /// A reference to `segment` for a message to come.
    #[inline(always)]
    fn share(&mut self, segment: &Arc<Segment>) -> Arc<Segment> {
        Arc::clone(segment)
    }

    /// Whether nothing is in it.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// At most one message, put together where it stays: each move of what was just stored waits for
/// its stores.
pub struct One<'a> {
    /// Where it goes.
    place: &'a mut MessageParts,
    is_full: bool,
    is_dead: bool,
    /// What a message before it was in: mostly the same.
    segment: Option<Arc<Segment>>,
}

impl<'a> One<'a> {
    /// Room for one, most likely of this segment.
    #[inline(always)]
    pub fn new(place: &'a mut MessageParts, segment: Option<Arc<Segment>>) -> Self {
        Self { place, is_full: false, is_dead: false, segment }
    }

    /// The message, if there is one.
    #[inline(always)]
    pub fn message(&mut self) -> Option<&mut MessageParts> {
        self.is_full.then_some(&mut *self.place)
    }

    /// The segment that was of no use.
    #[inline(always)]
    pub fn left(self) -> Option<Arc<Segment>> {
        self.segment
    }
}

impl Basket for One<'_> {
    #[inline(always)]
    fn len(&self) -> usize {
        usize::from(self.is_full)
    }

    #[inline(always)]
    fn is_full(&self) -> bool {
        self.is_full
    }

    #[inline(always)]
    fn push(&mut self, lease: Lease, content: MessageBytes, is_dead: bool) {
        // Callers ask `is_full` before.
        (self.place.lease, self.place.content) = (lease, content);
        (self.is_full, self.is_dead) = (true, is_dead);
    }

    #[inline(always)]
    fn take_bare(&mut self, reader: &Reader, next: u64) -> u64 {
        let Some((segment, frame)) = reader.bare_at(next) else { return next };
        let after = next.saturating_add(words::align8(frame.len()) as u64);
        memory::prefetch_behind(frame);
        let content = MessageBytes::bare(self.share(segment), next, frame.len());
        self.push(Lease::none(next), content, false);
        after
    }

    #[cold]
    fn truncate(&mut self, len: usize) {
        self.is_full &= len > 0;
    }

    #[inline(always)]
    fn share(&mut self, segment: &Arc<Segment>) -> Arc<Segment> {
        let same = self.segment.take_if(|one| Arc::ptr_eq(one, segment));
        same.unwrap_or_else(|| Arc::clone(segment))
    }

    #[inline(always)]
    fn has_dead(&self) -> bool {
        self.is_dead
    }

    fn take_dead(&mut self) -> Vec<Message> {
        let is_dead = std::mem::take(&mut self.is_dead);
        self.is_full &= !is_dead;
        is_dead.then(|| self.place.take()).into_iter().collect()
    }

    #[cold]
    fn claimed(&self) -> Vec<&MessageParts> {
        self.is_full.then_some(&*self.place).into_iter().collect()
    }
}

/// At most `most` messages.
pub struct Several {
    /// Those of them that are to be handed out.
    pub messages: Vec<Message>,
    dead: Vec<Message>,
    most: usize,
}

impl Several {
    /// Room for more is made when more come.
    const LIKELY: usize = 1000;

    /// Room for `most`.
    pub fn new(most: usize) -> Self {
        let messages = Vec::with_capacity(most.min(Self::LIKELY));
        Self { messages, dead: Vec::new(), most }
    }
}

impl Basket for Several {
    fn len(&self) -> usize {
        self.messages.len() + self.dead.len()
    }

    fn is_full(&self) -> bool {
        self.len() >= self.most
    }

    #[inline(always)]
    fn push(&mut self, lease: Lease, content: MessageBytes, is_dead: bool) {
        let message = Message::claimed(lease, content);
        if is_dead { self.dead.push(message) } else { self.messages.push(message) }
    }

    fn take_bare(&mut self, reader: &Reader, next: u64) -> u64 {
        reader.each_bare(next, u64::MAX, |segment, offset, bare| {
            let content = MessageBytes::bare(Arc::clone(segment), offset, bare.frame.len());
            self.push(Lease::none(offset), content, false);
            if self.is_full() { Taken::Last } else { Taken::One }
        })
    }

    fn truncate(&mut self, len: usize) {
        self.messages.truncate(len.saturating_sub(self.dead.len()));
    }

    fn has_dead(&self) -> bool {
        !self.dead.is_empty()
    }

    fn take_dead(&mut self) -> Vec<Message> {
        std::mem::take(&mut self.dead)
    }

    #[cold]
    fn claimed(&self) -> Vec<&MessageParts> {
        self.messages.iter().map(|message| &**message).collect()
    }
}

/// Why no more was claimed. It has the size of two words, since every claim returns one.
pub enum Stop {
    /// As many as asked for, or nothing more is there.
    Enough,
    /// The next message needs the table.
    NeedTable,
    /// The segment of this offset must be opened.
    NeedSegment(u64),
    /// Damage was met; reading goes on behind it.
    Damaged(Box<(Arc<Segment>, Fault)>),
    /// The table or the journal could not be written.
    Io(std::io::Error),
}

impl Stop {
    #[cold]
    fn damaged(segment: &Arc<Segment>, fault: Fault) -> Self {
        Self::Damaged(Box::new((Arc::clone(segment), fault)))
    }
}

impl From<std::io::Error> for Stop {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

/// What time it is, by the boot clock, and how long a lease lasts from then on.
#[derive(Clone, Copy)]
struct Times {
    now: i64,
    lease_ns: i64,
}

impl Times {
    #[inline(always)]
    fn end(self) -> i64 {
        self.now.saturating_add(self.lease_ns)
    }
}

/// A lease of this length or more may last a tenth of a second longer than was asked for.
const LONG_NS: i64 = 1_000_000_000;

impl Group {
    /// Claims what there is room for in `out`. An error is raised only by a call that has nothing
    /// to hand out: what was claimed before it was met is not lost, and whatever is wrong stays
    /// where it is and is met first by the next call.
    #[inline(always)]
    pub(super) fn claim<B: Basket>(
        &self,
        py: Python<'_>,
        visibility_ns: Option<i64>,
        out: &mut B,
    ) -> PyResult<()> {
        self.ensure_open(py)?;
        match self.claim_once(py, visibility_ns, out)? {
            Stop::Enough => self.check_files(py),
            stop => self.claim_on(py, visibility_ns, stop, out),
        }
    }

    /// Deals with what stopped a claim, and goes on.
    #[cold]
    fn claim_on<B: Basket>(
        &self,
        py: Python<'_>,
        visibility_ns: Option<i64>,
        mut stop: Stop,
        out: &mut B,
    ) -> PyResult<()> {
        let mut in_vain = RetryLimit::default();
        loop {
            self.check_files(py)?;
            let met = match stop {
                Stop::Enough | Stop::NeedTable => return Ok(()),
                Stop::NeedSegment(offset) => match self.fetch_segment(py, offset) {
                    Ok(()) => {
                        in_vain.again(py, || self.control.file_path(), offset)?;
                        self.ensure_open(py)?;
                        stop = self.claim_once(py, visibility_ns, out)?;
                        continue;
                    }
                    // The error may be that of a signal handler: then no later call would meet it
                    // again.
                    Err(error) if !out.is_empty() => return self.owe(error),
                    Err(error) => error,
                },
                Stop::Damaged(damage) => damage.0.corrupt(py, &damage.1),
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
    #[inline(always)]
    pub(super) fn check_files(&self, py: Python<'_>) -> PyResult<()> {
        if sigbus::hits() == 0 { Ok(()) } else { self.check_each_file(py) }
    }

    #[cold]
    fn check_each_file(&self, py: Python<'_>) -> PyResult<()> {
        let cut = self.cut_file(&self.reader(py));
        cut.map_or(Ok(()), |path| Err(errors::vanished(py, &path)))
    }

    /// The file that was cut short, of those that a get goes by.
    fn cut_file(&self, reader: &Reader) -> Option<PathBuf> {
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
        let before = self.reader(py).turn_to(&segment.0, offset);
        py.detach(move || drop(before));
        Ok(())
    }

    #[inline(always)]
    fn claim_once<B: Basket>(
        &self,
        py: Python<'_>,
        visibility_ns: Option<i64>,
        out: &mut B,
    ) -> PyResult<Stop> {
        if self.is_plain() {
            match self.claim_freely(&mut self.reader(py), out) {
                Stop::NeedTable => {}
                stop => return Ok(stop),
            }
        }
        let visibility_ns =
            visibility_ns.unwrap_or_else(|| self.settings.visibility_ns.load(Ordering::Relaxed));
        let (mut reader, held) = self.take_both(py)?;
        let stop = self.claim_locked(&mut reader, visibility_ns, out);
        drop(held);
        Ok(stop.err().unwrap_or(Stop::Enough))
    }

    /// Whether the one word is all there is to look at: nothing is leased, held back or mirrored.
    #[inline(always)]
    pub(super) fn is_plain(&self) -> bool {
        !self.is_lease
            && self.mirror.is_none()
            && self.table.attention() == NEVER
            && self.table.small(at::READY_LEN) == 0
            && self.table.small(at::FLAGS) == 0
            && self.settings.expire_ns.load(Ordering::Relaxed) == 0
            && !self.is_always
    }

    /// What stands at `offset`.
    #[inline(always)]
    fn find(&self, reader: &mut Reader, offset: u64) -> Found {
        reader.find_in(&self.control, offset, || self.control.tail())
    }

    /// The first way to claim, without the lock: reads ahead, then moves the word over all of it at
    /// once.
    #[inline(always)]
    fn claim_freely<B: Basket>(&self, reader: &mut Reader, out: &mut B) -> Stop {
        let word = self.table.map().word64(at::NEXT);
        loop {
            let kept = out.len();
            let start = word.load(Ordering::Acquire);
            let (next, stop) = self.read_ahead(reader, start, out);
            let count = (out.len() - kept) as u64;
            if next == start || self.table.move_on(start, next, count) {
                return stop;
            }
            out.truncate(kept);
        }
    }

    /// Puts messages from `next` on into `out`: where reading goes on, and why it stopped.
    #[inline(always)]
    fn read_ahead<B: Basket>(
        &self,
        reader: &mut Reader,
        mut next: u64,
        out: &mut B,
    ) -> (u64, Stop) {
        while !out.is_full() {
            next = out.take_bare(reader, next);
            if out.is_full() {
                break;
            }
            match self.find(reader, next) {
                Found::Message { frame, next: after } => {
                    if !reader.is_usual(next, frame, after) {
                        return (next, Stop::NeedTable);
                    }
                    if reader.wants(frame) {
                        put_into(out, reader, frame, Lease::none(next));
                    }
                    next = after;
                    if !out.is_full() {
                        next = read_known(reader, next, out);
                    }
                }
                Found::Nothing => break,
                Found::Hole { next: after } => next = after,
                Found::NeedSegment => match reader.first_after(next) {
                    Some(first) => next = first,
                    None => return (next, Stop::NeedSegment(next)),
                },
                Found::Damaged { fault, next: after } => match &reader.segment {
                    Some(segment) if out.is_empty() => {
                        return (after, Stop::damaged(segment, *fault));
                    }
                    _ => break,
                },
            }
        }
        (next, Stop::Enough)
    }

    /// The second way to claim, under the lock: on a lease, or whatever else needs the table.
    #[inline(always)]
    fn claim_locked<B: Basket>(
        &self,
        reader: &mut Reader,
        visibility_ns: i64,
        out: &mut B,
    ) -> Result<(), Stop> {
        if self.table.small(at::FLAGS) != 0 && (self.is_paused() || self.is_gone()) {
            return Ok(());
        }
        let kept = out.len();
        let stop = self.hand_out(reader, visibility_ns, out);
        match self.is_lease {
            true => self.table.count(at::DELIVERED, (out.len() - kept) as u64),
            false => self.table.count_among_others(at::DELIVERED, (out.len() - kept) as u64),
        }
        self.mirror()?; // Also when it failed: something may have been handed out before.
        self.checkpoint_if_long()?;
        stop
    }

    #[inline(always)]
    fn hand_out<B: Basket>(
        &self,
        reader: &mut Reader,
        visibility_ns: i64,
        out: &mut B,
    ) -> Result<(), Stop> {
        let times = self.lease_times(visibility_ns);
        if self.is_time_for_dead(times.now) {
            self.release_dead(times.now)?;
        }
        if self.table.attention() <= times.now.saturating_add(Clock::LATE_NS) {
            self.expire(self.clock().boot())?;
        }
        if self.hands_out_together() {
            return self.hand_out_together(reader, times, out);
        }
        while !out.is_full() {
            if let Some(entry) = self.table.first_ready() {
                self.lease_again(reader, times, out, entry)?;
            } else if self.is_window_full() || !self.read_on(reader, times, out)? {
                break;
            }
        }
        Ok(())
    }

    /// Whether messages of one key go out together.
    #[inline(always)]
    fn hands_out_together(&self) -> bool {
        self.is_lease && self.settings.together.load(Ordering::Relaxed)
    }

    /// Hands out one key after the other, as much of each as is there: so everything new is read
    /// first, as far as the window reaches.
    #[cold]
    fn hand_out_together<B: Basket>(
        &self,
        reader: &mut Reader,
        times: Times,
        out: &mut B,
    ) -> Result<(), Stop> {
        while !self.is_window_full() && self.read_on(reader, times, out)? {}
        while !out.is_full() {
            let Some(mut entry) = self.table.first_ready() else { break };
            self.lease_again(reader, times, out, entry)?;
            while !out.is_full() {
                entry = self.table.next_of_key(entry);
                let Some(found) = self.table.entry(entry) else { break };
                if found.state != EntryState::Blocked || found.deadline > self.clock().boot() {
                    break; // Out already, or not due.
                }
                self.lease_again(reader, times, out, entry)?;
            }
        }
        Ok(())
    }

    /// Whether as much is out, held back or waiting as may be.
    #[inline(always)]
    pub(super) fn is_window_full(&self) -> bool {
        self.table.span() >= self.settings.window.load(Ordering::Relaxed)
    }

    /// What was leased too long or is due now may be handed out.
    pub(super) fn expire(&self, now: i64) -> std::io::Result<()> {
        while let Some(entry) = self.table.due(now) {
            let Some(mut found) = self.table.entry(entry) else { break };
            if found.state == EntryState::Leased {
                self.table.count(at::EXPIRED, 1);
            }
            found.state = EntryState::Ready;
            self.write(Kind::Ready, &found, now)?;
            self.table.make_ready(entry);
        }
        Ok(())
    }

    /// Hands out the first of those that came back, or one that waits behind it.
    fn lease_again<B: Basket>(
        &self,
        reader: &mut Reader,
        times: Times,
        out: &mut B,
        entry: u32,
    ) -> Result<(), Stop> {
        let Some(mut found) = self.table.entry(entry) else { return Ok(()) };
        let frame = match self.find(reader, found.offset) {
            Found::Message { frame, .. } => frame,
            Found::NeedSegment if reader.first_after(found.offset).is_none() => {
                return Err(Stop::NeedSegment(found.offset));
            }
            // Damage is reported by a call that hands nothing else out; only then is the message
            // given up.
            Found::Damaged { .. } if !out.is_empty() => return Err(Stop::Enough),
            Found::Damaged { fault, .. } if fault.is_ours => {
                let segment = reader.segment.as_ref().ok_or(Stop::Enough)?;
                return Err(Stop::damaged(segment, *fault));
            }
            other => {
                // Retention took it, or its bytes are damaged: it can't be handed out any more.
                self.lease_table(entry, &mut found, 0, times)?;
                self.write(Kind::Done, &found, times.now)?;
                self.table.finish(entry, times.now);
                self.table.count(at::SKIPPED, 1);
                return match (other, &reader.segment) {
                    (Found::Damaged { fault, .. }, Some(segment)) => {
                        Err(Stop::damaged(segment, *fault))
                    }
                    _ => Ok(()),
                };
            }
        };
        let most = self.settings.max_receives.load(Ordering::Relaxed);
        let is_dead = most != 0 && found.receives >= most;
        let is_leased = self.is_lease || is_dead;
        let token = if is_leased { self.next_token() } else { 0 };
        self.lease_table(entry, &mut found, token, times)?;
        if !is_leased {
            self.write(Kind::Done, &found, times.now)?;
            self.table.finish(entry, times.now);
        }
        let receives = if is_dead { found.receives - 1 } else { found.receives };
        let lease = match is_leased {
            true => Lease { entry, receives, token, offset: found.offset },
            false => Lease::none(found.offset),
        };
        if let Some(segment) = &reader.segment {
            let content = MessageBytes::found(out.share(segment), frame, &mut reader.view);
            out.push(lease, content, is_dead);
        }
        Ok(())
    }

    fn lease_table(
        &self,
        entry: u32,
        found: &mut Entry,
        token: u64,
        times: Times,
    ) -> std::io::Result<()> {
        found.state = EntryState::Leased;
        found.token = token;
        found.owner = self.owner;
        found.receives += 1;
        (found.deadline, found.timeout) = (times.end(), times.lease_ns);
        self.write(Kind::Lease, found, times.now)?;
        self.table.lease_ready(entry, token, self.owner, found.deadline, found.timeout);
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

    /// Reads the next message and gives it out, holds it back or passes over it. False: nothing
    /// more is there.
    #[inline(always)]
    fn read_on<B: Basket>(
        &self,
        reader: &mut Reader,
        times: Times,
        out: &mut B,
    ) -> Result<bool, Stop> {
        let offset = self.table.wide(at::NEXT);
        let (frame, next) = match self.find(reader, offset) {
            Found::Message { frame, next } => (frame, next),
            other => return self.pass_over(reader, offset, other, out.is_empty()),
        };
        if !reader.wants(frame) {
            self.move_on(offset, next);
            return Ok(true);
        }
        let is_usual = reader.is_usual(offset, frame, next);
        let is_plain = is_usual && self.settings.expire_ns.load(Ordering::Relaxed) == 0;
        if !is_plain && !self.may_go_out(reader, (offset, frame, next))? {
            return Ok(true);
        }
        if self.is_lease {
            let key = if is_usual { 0 } else { key_of(reader, frame) };
            let mut entry = Entry { key, ..Entry::read(offset, frame, self.owner) };
            if self.hands_out_together() {
                self.write_next(Kind::Enter, &entry, next, times.now)?;
                self.table.enter(&entry)?;
                self.table.set_wide(at::NEXT, next);
                return Ok(true);
            }
            let lease = self.lease_new(&mut entry, times, next)?;
            put_into(out, reader, frame, lease);
        } else if self.move_on(offset, next) {
            put_into(out, reader, frame, Lease::none(offset));
        }
        Ok(true)
    }

    /// Reading goes on at `next`. Others may be moving the word without the lock
    /// (`claim_freely`): the one that moves it owns the message.
    #[inline(always)]
    fn move_on(&self, offset: u64, next: u64) -> bool {
        let word = self.table.map().word64(at::NEXT);
        word.compare_exchange(offset, next, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// No message is at `offset`. True: look again.
    #[cold]
    fn pass_over(
        &self,
        reader: &Reader,
        offset: u64,
        found: Found,
        is_empty: bool,
    ) -> Result<bool, Stop> {
        match found {
            Found::Message { .. } => Ok(true),
            Found::Nothing => Ok(false),
            Found::NeedSegment => {
                let Some(first) = reader.first_after(offset) else {
                    return Err(Stop::NeedSegment(offset));
                };
                self.table.count(at::SKIPPED, u64::from(offset < self.control.head()));
                self.move_on(offset, first);
                Ok(true)
            }
            Found::Hole { next } => {
                self.move_on(offset, next);
                Ok(true)
            }
            Found::Damaged { fault, next } => {
                if is_empty {
                    self.move_on(offset, next);
                }
                let Some(segment) = &reader.segment else { return Ok(false) };
                Err(Stop::damaged(segment, *fault))
            }
        }
    }

    /// Whether the message that was just read, at `offset` in `frame` and before `next`, may go out
    /// now. If not, it is passed over or held back.
    fn may_go_out(
        &self,
        reader: &Reader,
        (offset, frame, next): (u64, u64, u64),
    ) -> Result<bool, Stop> {
        if self.has_expired(&reader.view) {
            self.table.count(at::SKIPPED, u64::from(self.move_on(offset, next)));
            return Ok(false);
        }
        let key = key_of(reader, frame);
        let mut entry = Entry { key, ..Entry::read(offset, frame, self.owner) };
        let due_in = self.due_in(&reader.view);
        if due_in > 0 {
            // The delay counts from now, not from the beginning of the claim: it may have passed
            // over a million other messages since.
            let now = self.clock().boot();
            (entry.deadline, entry.timeout) = (now.saturating_add(due_in), due_in);
        }
        if self.table.is_key_busy(key) {
            entry.state = EntryState::Blocked;
        } else if due_in > 0 {
            entry.state = EntryState::Delayed;
        } else {
            return Ok(true);
        }
        // The journal gets it before the word moves: else a process that dies in between would have
        // passed over a message that no consumer was given. Claims without the lock pass over no
        // such message.
        self.write_next(Kind::Enter, &entry, next, self.clock().boot())?;
        self.table.enter(&entry)?;
        self.move_on(offset, next);
        Ok(false)
    }

    /// Leases what was just read; reading goes on at `next`. The word moves last: a
    /// look at it without the lock finds everything below it in the journal and in the table.
    #[inline(always)]
    fn lease_new(&self, entry: &mut Entry, times: Times, next: u64) -> std::io::Result<Lease> {
        entry.state = EntryState::Leased;
        entry.token = self.next_token();
        entry.receives = 1;
        (entry.deadline, entry.timeout) = (times.end(), times.lease_ns);
        self.write_next(Kind::Enter, entry, next, times.now)?;
        let place = self.table.enter(entry)?;
        self.table.set_wide(at::NEXT, next);
        Ok(Lease { entry: place, receives: 1, token: entry.token, offset: entry.offset })
    }

    /// What time it is and how long a lease lasts. Reading the clock would take longer than all
    /// changes to the table: so a long lease counts from a clock reading that is a little old, and
    /// is made longer by as much.
    #[inline(always)]
    fn lease_times(&self, visibility_ns: i64) -> Times {
        match visibility_ns < LONG_NS || self.clock().is_manual() {
            true => Times { now: self.clock().boot(), lease_ns: visibility_ns },
            false => Times {
                now: self.clock().boot_lately(),
                lease_ns: visibility_ns.saturating_add(Clock::LATE_NS),
            },
        }
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

/// Gives out the messages that the reader knows to follow the one that it has just found, as far as
/// they need no look at their headers; returns where reading goes on.
#[inline(always)]
fn read_known<B: Basket>(reader: &mut Reader, next: u64, out: &mut B) -> u64 {
    reader.each_known(next, u64::MAX, |segment, offset, view, _| {
        if view.due_ns != 0 || view.key.len != 0 {
            return Taken::Not;
        }
        let content = MessageBytes::found(out.share(segment), offset, view);
        out.push(Lease::none(offset), content, false);
        if out.is_full() { Taken::Last } else { Taken::One }
    })
}

/// Gives out what the reader has just found.
#[inline(always)]
fn put_into<B: Basket>(out: &mut B, reader: &mut Reader, frame: u64, lease: Lease) {
    if let Some(segment) = &reader.segment {
        let after = frame.saturating_add(reader.view.size as u64);
        segment.expect(after, reader.view.size);
        let content = MessageBytes::found(out.share(segment), frame, &mut reader.view);
        out.push(lease, content, false);
    }
}

/// The hash of the key of what the reader has just found; 0: none.
fn key_of(reader: &Reader, frame: u64) -> u64 {
    key_hash(reader.part(frame, reader.view.key))
}
