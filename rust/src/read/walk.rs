//! Walking a segment frame by frame: what recovery, verification and sealing are made of.

use std::collections::BTreeSet;

use pyo3::prelude::*;

use crate::formats::frame::{Fault, NO_NUMBER, NO_TIME, Step};
use crate::segment::{PySegment, Segment};

/// Tags remembered at most.
const MAX_TAGS: usize = 256;

/// What a walk saw.
#[pyclass(frozen, get_all, module = "penstock._core")]
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

struct Walker<'a> {
    segment: &'a Segment,
    seen: Walked,
    tags: BTreeSet<Vec<u8>>,
}

impl Walker<'_> {
    fn frame(&mut self, offset: u64, limit: u64, view: &crate::formats::frame::FrameView) {
        let seen = &mut self.seen;
        let bytes = self.segment.frame_bytes(offset, view.size);
        let mut count = u64::from(view.count);
        if view.sealed {
            match self.segment.unseal(offset, limit, view) {
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

fn walk_segment(
    segment: &Segment,
    start: u64,
    limit: u64,
    past_damage: bool,
    unseal_check: bool,
    is_covered: bool,
) -> Walked {
    let seen = Walked {
        frames: 0,
        messages: 0,
        unchecked: 0,
        end: start,
        put_end: start,
        put_number: None,
        first_number: None,
        next_number: None,
        first_ns: None,
        last_ns: None,
        checksum: 0,
        tags: Vec::new(),
        more_tags: false,
        faults: Vec::new(),
        bad: Vec::new(),
        stop: "",
    };
    let mut walker = Walker { segment, seen, tags: BTreeSet::new() };
    let mut offset = start;
    let mut plain = crate::formats::frame::FrameView::default();
    while offset < limit {
        if !is_covered && segment.find_plain(offset, limit, &mut plain) {
            walker.frame(offset, limit, &plain);
            offset += plain.size as u64;
            continue;
        }
        let step = segment.step(offset, limit, true);
        if offset < segment.first() {
            offset = segment.first(); // A ring's head went past it while it was read.
            continue;
        }
        let (fault, stop) = match step {
            Step::Frame(_) if is_covered && !segment.is_checked(offset) => break,
            Step::Frame(view) => {
                let broken = (unseal_check && view.sealed)
                    .then(|| segment.unseal(offset, limit, &view).err())
                    .flatten();
                if let Some(fault) = broken {
                    walker.fault(offset, fault, view.size as u64);
                }
                walker.frame(offset, limit, &view);
                offset += view.size as u64;
                continue;
            }
            Step::Hole(next) => {
                offset = next;
                walker.seen.end = next.min(limit);
                (walker.seen.put_end, walker.seen.put_number) =
                    (walker.seen.end, walker.seen.next_number);
                continue;
            }
            Step::End => (Fault::new(segment.position(offset), "an end", "a frame"), "end"),
            Step::CutShort(fault) => (fault, "cut"),
            Step::Bad(fault) => (fault, "bad"),
        };
        let next = if past_damage { segment.resync(offset, limit) } else { None };
        match next {
            Some(next) => {
                walker.fault(offset, fault, next - offset);
                offset = next;
            }
            None => {
                walker.seen.stop = stop;
                walker.fault(offset, fault, limit - offset);
                break;
            }
        }
    }
    walker.seen.tags =
        walker.tags.iter().map(|tag| String::from_utf8_lossy(tag).into_owned()).collect();
    walker.seen
}

/// Walks the frames of `[start, limit)` with their checksums. With `past_damage` it goes on
/// behind bad bytes wherever a whole frame stands again; with `unseal` it also opens every
/// compressed or encrypted frame; with `covered` it ends at the first frame without a checksum.
#[pyfunction]
#[pyo3(signature = (segment, start, limit, *, past_damage=false, unseal=false, covered=false))]
pub fn walk(
    py: Python<'_>,
    segment: &PySegment,
    start: u64,
    limit: u64,
    past_damage: bool,
    unseal: bool,
    covered: bool,
) -> Walked {
    py.detach(|| walk_segment(&segment.0, start, limit, past_damage, unseal, covered))
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
        let segment = &*segment.0;
        let mut offset = start;
        while offset < limit {
            let view = match segment.step(offset, limit, false) {
                Step::Frame(view) => view,
                Step::Hole(next) => {
                    offset = next;
                    continue;
                }
                _ => break,
            };
            let inner = if view.sealed {
                segment.unseal(offset, limit, &view).unwrap_or_default()
            } else {
                Vec::new()
            };
            let messages = if inner.is_empty() { std::slice::from_ref(&view) } else { &inner };
            for (index, message) in (0u64..).zip(messages) {
                let is_there = number.is_some_and(|wanted| message.number >= wanted)
                    || timestamp_ns.is_some_and(|wanted| message.timestamp_ns >= wanted);
                if is_there {
                    return (offset + index, true);
                }
            }
            offset += view.size as u64;
        }
        (offset, false)
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
        let (mut offset, mut last, mut cuts) = (start, start, Vec::new());
        while offset < limit {
            let Step::Frame(view) = segment.0.step(offset, limit, false) else { break };
            offset += view.size as u64;
            if offset - last >= every.max(1) && offset < limit {
                cuts.push(offset);
                last = offset;
            }
        }
        cuts
    })
}

/// Where the frame begins that the message at `offset` is in: `offset` itself, unless it is inside
/// a compressed one.
#[pyfunction]
pub fn frame_start(py: Python<'_>, segment: &PySegment, offset: u64, limit: u64) -> u64 {
    py.detach(|| match segment.0.step(offset, limit, true) {
        Step::Frame(_) => offset,
        _ => segment.0.frame_around(offset, limit).map_or(offset, |(frame, _)| frame),
    })
}

/// As many whole frames from `start` on as hold at most `rows` messages and `bytes` bytes, but at
/// least one: `(offset behind them, messages)`. Damage counts as the end of the range, so that
/// whoever reads it finds it.
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
        let (mut offset, mut seen) = (start, 0u64);
        while offset < limit {
            let Step::Frame(view) = segment.0.step(offset, limit, false) else {
                return (limit, seen);
            };
            let count = match view.sealed {
                // An encrypted frame may not say how many it holds.
                true => {
                    segment.0.unseal(offset, limit, &view).map_or(1, |inner| inner.len() as u64)
                }
                false => u64::from(view.count),
            };
            let next = offset + view.size as u64;
            if offset > start && (seen + count > rows || next - start > bytes) {
                break;
            }
            seen += count;
            offset = next;
            if seen >= rows {
                break;
            }
        }
        (offset, seen)
    })
}

/// Whether a message begins at `offset`: cursors are checked with it before they are trusted.
#[pyfunction]
pub fn is_boundary(py: Python<'_>, segment: &PySegment, offset: u64, limit: u64) -> bool {
    py.detach(|| {
        let segment = &*segment.0;
        let mut at = segment.first();
        while at < offset {
            let Some(size) = segment.size_at(at, limit) else { return false };
            let next = at + size as u64;
            if offset < next {
                let Step::Frame(view) = segment.step(at, limit, false) else { return false };
                return view.sealed
                    && segment
                        .unseal(at, limit, &view)
                        .is_ok_and(|inner| offset - at < inner.len() as u64);
            }
            at = next;
        }
        at == offset
    })
}

/// Sealed frames that are tried, at most, before a key is said to open none.
const FRAMES_TRIED: usize = 16;

/// Whether the segment's key opens one of the first whole frames below `limit`; none when there is
/// no frame to try.
#[pyfunction]
pub fn opens_frames(py: Python<'_>, segment: &PySegment, limit: u64) -> Option<bool> {
    let segment = &segment.0;
    py.detach(|| {
        let (mut offset, mut tried) = (segment.first(), 0);
        while offset < limit && tried < FRAMES_TRIED {
            offset = match segment.step(offset, limit, true) {
                Step::Frame(view) => {
                    tried += 1;
                    if segment.unseal(offset, limit, &view).is_ok() {
                        return Some(true);
                    }
                    offset + view.size as u64
                }
                Step::Hole(next) => next,
                Step::End => break,
                Step::Bad(_) | Step::CutShort(_) => match segment.resync(offset, limit) {
                    Some(next) => next,
                    None => break,
                },
            };
        }
        (tried > 0).then_some(false)
    })
}
