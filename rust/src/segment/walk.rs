//! Walking a segment frame by frame: what reading, recovery, verification and sealing are made of.
//!
//! `look` says what stands at one offset, and `Walk` goes from one offset to the next. Groups and
//! scans look through `read::reader`, which also opens segments and batches.

use super::Segment;
use crate::segment::frame::{Fault, FrameView, Step};

/// What stands at an offset.
pub enum Met {
    /// A whole frame. It is in the view.
    Frame,
    /// Nothing to read any more, up to this offset: damage that a repair has set aside, or what a
    /// ring's head went past.
    Gap(u64),
    /// No whole frame, and in one word why: "end" (nothing), "cut" (a frame that runs past the
    /// bytes) or "bad".
    Damage(Fault, &'static str),
}

/// How closely a walk looks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Care {
    /// At how long each frame is: the view has nothing else.
    Sizes,
    /// At every field.
    Fields,
    /// At every field and every checksum.
    Checksums,
}

/// What stands at `offset`, with its checksums, if it ends before `limit`.
#[inline]
pub fn look(segment: &Segment, offset: u64, limit: u64, view: &mut FrameView) -> Met {
    match segment.find_plain(offset, limit, view) {
        true => Met::Frame,
        false => look_closely(segment, offset, limit, true, view),
    }
}

fn look_closely(
    segment: &Segment,
    offset: u64,
    limit: u64,
    verify: bool,
    view: &mut FrameView,
) -> Met {
    let step = segment.step(offset, limit, verify);
    let first = segment.first();
    if offset < first {
        return Met::Gap(first); // A ring's head went past it while it was read.
    }
    match step {
        Step::Frame(found) => {
            *view = found;
            Met::Frame
        }
        Step::Hole(next) => Met::Gap(next),
        Step::CutShort(fault) => Met::Damage(fault, "cut"),
        Step::Bad(fault) => Met::Damage(fault, "bad"),
        Step::End => Met::Damage(Fault::new(segment.position(offset), "an end", "a frame"), "end"),
    }
}

/// A walk over the frames of `[at, limit)`.
pub struct Walk<'a> {
    segment: &'a Segment,
    /// Where it stands: behind the last frame or gap, or at the damage.
    pub at: u64,
    limit: u64,
    care: Care,
    /// The last frame.
    pub view: FrameView,
}

impl<'a> Walk<'a> {
    /// Begins at `start`.
    pub fn new(segment: &'a Segment, start: u64, limit: u64, care: Care) -> Self {
        Self { segment, at: start, limit, care, view: FrameView::default() }
    }

    /// The offset where it stood and what stands there; none at the limit.
    #[inline]
    pub fn next(&mut self) -> Option<(u64, Met)> {
        if self.at >= self.limit {
            return None;
        }
        let (offset, limit) = (self.at, self.limit);
        let met = match self.care {
            Care::Sizes => self.measure(),
            Care::Fields => look_closely(self.segment, offset, limit, false, &mut self.view),
            Care::Checksums => look(self.segment, offset, limit, &mut self.view),
        };
        match met {
            Met::Frame => self.at += self.view.size as u64,
            Met::Gap(next) => self.at = next,
            Met::Damage(..) => {}
        }
        Some((offset, met))
    }

    fn measure(&mut self) -> Met {
        match self.segment.size_at(self.at, self.limit) {
            Some(size) => {
                self.view.size = size;
                Met::Frame
            }
            None => look_closely(self.segment, self.at, self.limit, false, &mut self.view),
        }
    }

    /// The next frame, over gaps, and where it begins. None: the limit, or damage.
    #[inline]
    pub fn next_frame(&mut self) -> Option<u64> {
        loop {
            match self.next()? {
                (offset, Met::Frame) => return Some(offset),
                (_, Met::Gap(_)) => {}
                (_, Met::Damage(..)) => return None,
            }
        }
    }

    /// Goes on behind damage, at the next whole frame. False: there is none.
    pub fn pass_damage(&mut self) -> bool {
        let next = self.segment.resync(self.at, self.limit);
        self.at = next.unwrap_or(self.at);
        next.is_some()
    }

    /// How many frames there are up to the limit; damage counts for none.
    pub fn count_past_damage(&mut self) -> u64 {
        let mut count = 0;
        while let Some((_, met)) = self.next() {
            match met {
                Met::Frame => count += 1,
                Met::Gap(_) => {}
                Met::Damage(..) if self.pass_damage() => {}
                Met::Damage(..) => break,
            }
        }
        count
    }

    /// The messages of the last frame, which began at `offset`: of an opaque one those inside.
    pub fn messages(&self, offset: u64) -> Result<Vec<FrameView>, Fault> {
        match self.view.opaque {
            true => self.segment.open_frame(offset, self.limit, &self.view),
            false => Ok(vec![self.view.clone()]),
        }
    }
}

/// The compressed frame that `offset` lies in, found by walking the segment.
pub fn frame_around(segment: &Segment, offset: u64, limit: u64) -> Option<(u64, FrameView)> {
    let mut walk = Walk::new(segment, segment.first(), limit, Care::Fields);
    while walk.at < offset {
        let frame = walk.next_frame()?;
        if offset < walk.at {
            return (walk.view.opaque && walk.view.count != 1).then_some((frame, walk.view));
        }
    }
    None
}
