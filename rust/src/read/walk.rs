//! Walks with their verdict, for Python: what recovery, verification and sealing are made of.

use std::collections::BTreeSet;

use pyo3::prelude::*;

use crate::segment::frame::{Fault, FrameView, NO_NUMBER, NO_TIME};
use crate::segment::walk::{Care, Met, Walk, frame_around, look};
use crate::segment::{PySegment, Segment};

/// How many tags are remembered at most.
const MAX_TAGS: usize = 256;

/// What a walk saw.
#[pyclass(frozen, get_all, module = "penstock._core")]
#[derive(Default)]
pub struct Walked {
    /// Whole frames.
    frames: u64,
    /// Messages in them.
    messages: u64,
    /// Frames that no checksum covers as a whole.
    unchecked: u64,
    /// Offset after the last whole frame.
    end: u64,
    /// Offset after the last put that is there with all its frames.
    put_end: u64,
    /// Number after the last message's of that put.
    put_number: Option<i64>,
    /// Number of the first message, none where the format keeps none.
    first_number: Option<i64>,
    /// Number after the last message's.
    next_number: Option<i64>,
    /// Smallest timestamp.
    first_ns: Option<i64>,
    /// Largest timestamp.
    last_ns: Option<i64>,
    /// CRC-32C of all frames in order.
    checksum: u32,
    /// Distinct tags, at most 256.
    tags: Vec<String>,
    /// Whether there were more tags, or tags that could not be read.
    more_tags: bool,
    /// Damage: `(byte, found, expected, bytes passed over)`.
    faults: Vec<(usize, String, String, u64)>,
    /// The offsets `[first, last)` of each fault.
    bad: Vec<(u64, u64)>,
    /// Why it stopped before the limit: "end", "cut" (a frame that runs past the bytes), "bad",
    /// or "" at the limit.
    stop: &'static str,
}

struct Notes<'a> {
    segment: &'a Segment,
    seen: Walked,
    tags: BTreeSet<Vec<u8>>,
}

impl Notes<'_> {
    fn frame(&mut self, offset: u64, limit: u64, view: &FrameView) {
        let seen = &mut self.seen;
        let bytes = self.segment.frame_bytes(offset, view.size);
        let mut count = u64::from(view.count);
        if view.opaque {
            match self.segment.open_frame(offset, limit, view) {
                Ok(inner) => {
                    count = inner.len() as u64;
                    for one in &inner {
                        note_tag(
                            &mut self.tags,
                            seen,
                            one.owned.as_deref().map_or(&[], |owned| one.tag.of(owned)),
                        );
                        note_time(seen, one.timestamp_ns);
                    }
                }
                Err(_) => {
                    seen.more_tags = true;
                    count = count.max(1);
                }
            }
        } else {
            note_tag(&mut self.tags, seen, view.tag.of(bytes));
        }
        note_time(seen, view.timestamp_ns);
        seen.frames += 1;
        seen.unchecked += u64::from(!self.segment.is_checked(offset));
        seen.messages += count;
        if view.number != NO_NUMBER {
            seen.first_number.get_or_insert(view.number);
            seen.next_number = Some(view.number + i64::try_from(count).unwrap_or(0));
        }
        seen.checksum = crate::bytes::checksum::crc32c_append(seen.checksum, bytes);
        seen.end = offset + view.size as u64;
        if !view.has_more {
            (seen.put_end, seen.put_number) = (seen.end, seen.next_number);
        }
    }

    /// Nothing to read up to `next`, and nothing missing.
    fn gap(&mut self, next: u64) {
        self.seen.end = next;
        (self.seen.put_end, self.seen.put_number) = (next, self.seen.next_number);
    }

    fn fault(&mut self, offset: u64, fault: Fault, skipped: u64) {
        self.seen.bad.push((offset, offset + skipped));
        self.seen.faults.push((fault.at, fault.found, fault.expected, skipped));
    }
}

fn note_time(seen: &mut Walked, time: i64) {
    if time != NO_TIME {
        seen.first_ns = Some(seen.first_ns.map_or(time, |first| first.min(time)));
        seen.last_ns = Some(seen.last_ns.map_or(time, |last| last.max(time)));
    }
}

fn note_tag(tags: &mut BTreeSet<Vec<u8>>, seen: &mut Walked, tag: &[u8]) {
    if tag.is_empty() || tags.contains(tag) {
        return;
    }
    if tags.len() < MAX_TAGS {
        tags.insert(tag.to_vec());
    } else {
        seen.more_tags = true;
    }
}

/// What to look for besides frames.
#[derive(Clone, Copy)]
struct Demands {
    past_damage: bool,
    open_frames: bool,
    covered: bool,
}

fn walk_segment(segment: &Segment, start: u64, limit: u64, demands: Demands) -> Walked {
    let seen = Walked { end: start, put_end: start, ..Walked::default() };
    let mut notes = Notes { segment, seen, tags: BTreeSet::new() };
    let mut walk = Walk::new(segment, start, limit, Care::Checksums);
    while let Some((offset, met)) = walk.next() {
        match met {
            Met::Frame if demands.covered && !segment.is_checked(offset) => break,
            Met::Frame => {
                if demands.open_frames
                    && let Err(fault) = walk.messages(offset)
                {
                    notes.fault(offset, fault, walk.view.size as u64);
                }
                notes.frame(offset, limit, &walk.view);
            }
            Met::Gap(next) => notes.gap(next.min(limit)),
            Met::Damage(fault, stop) => {
                let is_passed = demands.past_damage && walk.pass_damage();
                let next = if is_passed { walk.at } else { limit };
                notes.fault(offset, fault, next - offset);
                if !is_passed {
                    notes.seen.stop = stop;
                    break;
                }
            }
        }
    }
    notes.seen.tags =
        notes.tags.iter().map(|tag| String::from_utf8_lossy(tag).into_owned()).collect();
    notes.seen
}

/// Walks the frames of `[start, limit)` with their checksums. With `past_damage` it goes on
/// behind bad bytes wherever a whole frame stands again; with `open_frames` it also opens every
/// compressed or encrypted frame; with `covered` it ends at the first frame without a checksum.
#[pyfunction]
#[pyo3(signature = (segment, start, limit, *, past_damage=false, open_frames=false, covered=false))]
pub fn walk(
    py: Python<'_>,
    segment: &PySegment,
    start: u64,
    limit: u64,
    past_damage: bool,
    open_frames: bool,
    covered: bool,
) -> Walked {
    let demands = Demands { past_damage, open_frames, covered };
    py.detach(|| walk_segment(&segment.0, start, limit, demands))
}

/// The offset of the first frame at or after `start` for which `number` or time is reached:
/// `(offset, found)`; without one, the end of what was walked.
#[pyfunction]
#[pyo3(signature = (segment, start, limit, *, number=None, timestamp_ns=None))]
pub fn find_frame(
    py: Python<'_>,
    segment: &PySegment,
    start: u64,
    limit: u64,
    number: Option<i64>,
    timestamp_ns: Option<i64>,
) -> (u64, bool) {
    py.detach(|| {
        let mut walk = Walk::new(&segment.0, start, limit, Care::Fields);
        let is_there = |message: &FrameView| {
            number.is_some_and(|wanted| message.number >= wanted)
                || timestamp_ns.is_some_and(|wanted| message.timestamp_ns >= wanted)
        };
        while let Some(offset) = walk.next_frame() {
            let index = match walk.view.opaque {
                true => walk.messages(offset).ok().and_then(|all| all.iter().position(is_there)),
                false => is_there(&walk.view).then_some(0),
            };
            if let Some(index) = index {
                return (offset + index as u64, true);
            }
        }
        (walk.at, false)
    })
}

/// Frame boundaries of `[start, limit)` at least `every` bytes apart, `start` not among them: where
/// a range may be cut. Damage ends the list; what is behind it stays in one piece.
#[pyfunction]
pub fn frame_cuts(
    py: Python<'_>,
    segment: &PySegment,
    start: u64,
    limit: u64,
    every: u64,
) -> Vec<u64> {
    py.detach(|| {
        let mut walk = Walk::new(&segment.0, start, limit, Care::Sizes);
        let (mut last, mut cuts) = (start, Vec::new());
        while walk.next_frame().is_some() {
            if walk.at - last >= every.max(1) && walk.at < limit {
                cuts.push(walk.at);
                last = walk.at;
            }
        }
        cuts
    })
}

/// Where the frame begins that the message at `offset` is in: `offset` itself, unless it is inside
/// a compressed one.
#[pyfunction]
pub fn frame_start(py: Python<'_>, segment: &PySegment, offset: u64, limit: u64) -> u64 {
    py.detach(|| match look(&segment.0, offset, limit, &mut FrameView::default()) {
        Met::Frame => offset,
        _ => frame_around(&segment.0, offset, limit).map_or(offset, |(frame, _)| frame),
    })
}

/// As many whole frames from `start` on as hold at most `rows` messages and `bytes` bytes, but at
/// least one: `(offset behind them, messages)`. Damage counts as the end of the range, so that
/// reading it finds it.
#[pyfunction]
pub fn skip_frames(
    py: Python<'_>,
    segment: &PySegment,
    start: u64,
    limit: u64,
    rows: u64,
    bytes: u64,
) -> (u64, u64) {
    py.detach(|| {
        let mut walk = Walk::new(&segment.0, start, limit, Care::Fields);
        let mut seen = 0u64;
        while let Some((offset, met)) = walk.next() {
            let Met::Frame = met else { return (limit, seen) };
            let count = match walk.view.opaque {
                // An encrypted frame may not say how many it holds.
                true => walk.messages(offset).map_or(1, |inner| inner.len() as u64),
                false => u64::from(walk.view.count),
            };
            if offset > start && (seen + count > rows || walk.at - start > bytes) {
                return (offset, seen);
            }
            seen += count;
            if seen >= rows {
                break;
            }
        }
        (walk.at, seen)
    })
}

/// Whether a message begins at `offset`: cursors are checked with it before they are trusted.
#[pyfunction]
pub fn is_boundary(py: Python<'_>, segment: &PySegment, offset: u64, limit: u64) -> bool {
    py.detach(|| {
        let mut walk = Walk::new(&segment.0, segment.0.first(), limit, Care::Sizes);
        while walk.at < offset {
            let Some(frame) = walk.next_frame() else { return false };
            if offset < walk.at {
                let mut inside = Walk::new(&segment.0, frame, limit, Care::Fields);
                return inside.next_frame() == Some(frame)
                    && inside.view.opaque
                    && inside.messages(frame).is_ok_and(|all| offset - frame < all.len() as u64);
            }
        }
        walk.at == offset
    })
}

/// Encrypted frames that are tried, at most, before a key is said to open none.
const FRAMES_TRIED: usize = 16;

/// Whether the segment's key opens one of the first whole frames below `limit`; none when there is
/// no frame to try.
#[pyfunction]
pub fn opens_frames(py: Python<'_>, segment: &PySegment, limit: u64) -> Option<bool> {
    py.detach(|| {
        let mut walk = Walk::new(&segment.0, segment.0.first(), limit, Care::Checksums);
        let mut tried = 0;
        while let Some((offset, met)) = walk.next() {
            match met {
                Met::Frame if segment.0.open_frame(offset, limit, &walk.view).is_ok() => {
                    return Some(true);
                }
                Met::Frame if tried + 1 == FRAMES_TRIED => return Some(false),
                Met::Frame => tried += 1,
                Met::Gap(_) => {}
                Met::Damage(_, "end") => break,
                Met::Damage(..) if walk.pass_damage() => {}
                Met::Damage(..) => break,
            }
        }
        (tried > 0).then_some(false)
    })
}
