//! Reading on in a queue: finding the frame at an offset, across segments and inside batches.

use std::sync::Arc;

use super::claim::{Claimed, tag_of};
use crate::bytes::tags::Filter;
use crate::formats::frame::{Fault, FrameView, Step};
use crate::segment::{LIVE, Segment};
use crate::shared::control::Control;

/// What stands at an offset.
pub enum Found {
    /// A message: its frame's offset and the offset of the next message. It is in `Reader::view`.
    Message { frame: u64, next: u64 },
    /// Nothing yet.
    Nothing,
    /// The segment is not open here: Python finds it.
    NeedSegment,
    /// Known damage that was set aside; reading goes on here.
    Hole { next: u64 },
    /// Damage, and where reading goes on.
    Damaged { fault: Fault, next: u64 },
}

/// One process's place in a queue.
pub struct Reader {
    /// The segment of the last read.
    pub segment: Option<Arc<Segment>>,
    /// The offset that the segment was opened for.
    pub wanted: u64,
    /// Which messages the group wants.
    pub filter: Filter,
    /// The message that was found last.
    pub view: FrameView,
    /// Below it everything is in `segment`, and whole: no look at words that writers move.
    known: u64,
    /// Room for what one call claims, kept between calls.
    pub scratch: Vec<Claimed>,
    batch: Option<(u64, Vec<FrameView>)>,
}

impl Reader {
    /// A reader that stands nowhere yet.
    pub fn new(filter: Filter) -> Self {
        Self {
            segment: None,
            wanted: 0,
            filter,
            view: FrameView::default(),
            known: 0,
            scratch: Vec::new(),
            batch: None,
        }
    }

    /// Whether the group wants this message.
    #[inline]
    pub fn wants(&self, frame: u64) -> bool {
        let tag_fits = |segment| self.filter.matches(tag_of(segment, frame, &self.view));
        self.filter.is_open() || self.segment.as_deref().is_some_and(tag_fits)
    }

    /// Whether what was found needs nothing but its place: no delay, no key, no batch.
    #[inline]
    pub fn is_usual(&self, offset: u64, frame: u64, next: u64) -> bool {
        let view = &self.view;
        view.due_ns == 0 && view.key.len == 0 && frame == offset && next != offset + 1
    }

    /// What stands at `offset`, reading no further than `limit`.
    #[inline]
    pub fn find(&mut self, control: &Control, offset: u64, limit: u64) -> Found {
        if offset >= limit {
            return Found::Nothing;
        }
        let Some((segment, limit)) = segment_for(self.segment.as_ref(), control, offset, limit)
        else {
            return Found::NeedSegment;
        };
        if segment.find_plain(offset, limit, &mut self.view) {
            return Found::Message { frame: offset, next: offset + self.view.size as u64 };
        }
        let step = segment.step(offset, limit, true);
        if offset < segment.first() {
            return Found::NeedSegment; // A ring's head went past it while it was read.
        }
        let segment = Arc::clone(segment);
        self.look_closely(&segment, offset, limit, step)
    }

    /// What stands at `offset`. `limit` tells how far may be read: asked only when what is known
    /// from the last time does not suffice, for a writer must fetch the word back that a reader
    /// took.
    #[inline]
    pub fn find_on(
        &mut self,
        control: &Control,
        offset: u64,
        limit: impl FnOnce() -> u64,
    ) -> Found {
        if let Some(next) = self.next_known(offset) {
            return Found::Message { frame: offset, next };
        }
        let limit = limit();
        let found = self.find(control, offset, limit);
        if let (Found::Message { .. }, Some(segment)) = (&found, &self.segment) {
            self.known = limit.min(segment.end());
        }
        found
    }

    /// Whether a look at `offset` needs no word that writers move.
    #[inline]
    pub fn knows(&self, offset: u64) -> bool {
        offset < self.known
    }

    /// The message at `offset`, where it is known to be; where the one behind it begins. None: look
    /// with `find_on`.
    #[inline]
    pub fn next_known(&mut self, offset: u64) -> Option<u64> {
        if self.knows(offset) { self.find_known(offset, self.known) } else { None }
    }

    /// Opens `segment` for `offset`: nothing is known of it yet.
    pub fn turn_to(&mut self, segment: &Arc<Segment>, offset: u64) {
        (self.segment, self.wanted, self.known) = (Some(Arc::clone(segment)), offset, 0);
    }

    /// The message at `offset`, where everything up to `limit` is known to be in the segment of
    /// the last read; where the one behind it begins. None: look with `find`.
    #[inline]
    fn find_known(&mut self, offset: u64, limit: u64) -> Option<u64> {
        let is_held = |segment: &&Arc<Segment>| offset >= segment.first() && !segment.is_stale();
        let segment = self.segment.as_ref().filter(is_held)?;
        if segment.find_plain(offset, limit, &mut self.view) {
            return Some(offset + self.view.size as u64);
        }
        match segment.step(offset, limit, true) {
            Step::Frame(view) if !view.sealed => {
                let next = offset + view.size as u64;
                self.view = view;
                Some(next)
            }
            _ => None,
        }
    }

    fn look_closely(
        &mut self,
        segment: &Arc<Segment>,
        offset: u64,
        limit: u64,
        step: Step,
    ) -> Found {
        match step {
            Step::Frame(view) if !view.sealed => {
                let next = offset + view.size as u64;
                self.view = view;
                Found::Message { frame: offset, next }
            }
            Step::Frame(view) => self.find_sealed(segment, offset, offset, &view, limit),
            Step::Hole(next) => Found::Hole { next },
            other => self.find_inside(segment, offset, limit, other),
        }
    }

    fn find_sealed(
        &mut self,
        segment: &Segment,
        offset: u64,
        frame: u64,
        view: &FrameView,
        limit: u64,
    ) -> Found {
        if self.batch.as_ref().is_none_or(|(at, _)| *at != frame) {
            match segment.unseal(frame, limit, view) {
                Ok(views) => self.batch = Some((frame, views)),
                Err(fault) => return Found::Damaged { fault, next: frame + view.size as u64 },
            }
        }
        let index = crate::bytes::words::size(offset - frame);
        let found = self
            .batch
            .as_ref()
            .and_then(|(_, views)| Some((views.get(index)?.clone(), views.len())));
        match found {
            Some((message, count)) => {
                let next = if index + 1 < count { offset + 1 } else { frame + view.size as u64 };
                self.view = message;
                Found::Message { frame, next }
            }
            None => Found::Damaged {
                fault: Fault::new(
                    segment.position(offset),
                    "no message begins here",
                    "an offset inside the batch",
                ),
                next: frame + view.size as u64,
            },
        }
    }

    /// No frame begins at `offset`: it may be inside a batch, or damaged.
    fn find_inside(&mut self, segment: &Segment, offset: u64, limit: u64, step: Step) -> Found {
        if let Some((frame, view)) = segment.frame_around(offset, limit) {
            return self.find_sealed(segment, offset, frame, &view, limit);
        }
        let position = segment.position(offset);
        let fault = match step {
            Step::CutShort(fault) | Step::Bad(fault) => fault,
            _ => Fault::new(position, "an end", "a frame: the queue goes on behind it"),
        };
        let next = segment.resync(offset, limit).unwrap_or(limit);
        Found::Damaged { fault, next }
    }
}

/// The segment, if it holds `offset` and is known to; with the end of what may be read in it.
#[inline]
fn segment_for<'a>(
    segment: Option<&'a Arc<Segment>>,
    control: &Control,
    offset: u64,
    limit: u64,
) -> Option<(&'a Arc<Segment>, u64)> {
    let segment = segment?;
    if offset < segment.base().max(segment.first()) || segment.is_stale() {
        return None;
    }
    let end = segment.end();
    if end == LIVE {
        return (control.segment_base() == segment.base()).then_some((segment, limit));
    }
    (offset < end).then_some((segment, end.min(limit)))
}
