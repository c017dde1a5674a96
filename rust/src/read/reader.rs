//! Reading at an offset: across segments, inside batches, over what is damaged or gone.
//!
//! A reader holds one segment and one opened batch. It never opens a file: it says that it needs
//! another segment, and Python finds that.

use std::sync::Arc;

use crate::bytes::tags::Filter;
use crate::bytes::words;
use crate::segment::frame::{Fault, FrameView, Span};
use crate::segment::walk::{self, Met};
use crate::segment::{Bare, LIVE, Segment, Taken};
use crate::shared::control::Control;

/// What stands at an offset.
pub enum Found {
    /// A message: its frame's offset and the offset of the next message. It is in `Reader::view`.
    Message { frame: u64, next: u64 },
    /// No message is there yet.
    Nothing,
    /// The segment is not open here: Python must find it.
    NeedSegment,
    /// Known damage, which a repair has set aside; reading goes on at this offset.
    Hole { next: u64 },
    /// Damage, and where reading goes on.
    Damaged { fault: Box<Fault>, next: u64 },
}

/// A compressed or encrypted frame, opened.
struct OpenedFrame {
    /// The byte of the file where it begins.
    at: usize,
    frame: u64,
    /// The offset behind the frame.
    end: u64,
    messages: Vec<FrameView>,
}

impl OpenedFrame {
    fn has(&self, offset: u64) -> bool {
        (self.frame..self.frame + self.messages.len() as u64).contains(&offset)
    }
}

/// Reads the message at one offset of a queue, and then at the next.
pub struct Reader {
    /// The segment of the last read.
    pub segment: Option<Arc<Segment>>,
    /// The offset that the segment was opened for.
    wanted: u64,
    /// Which messages are wanted.
    pub filter: Filter,
    /// The message that was found last.
    pub view: FrameView,
    /// Below this offset all frames are in `segment`, and whole. Reading them needs no look at the
    /// words that writers change.
    known: u64,
    batch: Option<OpenedFrame>,
}

impl Reader {
    /// A reader that stands nowhere yet.
    pub fn new(filter: Filter) -> Self {
        let view = FrameView::default();
        Self { segment: None, wanted: 0, filter, view, known: 0, batch: None }
    }

    /// From now on reads in `segment`, which was opened for `offset`. Returns the segment before
    /// it: dropping that may unmap a file.
    pub fn turn_to(&mut self, segment: &Arc<Segment>, offset: u64) -> Option<Arc<Segment>> {
        (self.wanted, self.known, self.batch) = (offset, 0, None);
        self.segment.replace(Arc::clone(segment))
    }

    /// Where the current segment begins, if it was opened for `offset` and begins behind it. Then
    /// what was at `offset` is gone, or `offset` is the end of the segment before.
    pub fn first_after(&self, offset: u64) -> Option<u64> {
        let segment = self.segment.as_ref().filter(|_| self.wanted == offset)?;
        Some(segment.first()).filter(|first| *first > offset)
    }

    /// The bytes of a part of the message that was found in `frame`.
    #[inline]
    pub fn part(&self, frame: u64, span: Span) -> &[u8] {
        self.segment.as_ref().map_or(&[], |segment| span.of(segment.bytes_of(frame, &self.view)))
    }

    /// Whether the message that was found in `frame` is wanted.
    #[inline]
    pub fn wants(&self, frame: u64) -> bool {
        self.filter.is_open() || self.filter.matches(self.part(frame, self.view.tag))
    }

    /// Whether the message that was found is an ordinary one: no delay, no key, no batch around it.
    #[inline]
    pub fn is_usual(&self, offset: u64, frame: u64, next: u64) -> bool {
        let view = &self.view;
        view.due_ns == 0 && view.key.len == 0 && frame == offset && next != offset + 1
    }

    /// Whether reading at `offset` needs no look at the words that writers change.
    #[inline]
    pub fn knows(&self, offset: u64) -> bool {
        offset < self.known
    }

    /// Reads the message at `offset`, if it is known that one begins there, and returns where the
    /// next one begins. None: ask `find`.
    #[inline]
    pub fn next_known(&mut self, offset: u64) -> Option<u64> {
        if !self.knows(offset) {
            return None;
        }
        let is_held = |segment: &&Arc<Segment>| offset >= segment.first() && !segment.is_stale();
        let segment = self.segment.as_ref().filter(is_held)?;
        match walk::look(segment, offset, self.known, &mut self.view) {
            Met::Frame if !self.view.opaque => Some(offset + self.view.size as u64),
            _ => None,
        }
    }

    /// Goes through the messages from `offset` on that begin before `end` and are known to be
    /// there. `take` gets the wanted ones with the bytes of their frames, until it has enough or a
    /// closer look is needed. Returns where the next look begins.
    #[inline]
    pub fn each_known(
        &mut self,
        offset: u64,
        end: u64,
        mut take: impl FnMut(&Arc<Segment>, u64, &mut FrameView, &[u8]) -> Taken,
    ) -> u64 {
        let Self { segment, filter, view, known, .. } = self;
        let is_held = |segment: &&Arc<Segment>| offset >= segment.first() && !segment.is_stale();
        let Some(segment) = segment.as_ref().filter(is_held) else { return offset };
        let is_open = filter.is_open();
        segment.each_plain(offset, (end.min(*known), *known), view, |offset, view, frame| {
            match is_open || filter.matches(view.tag.of(frame)) {
                true => take(segment, offset, view, frame),
                false => Taken::One,
            }
        })
    }

    /// The messages from `offset` on that begin before `end`, are known to be there and have nothing
    /// but a body, to `take`, as `each_known` does; none where only some are wanted.
    #[inline]
    pub fn each_bare(
        &self,
        offset: u64,
        end: u64,
        mut take: impl FnMut(&Arc<Segment>, u64, Bare<'_>) -> Taken,
    ) -> u64 {
        let Some(segment) = self.bare_segment(offset) else { return offset };
        let ends = (end.min(self.known), self.known);
        // By value, so that the loop finds in one place what `take` holds.
        segment.each_bare(offset, ends, move |offset, bare| take(segment, offset, bare))
    }

    /// The first of them.
    #[inline(always)]
    pub fn bare_at(&self, offset: u64) -> Option<(&Arc<Segment>, &[u8])> {
        let segment = self.bare_segment(offset).filter(|_| self.knows(offset))?;
        segment.bare_at(offset, self.known).map(|frame| (segment, frame))
    }

    #[inline(always)]
    fn bare_segment(&self, offset: u64) -> Option<&Arc<Segment>> {
        let segment = self.segment.as_ref().filter(|_| self.filter.is_open())?;
        (offset >= segment.first() && !segment.is_stale()).then_some(segment)
    }

    /// `find` in the queue that `control` belongs to.
    #[inline]
    pub fn find_in(
        &mut self,
        control: &Control,
        offset: u64,
        limit: impl FnOnce() -> u64,
    ) -> Found {
        self.find(offset, limit, |segment| segment.base() == control.segment_base())
    }

    /// What stands at `offset`. `limit` says how far may be read. It is called only when what is
    /// known from the last call does not suffice: a writer must fetch back into its cache the word
    /// that a reader has looked at. `is_last` says whether a segment without an end is the last
    /// one.
    #[inline]
    pub fn find(
        &mut self,
        offset: u64,
        limit: impl FnOnce() -> u64,
        is_last: impl FnOnce(&Segment) -> bool,
    ) -> Found {
        match self.next_known(offset) {
            Some(next) => Found::Message { frame: offset, next },
            None => self.find_anew(offset, limit(), is_last),
        }
    }

    fn find_anew(
        &mut self,
        offset: u64,
        limit: u64,
        is_last: impl FnOnce(&Segment) -> bool,
    ) -> Found {
        if offset >= limit {
            return Found::Nothing;
        }
        let Some(segment) = &self.segment else { return Found::NeedSegment };
        let Some(limit) = limit_in(segment, offset, limit, is_last) else {
            return Found::NeedSegment;
        };
        if self.batch.as_ref().is_some_and(|batch| batch.has(offset)) {
            return self.find_opened(offset);
        }
        match walk::look(segment, offset, limit, &mut self.view) {
            Met::Frame if !self.view.opaque => {
                self.known = limit;
                Found::Message { frame: offset, next: offset + self.view.size as u64 }
            }
            Met::Frame => {
                let (segment, view) = (Arc::clone(segment), std::mem::take(&mut self.view));
                self.open(&segment, offset, offset, &view, limit)
            }
            Met::Gap(_) if offset < segment.first() => Found::NeedSegment,
            Met::Gap(next) => Found::Hole { next },
            Met::Damage(fault, stop) => {
                self.find_inside(&Arc::clone(segment), offset, limit, fault, stop)
            }
        }
    }

    /// A message of the batch that was opened last.
    fn find_opened(&mut self, offset: u64) -> Found {
        let Some(batch) = &self.batch else { return Found::NeedSegment };
        let index = words::size(offset.wrapping_sub(batch.frame));
        let Some(message) = batch.messages.get(index) else {
            let fault =
                Fault::new(batch.at, "no message begins here", "an offset inside the batch");
            return Found::Damaged { fault: fault.into(), next: batch.end };
        };
        self.view = message.clone();
        let is_last = index + 1 == batch.messages.len();
        Found::Message { frame: batch.frame, next: if is_last { batch.end } else { offset + 1 } }
    }

    fn open(
        &mut self,
        segment: &Segment,
        offset: u64,
        frame: u64,
        view: &FrameView,
        limit: u64,
    ) -> Found {
        let end = frame + view.size as u64;
        match segment.open_frame(frame, limit, view) {
            Ok(messages) => {
                let at = segment.position(frame);
                self.batch = Some(OpenedFrame { at, frame, end, messages });
                self.find_opened(offset)
            }
            // There may be memory for it later: the reader stays where it is.
            Err(fault) => {
                let next = if fault.is_ours { offset } else { end };
                Found::Damaged { fault: fault.into(), next }
            }
        }
    }

    /// No frame begins at `offset`: it may be inside a batch, or damaged.
    fn find_inside(
        &mut self,
        segment: &Segment,
        offset: u64,
        limit: u64,
        mut fault: Fault,
        stop: &str,
    ) -> Found {
        if let Some((frame, view)) = walk::frame_around(segment, offset, limit) {
            return self.open(segment, offset, frame, &view, limit);
        }
        if stop == "end" {
            fault.expected = "a frame: the queue goes on behind it".into();
        }
        let next = segment.resync(offset, limit).unwrap_or(limit);
        Found::Damaged { fault: fault.into(), next }
    }
}

/// How far may be read in `segment` from `offset` on; none if `offset` is not in it.
#[inline]
fn limit_in(
    segment: &Segment,
    offset: u64,
    limit: u64,
    is_last: impl FnOnce(&Segment) -> bool,
) -> Option<u64> {
    if offset < segment.base().max(segment.first()) || segment.is_stale() {
        return None;
    }
    match segment.end() {
        LIVE => is_last(segment).then_some(limit),
        end => (offset < end).then(|| end.min(limit)),
    }
}
