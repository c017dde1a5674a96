//! One data file, open: where its bytes are and how its frames read.

mod copy;
pub mod extras;
pub mod frame;
pub mod integrity;
pub mod message_bytes;
pub mod penstock_frame;
pub mod publish;
mod reused;
pub mod ring;
mod side_file;
pub mod side_files;
pub mod walk;

use std::borrow::Cow;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};

use pyo3::prelude::*;

use crate::bytes::checksum::crc32c_seeded;
use crate::bytes::words::{self, align8};
use crate::errors;
use crate::files::region;
use crate::segment::frame::{Fault, FrameView, Frames, Span, Step};
use crate::segment::penstock_frame::PenstockFrames;
use crate::segment::reused::Reused;
use crate::segment::ring::Ring;
use crate::segment::side_files::SideFiles;
use crate::sys::mapping::Mapping;
use crate::sys::view::Lender;
use crate::sys::{crc, memory};

mod python;

pub use python::PySegment;

/// The end of a segment that is still written to.
pub const LIVE: u64 = u64::MAX;

enum Backing {
    Mapped(Mapping),
    /// Bytes from `at` of the file on: read by a call, decrypted or decompressed.
    Owned {
        bytes: Reused,
        at: usize,
    },
}

/// A framing, as Python hands it around.
#[pyclass(frozen, module = "penstock._core", name = "Frames")]
pub struct PyFrames(pub Arc<dyn Frames>);

/// One data file, open.
///
/// A message at `offset` begins at byte `offset - base + shift` of the file; in a ring of
/// `ring.len()` bytes from `shift` on, at `(offset - base) % ring.len() + shift`.
pub struct Segment {
    path: PathBuf,
    base: u64,
    first: u64,
    shift: usize,
    ring: Option<Ring>,
    end: AtomicU64,
    backing: Backing,
    allocated: AtomicU64,
    grow_step: u64,
    /// From this byte on no more frames begin.
    soft_bytes: usize,
    by_write: bool,
    is_spoiled: AtomicBool,
    frames: Arc<dyn Frames>,
    alignment: u64,
    plain: Plain,
    sides: Option<Arc<SideFiles>>,
    holes: OnceLock<Vec<(u64, u64)>>,
}

/// What became of a frame that was handed out.
pub enum Taken {
    /// It was taken, and the next one may come.
    One,
    /// It was taken, and nothing else is.
    Last,
    /// It was not: it needs a closer look.
    Not,
}

/// A frame that has nothing but a body, as it was found.
pub struct Bare<'a> {
    /// Its bytes.
    pub frame: &'a [u8],
    /// The same, and what is known to be there behind it.
    rest: &'a [u8],
}

impl<'a> Bare<'a> {
    /// The body.
    #[inline(always)]
    pub fn body(&self) -> &'a [u8] {
        PenstockFrames::body_of_bare(self.frame)
    }

    /// As many bytes from the body's first on, if they are there: as one piece whose size the
    /// compiler knows, a few bytes too many are copied faster than the right number.
    #[inline(always)]
    pub fn body_and_more<const N: usize>(&self) -> Option<&'a [u8; N]> {
        PenstockFrames::body_of_bare(self.rest).first_chunk()
    }
}

/// Frames that have nothing but a body, from `offset` on, which is where `rest` begins.
struct BareFrames<'a, F> {
    rest: &'a [u8],
    offset: u64,
    end: u64,
    take: F,
}

impl<F: FnMut(u64, Bare<'_>) -> Taken> crc::Work for BareFrames<'_, F> {
    type Answer = u64;

    #[inline(always)]
    fn run(self, sum: impl Fn(u32, &[u8]) -> u32) -> u64 {
        // Apart: what is one value in memory is loaded and stored at every frame.
        let Self { mut rest, mut offset, end, mut take } = self;
        while offset < end {
            let Some(frame) = PenstockFrames::bare_in(rest, &sum) else { break };
            let size = align8(frame.len());
            let Some(behind) = rest.get(size..) else { break };
            let after = offset + size as u64;
            match take(offset, Bare { frame, rest }) {
                Taken::Not => break,
                Taken::Last => return after,
                Taken::One => (offset, rest) = (after, behind),
            }
        }
        offset
    }
}

/// Which frames are found in place.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Plain {
    /// Those of our own format, without a call.
    Own,
    /// Those that the framing finds.
    Framing,
    None,
}

impl Plain {
    fn of(frames: &dyn Frames, has_sides: bool) -> Self {
        match frames.is_own() {
            true if !has_sides => Self::Own,
            false if frames.has_plain() => Self::Framing,
            _ => Self::None,
        }
    }
}

impl Segment {
    /// A segment over bytes that were read, decrypted or decompressed: `at` is where in the file
    /// (or in the plain stream) they begin.
    pub fn owned(
        (path, base, shift): (PathBuf, u64, usize),
        bytes: impl Into<Reused>,
        at: usize,
        range: Range<u64>,
        frames: Arc<dyn Frames>,
        sides: Option<Arc<SideFiles>>,
    ) -> Self {
        Self {
            path,
            base,
            first: range.start,
            shift,
            ring: None,
            end: range.end.into(),
            backing: Backing::Owned { bytes: bytes.into(), at },
            allocated: 0.into(),
            grow_step: 0,
            soft_bytes: 0,
            by_write: false,
            is_spoiled: false.into(),
            plain: Plain::of(&*frames, sides.is_some()),
            alignment: frames.alignment().max(1) as u64,
            frames,
            sides,
            holes: OnceLock::new(),
        }
    }

    /// Offset of the first byte.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// Offset of the first message it may hold. In a ring that is the head, as it is now: what
    /// was read before this call from an offset below does not count.
    #[inline]
    pub fn first(&self) -> u64 {
        self.ring.as_ref().map_or(self.first, |ring| ring.head().max(self.first))
    }

    /// Set in a ring.
    #[inline]
    pub fn ring(&self) -> Option<&Ring> {
        self.ring.as_ref()
    }

    /// Whether it is a ring whose file was replaced.
    #[inline]
    pub fn is_stale(&self) -> bool {
        self.ring.as_ref().is_some_and(Ring::is_stale)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Damage in it, for Python.
    pub fn corrupt(&self, py: Python<'_>, fault: &Fault) -> PyErr {
        match fault.is_ours {
            true => errors::no_memory(py, &self.path, &fault.found),
            false => errors::corrupt(py, &self.path, fault.at, &fault.found, &fault.expected),
        }
    }

    /// The framing: how bytes become frames, and back.
    #[inline]
    pub fn frames(&self) -> &dyn Frames {
        &*self.frames
    }

    /// First offset after the segment, `LIVE` while it is written to.
    #[inline]
    pub fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    /// The byte of the file where `offset` is.
    #[inline]
    pub fn position(&self, offset: u64) -> usize {
        let relative = offset.wrapping_sub(self.base);
        let relative = self.ring.as_ref().map_or(relative, |ring| relative % ring.len());
        words::size(relative).saturating_add(self.shift)
    }

    /// The whole mapping, or the owned bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match &self.backing {
            Backing::Mapped(map) => map.bytes(),
            Backing::Owned { bytes, .. } => bytes,
        }
    }

    /// `(bytes, at)` such that the message at `offset` begins at `bytes[at]` and `bytes` ends
    /// where `limit` is.
    #[inline]
    pub fn window(&self, offset: u64, limit: u64) -> (&[u8], usize) {
        let at = self.position(offset);
        let len = words::size(limit.saturating_sub(offset));
        let (bytes, at) = match &self.backing {
            Backing::Mapped(map) => (map.bytes(), at),
            Backing::Owned { bytes, at: first } => (&**bytes, at.wrapping_sub(*first)),
        };
        let end = at.saturating_add(len).min(bytes.len());
        (bytes.get(..end).unwrap_or_default(), at)
    }

    /// What stands at `offset`, if it ends before `limit`. With `verify`, checksums count, those
    /// beside the segment too, and a message has what was noted for it there.
    #[inline]
    pub fn step(&self, offset: u64, limit: u64, verify: bool) -> Step {
        if let Some(next) = self.hole_at(offset) {
            return Step::Hole(next);
        }
        let (bytes, at) = self.window(offset, limit);
        let mut step = self.frames.step(bytes, at, offset, verify);
        self.in_file(&mut step);
        if let (true, Step::Frame(view)) = (verify, &mut step)
            && let Err(fault) = self.judge(offset, view)
        {
            return Step::Bad(fault);
        }
        step
    }

    /// Finds a plain, whole frame at `offset` that its checksum fits; one of our own format without
    /// a call. False: look with `step`.
    #[inline]
    pub fn find_plain(&self, offset: u64, limit: u64, view: &mut FrameView) -> bool {
        if self.plain == Plain::None || self.holes.get().is_some() {
            return false;
        }
        let (bytes, at) = self.window(offset, limit);
        match self.plain {
            Plain::Own => PenstockFrames::plain_at(bytes, at, view).is_some(),
            _ => self.frames.find_plain(bytes, at, view) && self.judge(offset, view).is_ok(),
        }
    }

    /// Hands every frame from `offset` on to `take`, with its bytes, as long as they are plain and
    /// whole, of our own format and begin before `end`, and it wants more. What a look asks of a
    /// segment is asked once for all of them. Returns where the next look begins.
    #[inline]
    pub fn each_plain(
        &self,
        mut offset: u64,
        (end, limit): (u64, u64),
        view: &mut FrameView,
        mut take: impl FnMut(u64, &mut FrameView, &[u8]) -> Taken,
    ) -> u64 {
        if !self.is_simple() {
            return offset;
        }
        let (bytes, mut at) = self.window(offset, limit);
        while offset < end {
            let Some(frame) = PenstockFrames::plain_at(bytes, at, view) else { break };
            let next = at.saturating_add(view.size);
            if next > bytes.len() {
                break;
            }
            let after = offset + view.size as u64;
            match take(offset, view, frame) {
                Taken::Not => break,
                Taken::Last => return after,
                Taken::One => (offset, at) = (after, next),
            }
        }
        offset
    }

    /// The bytes of the frame at `offset`, if it ends before `limit`, is whole, of our own format,
    /// and has nothing but a body. None says nothing.
    #[inline(always)]
    pub fn bare_at(&self, offset: u64, limit: u64) -> Option<&[u8]> {
        if !self.is_simple() {
            return None;
        }
        let (bytes, at) = self.window(offset, limit);
        PenstockFrames::bare_in(bytes.get(at..)?, crc32c_seeded)
    }

    /// As `each_plain`, of those frames that `bare_at` finds.
    #[inline]
    pub fn each_bare(
        &self,
        offset: u64,
        (end, limit): (u64, u64),
        take: impl FnMut(u64, Bare<'_>) -> Taken,
    ) -> u64 {
        if !self.is_simple() {
            return offset;
        }
        let (bytes, at) = self.window(offset, limit);
        let rest = bytes.get(at..).unwrap_or_default();
        crc::compiled_in(BareFrames { rest, offset, end, take }, crc32c_seeded)
    }

    /// Whether frames are where their offsets say, and need nothing from beside the segment.
    #[inline(always)]
    pub fn is_simple(&self) -> bool {
        self.plain == Plain::Own && self.ring.is_none() && self.holes.get().is_none()
    }

    /// Judges a frame by its checksum beside the segment, and gives it what was noted for it there.
    #[inline]
    fn judge(&self, offset: u64, view: &mut FrameView) -> Result<(), Fault> {
        let Some(sides) = &self.sides else { return Ok(()) };
        let frame = self.frame_bytes(offset, view.size);
        sides.judge(frame, self.position(offset), offset, view)
    }

    /// Whether plain frames are here, which can be read again as they were: all but what lies
    /// beside the segment.
    #[inline]
    pub fn has_plain(&self) -> bool {
        self.plain != Plain::None
    }

    /// A plain frame that was found before.
    pub fn plain_again(&self, offset: u64, size: u32) -> FrameView {
        let (bytes, at) = self.window(offset, offset.saturating_add(u64::from(size)));
        if self.plain == Plain::Own {
            return PenstockFrames::read_again(bytes, at);
        }
        let mut view = FrameView::default();
        self.frames.find_plain(bytes, at, &mut view);
        view
    }

    /// Bytes of the file before those that `window` gives.
    fn skipped(&self) -> usize {
        match &self.backing {
            Backing::Mapped(_) => 0,
            Backing::Owned { at, .. } => *at,
        }
    }

    /// Gives a fault its byte of the file: a framing counts from the first byte that it sees.
    #[inline]
    fn in_file(&self, step: &mut Step) {
        if let Step::CutShort(fault) | Step::Bad(fault) = step {
            fault.at = fault.at.saturating_add(self.skipped());
        }
    }

    /// What lies beside the segment, where its format has no place for it.
    #[inline]
    pub fn sides(&self) -> Option<&SideFiles> {
        self.sides.as_deref()
    }

    /// Whether a checksum covers the whole frame at `offset`: its own, or one beside the segment.
    pub fn is_checked(&self, offset: u64) -> bool {
        self.frames.is_checked() || self.sides.as_ref().is_some_and(|s| s.is_covered(offset))
    }

    /// The next offset after `offset`, which is damaged, where a whole frame stands: one that no
    /// checksum beside the segment covers, or the next that one does.
    pub fn resync(&self, offset: u64, limit: u64) -> Option<u64> {
        let (mut at, limit) = (offset, self.inside_file(limit));
        loop {
            let noted = self.sides.as_ref().and_then(|sides| sides.next_after(at));
            let noted = noted.filter(|noted| *noted < limit);
            let next = self.resync_unnoted(at, noted.unwrap_or(limit)).or(noted)?;
            if let Step::Frame(_) = self.step(next, limit, true) {
                return Some(next);
            }
            at = next;
        }
    }

    /// `limit`, but no further than the file goes: more may be mapped, and a limit that comes from
    /// a damaged word would have gigabytes searched that are not there.
    fn inside_file(&self, limit: u64) -> u64 {
        let (Some(map), None) = (self.map(), &self.ring) else { return limit };
        let frames = |len: u64| len.saturating_sub(self.shift as u64);
        let end = map.file().and_then(region::len).map(|len| self.base.saturating_add(frames(len)));
        end.map_or(limit, |end| limit.min(end))
    }

    fn resync_unnoted(&self, offset: u64, limit: u64) -> Option<u64> {
        let (bytes, at) = self.window(offset, limit);
        let base_at = self.position(self.base).wrapping_sub(self.skipped());
        let next = self.frames.resync(bytes, at, self.base, base_at)?;
        Some(offset + (next - at) as u64)
    }

    /// How long the frame at `offset` is, without looking inside.
    pub fn size_at(&self, offset: u64, limit: u64) -> Option<usize> {
        if let Some(next) = self.hole_at(offset) {
            return Some(words::size(next - offset));
        }
        let (bytes, at) = self.window(offset, limit);
        self.frames.size_at(bytes, at, offset)
    }

    /// Where the hole ends that `offset` lies in.
    #[inline]
    fn hole_at(&self, offset: u64) -> Option<u64> {
        let holes = self.holes.get()?;
        holes.iter().find(|(first, last)| (*first..*last).contains(&offset)).map(|hole| hole.1)
    }

    /// The messages of an opaque frame at `offset`.
    pub fn open_frame(
        &self,
        offset: u64,
        limit: u64,
        frame: &FrameView,
    ) -> Result<Vec<FrameView>, Fault> {
        let (bytes, at) = self.window(offset, limit);
        let opened = self.frames.open_frame(bytes, at, offset, frame);
        opened.map_err(|fault| Fault { at: fault.at.saturating_add(self.skipped()), ..fault })
    }

    /// The payload of a frame, as it is on disk.
    pub fn payload(&self, offset: u64, frame: &FrameView) -> Cow<'_, [u8]> {
        let (bytes, at) = self.window(offset, offset.saturating_add(frame.size as u64));
        self.frames.payload(bytes, at, frame)
    }

    /// The frame's own bytes.
    pub fn frame_bytes(&self, offset: u64, size: usize) -> &[u8] {
        let (bytes, at) = self.window(offset, offset.saturating_add(size as u64));
        bytes.get(at..).unwrap_or_default()
    }

    /// Has the bytes that most likely are asked for next fetched while others things are done.
    #[inline(always)]
    pub fn expect(&self, offset: u64, size: usize) {
        memory::prefetch(self.frame_bytes(offset, size));
    }

    /// The bytes of a part of the frame at `offset`, none outside.
    #[inline]
    pub fn part(&self, offset: u64, span: Span) -> &[u8] {
        let at = self.position(offset).wrapping_sub(self.skipped()).wrapping_add(span.at as usize);
        let end = at.saturating_add(span.len as usize);
        self.bytes().get(at..end).unwrap_or_default()
    }

    /// What the spans of a view are into that was found at `offset`.
    #[inline]
    pub fn bytes_of<'a>(&'a self, offset: u64, view: &'a FrameView) -> &'a [u8] {
        match &view.owned {
            Some(owned) => owned,
            None => self.frame_bytes(offset, view.size),
        }
    }

    /// Bytes that frames may take from `offset` on; in a ring what is not kept any more.
    #[inline]
    pub fn room(&self, offset: u64) -> usize {
        match &self.backing {
            Backing::Mapped(_) if self.position(offset) >= self.soft_bytes => 0,
            Backing::Mapped(map) => match &self.ring {
                Some(ring) => {
                    let kept = offset.saturating_sub(self.first());
                    fence(Ordering::Release); // Who reads what comes there sees that head, too.
                    words::size(ring.len().saturating_sub(kept))
                }
                None => map.len().saturating_sub(self.position(offset)),
            },
            Backing::Owned { .. } => 0,
        }
    }

    /// Makes the file long enough for bytes up to `position`.
    #[inline]
    pub fn ensure(&self, position: usize) -> std::io::Result<()> {
        // Write calls make the file longer themselves: it never has bytes of no frame. A ring
        // has its size from the start.
        let is_fixed = self.by_write || self.ring.is_some();
        if !is_fixed && position as u64 > self.allocated.load(Ordering::Relaxed) {
            self.grow(position as u64)
        } else {
            Ok(())
        }
    }

    /// Whether the file has all bytes that are mapped.
    pub fn is_whole(&self) -> bool {
        self.map().is_some_and(|map| self.allocated.load(Ordering::Relaxed) >= map.len() as u64)
    }

    #[cold]
    fn grow(&self, needed: u64) -> std::io::Result<()> {
        let Backing::Mapped(map) = &self.backing else { return Ok(()) };
        let step = self.grow_step.max(1);
        let target = needed.div_ceil(step).saturating_mul(step).min(map.len() as u64).max(needed);
        region::extend(map.file()?, target)?;
        self.allocated.store(target, Ordering::Relaxed);
        Ok(())
    }

    /// The mapping, where frames are stored through memory.
    pub fn map(&self) -> Option<&Mapping> {
        match &self.backing {
            Backing::Mapped(map) => Some(map),
            Backing::Owned { .. } => None,
        }
    }

    /// Whether the file was found cut short under its mapping, for good.
    #[inline(always)]
    pub fn is_cut(&self) -> bool {
        self.map().is_some_and(Mapping::is_cut)
    }

    /// Whether the file is shorter than the frames up to `end`. What is cut off in a page that is
    /// kept reads as zeros without a signal, and a write call behind the end makes a hole.
    pub fn lacks(&self, end: u64) -> std::io::Result<bool> {
        match (self.map(), &self.ring) {
            (None, _) => Ok(false),
            _ if end < self.base => Ok(false), // No frame is in it yet.
            (Some(map), ring) => {
                let needed = ring.as_ref().map_or(self.position(end) as u64, |ring| {
                    ring.len().saturating_add(ring.start() as u64)
                });
                Ok(region::len(map.file()?)? < needed)
            }
        }
    }

    /// Whether the file still has the frame from `offset` to `end`, which was found before. Bytes
    /// tell, where they can: to ask the system takes five times as long as all the rest of a get.
    #[inline]
    pub fn is_whole_up_to(&self, offset: u64, end: u64) -> bool {
        self.goes_on_at(end) || self.is_still_whole(offset, end)
    }

    /// Whether something stands at `end`: behind the end of a file there are zeros alone, those of
    /// its last page and those that the guard puts there.
    #[inline]
    fn goes_on_at(&self, end: u64) -> bool {
        let at = self.position(end);
        let is_word = |map: &&Mapping| at % 4 == 0 && at.saturating_add(4) <= map.len();
        let map = self.map().filter(|_| self.ring.is_none()).filter(is_word);
        map.is_some_and(|map| map.word32(at).load(Ordering::Relaxed) != 0)
    }

    /// The same by the frame's checksum, or by a mark behind its body; else by the file.
    #[inline(never)]
    fn is_still_whole(&self, offset: u64, end: u64) -> bool {
        let fits = |step| matches!(step, Step::Frame(_));
        self.find_plain(offset, end, &mut FrameView::default())
            || (self.is_checked(offset) && fits(self.step(offset, end, true)))
            || self.lacks(end).is_ok_and(|lacks| !lacks)
    }

    /// Whether a frame may begin at `offset`: inside the mapping, where frames begin.
    #[inline]
    pub fn may_begin(&self, offset: u64) -> bool {
        let Some(relative) = offset.checked_sub(self.base) else { return false };
        let len = self.map().map_or(0, Mapping::len) as u64;
        let is_mapped = || relative.saturating_add(self.shift as u64) <= len;
        // The file may have grown since it was mapped.
        let is_inside = || is_mapped() || self.lacks(offset).is_ok_and(|lacks| !lacks);
        relative & (self.alignment - 1) == 0 && (self.ring.is_some() || is_inside())
    }

    /// Whether frames are appended by write calls, so that the file never has bytes of no frame.
    pub fn is_by_write(&self) -> bool {
        self.by_write
    }

    /// A write failed half-way: nothing more is appended, no byte is written twice.
    pub fn spoil(&self) {
        self.is_spoiled.store(true, Ordering::Relaxed);
    }

    /// Whether nothing more may be appended here.
    pub fn is_spoiled(&self) -> bool {
        self.is_spoiled.load(Ordering::Relaxed)
    }

    /// Writes a frame's first word by a call.
    pub fn write_word(&self, offset: u64, word: u32) -> std::io::Result<()> {
        let (at, word) = (self.position(offset) as u64, word.to_le_bytes());
        self.map().map_or(Ok(()), |map| region::write_at(map.file()?, at, &word))
    }

    /// Stores a frame's first word with release order.
    pub fn publish_word(&self, offset: u64, word: u32) {
        if let Backing::Mapped(map) = &self.backing {
            map.publish32(self.position(offset), word);
        }
    }

    /// Syncs the bytes and what lies beside them; with `lazily`, checksums only when many came.
    pub fn sync(&self, lazily: bool) -> std::io::Result<()> {
        if let Some(sides) = &self.sides {
            sides.sync(lazily)?;
        }
        self.map().map_or(Ok(()), |map| region::sync(map.file()?))
    }

    /// Zeroes what is not zero from `offset` to the end of the file.
    fn scrub(&self, offset: u64) -> u64 {
        let Backing::Mapped(map) = &self.backing else { return 0 };
        let end = words::size(self.allocated.load(Ordering::Relaxed)).min(map.len());
        let (mut at, mut scrubbed) = (self.position(offset), 0);
        while at < end {
            let len = (4096 - at % 4096).min(end - at);
            if map.get(at, len).is_some_and(|page| page.iter().any(|byte| *byte != 0)) {
                map.write_with(at, len, |page| page.fill(0));
                scrubbed += len as u64;
            }
            at += len;
        }
        scrubbed
    }

    /// Zeroes `[from, to)`, as far as it is in this segment.
    pub fn zero(&self, from: u64, to: u64) {
        if let Backing::Mapped(map) = &self.backing {
            let at = self.position(from);
            let len = words::size(to.saturating_sub(from)).min(map.len().saturating_sub(at));
            map.write_with(at, len, |bytes| bytes.fill(0));
        }
    }
}

impl Lender for Segment {
    fn lend(&self, offset: u64, len: usize) -> &[u8] {
        self.frame_bytes(offset, len)
    }
}
