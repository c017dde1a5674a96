//! What the framing of every format speaks: a draft goes in, a frame comes out, and back.
//!
//! `Frames` is made once per segment, when it is opened: layout, version, keys are decided there,
//! and the loops then run on plain values. It finds bytes and judges nothing else.

use std::borrow::{Borrow, Cow};
use std::sync::Arc;

/// A message on its way in. Empty means absent, except for the body.
#[derive(Clone, Copy)]
pub struct Draft<'a> {
    /// The user's bytes.
    pub body: &'a [u8],
    /// Label for filters.
    pub tag: &'a [u8],
    /// The user's name for the message.
    pub id: &'a [u8],
    /// Messages with one key are handed out one at a time, in order.
    pub key: &'a [u8],
    /// Headers in wire form (`headers.rs`).
    pub headers: &'a [u8],
    /// Wall time, ns since 1970; `NO_TIME`: that of the put.
    pub timestamp_ns: i64,
    /// Wall time before which nobody gets it; 0: at once.
    pub due_ns: i64,
}

impl Default for Draft<'_> {
    fn default() -> Self {
        let none: &[u8] = &[];
        let (body, tag, id, key, headers) = (none, none, none, none, none);
        Self { body, tag, id, key, headers, timestamp_ns: NO_TIME, due_ns: 0 }
    }
}

/// Messages on their way in together: a list, or rows of a table that become drafts one by one.
pub trait Drafts: Sync {
    /// How many there are.
    fn count(&self) -> usize;

    /// All of them, in order; the same ones however often they are asked for.
    fn each<'s>(&'s self) -> impl Iterator<Item: Borrow<Draft<'s>>>;

    /// All of them, as a list.
    fn whole(&self) -> Cow<'_, [Draft<'_>]> {
        Cow::Owned(self.each().map(|draft| *draft.borrow()).collect())
    }
}

impl Drafts for [Draft<'_>] {
    #[inline(always)]
    fn count(&self) -> usize {
        self.len()
    }

    #[inline(always)]
    fn each<'s>(&'s self) -> impl Iterator<Item: Borrow<Draft<'s>>> {
        let drafts: &'s [Draft<'s>] = self;
        drafts.iter()
    }

    #[inline(always)]
    fn whole(&self) -> Cow<'_, [Draft<'_>]> {
        Cow::Borrowed(self)
    }
}

/// Where a frame goes.
#[derive(Default, Clone, Copy)]
pub struct Place {
    /// The message's offset.
    pub offset: u64,
    /// The message's number.
    pub number: u64,
    /// Whether another frame of the same put follows it.
    pub has_more: bool,
}

/// Bytes inside a frame (or inside what was decrypted or unpacked from it).
#[derive(Default, Clone, Copy, Debug)]
pub struct Span {
    /// First byte.
    pub at: u32,
    /// How many.
    pub len: u32,
}

impl Span {
    /// A span from positions that were already checked against the frame.
    pub fn new(at: usize, len: usize) -> Self {
        Self { at: crate::bytes::words::small(at), len: crate::bytes::words::small(len) }
    }

    /// The bytes it names, none outside.
    #[inline]
    pub fn of<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        let at = self.at as usize;
        bytes.get(at..at + self.len as usize).unwrap_or_default()
    }
}

/// No number: the format keeps none.
pub const NO_NUMBER: i64 = -1;
/// No timestamp: the format keeps none.
pub const NO_TIME: i64 = i64::MIN;

/// One frame, found.
#[derive(Clone, Debug)]
pub struct FrameView {
    /// Bytes from this frame's first to the next frame's first.
    pub size: usize,
    /// Messages inside: 1, or more in a compressed frame.
    pub count: u32,
    /// The (first) message's number.
    pub number: i64,
    /// The (first) message's time.
    pub timestamp_ns: i64,
    /// Not before this wall time; 0: at once.
    pub due_ns: i64,
    /// When the due time was noted, where the format has no place for either.
    pub noted_ns: i64,
    /// Spans below are into `owned`, or, without it, into the frame's own bytes.
    pub id: Span,
    /// See `id`.
    pub tag: Span,
    /// See `id`.
    pub key: Span,
    /// See `id`.
    pub headers: Span,
    /// See `id`.
    pub body: Span,
    /// The bytes inside the frame as they are on disk, always into the frame itself.
    pub payload: Span,
    /// Compressed, encrypted, or more than there is memory for: the spans say nothing until
    /// `Frames::open_frame`.
    pub opaque: bool,
    /// Another frame of the same put follows, where the format says so.
    pub has_more: bool,
    /// What the spans point into when it is not the frame itself.
    pub owned: Option<Arc<[u8]>>,
}

impl Default for FrameView {
    fn default() -> Self {
        let none = Span::default();
        Self {
            size: 0,
            count: 1,
            number: NO_NUMBER,
            timestamp_ns: NO_TIME,
            due_ns: 0,
            noted_ns: NO_TIME,
            id: none,
            tag: none,
            key: none,
            headers: none,
            body: none,
            payload: none,
            opaque: false,
            has_more: false,
            owned: None,
        }
    }
}

/// Bytes that are not what a writer of this format writes.
#[derive(Debug, Clone)]
pub struct Fault {
    /// The byte in the segment file.
    pub at: usize,
    /// What is there.
    pub found: String,
    /// What should be.
    pub expected: String,
    /// Nothing is wrong with the bytes: there is no memory to read them with, now.
    pub is_ours: bool,
}

impl Fault {
    /// A fault at a byte.
    pub fn new(at: usize, found: impl Into<String>, expected: impl Into<String>) -> Self {
        Self { at, found: found.into(), expected: expected.into(), is_ours: false }
    }

    /// The fault of a frame of `size` bytes for which there is no memory.
    #[cold]
    pub fn no_memory(at: usize, size: usize) -> Self {
        let found = format!("a frame of {size} bytes, and no memory is left to read it with");
        Self { is_ours: true, ..Self::new(at, found, "memory: close queues, or raise the limit") }
    }
}

/// What stands at a position.
pub enum Step {
    /// A whole frame.
    Frame(FrameView),
    /// Nothing was written here yet.
    End,
    /// A frame that runs past the bytes there are.
    CutShort(Fault),
    /// Neither a frame nor an end.
    Bad(Fault),
    /// Known damage that a repair has set aside: reading goes on at this offset. The segment says
    /// so, never a framing.
    Hole(u64),
}

/// The word that `Publish` stores when a frame is held back; or why the format can't hold it.
pub type Encoded = Result<u32, String>;

/// The framing of one segment.
pub trait Frames: Send + Sync {
    /// Whether these are frames of our own format, whose plain ones are found without a call.
    fn is_own(&self) -> bool {
        false
    }

    /// Whether `find_plain` finds frames.
    fn has_plain(&self) -> bool {
        false
    }

    /// Finds a plain, whole frame at `at` of `bytes`: what `step` finds, written to `view` in
    /// place. False: look with `step`.
    fn find_plain(&self, _bytes: &[u8], _at: usize, _view: &mut FrameView) -> bool {
        false
    }

    /// A batch is about to be measured and then, in the same order, encoded: what a framing that
    /// must encode to measure kept from the batch before it is stale.
    fn begin(&self) {}

    /// Bytes the draft will take, padding included, or why this format can't hold it.
    fn measure(&self, draft: &Draft<'_>) -> Result<usize, String>;

    /// Writes the frame to `out`, which is as long as `measure` said. When `held` is set, the
    /// bytes that publish the frame stay zero.
    fn encode(&self, draft: &Draft<'_>, place: Place, held: bool, out: &mut [u8]) -> Encoded;

    /// What stands at `at` of `bytes`; `offset` is where the message is in the queue.
    /// With `verify`, checksums count.
    fn step(&self, bytes: &[u8], at: usize, offset: u64, verify: bool) -> Step;

    /// The bytes inside the frame that `step` found at `at`, as they are on disk.
    fn payload<'a>(&self, bytes: &'a [u8], at: usize, frame: &FrameView) -> Cow<'a, [u8]> {
        Cow::Borrowed(frame.payload.of(bytes.get(at..).unwrap_or_default()))
    }

    /// The bytes from `at` on as they were before encryption, where that is done by position.
    fn plain_bytes<'a>(&self, bytes: &'a [u8], at: usize) -> Cow<'a, [u8]> {
        Cow::Borrowed(bytes.get(at..).unwrap_or_default())
    }

    /// Whether frames are read by where in the file they are: their `bytes` begin where it does.
    fn goes_by_place(&self) -> bool {
        false
    }

    /// How long the frame at `at` is, without looking inside; none when there is no frame.
    fn size_at(&self, bytes: &[u8], at: usize, offset: u64) -> Option<usize> {
        match self.step(bytes, at, offset, false) {
            Step::Frame(view) => Some(view.size),
            _ => None,
        }
    }

    /// The messages of an opaque frame, each with its spans into `owned`. In a format that neither
    /// compresses nor encrypts, a frame is opaque only where memory is short.
    fn open_frame(
        &self,
        _bytes: &[u8],
        at: usize,
        _offset: u64,
        frame: &FrameView,
    ) -> Result<Vec<FrameView>, Fault> {
        Err(Fault::no_memory(at, frame.size))
    }

    /// Whether `pack` is worth asking.
    fn is_packing(&self) -> bool {
        false
    }

    /// Packs several drafts into one frame, where the format can (compression). None: it can't,
    /// or it would not pay.
    fn pack(&self, _drafts: &[Draft<'_>], _first: Place) -> Option<Vec<u8>> {
        None
    }

    /// Zero bytes that must follow the last frame, so that a reader of the file alone sees an end.
    fn trailing_zeros(&self) -> usize {
        0
    }

    /// Whether the frame itself has a checksum over all of it, which `step` verifies. Where not,
    /// the integrity sidecar keeps one.
    fn is_checked(&self) -> bool {
        false
    }

    /// Whether the message's key is in the frame, in a format that keeps keys beside its segments.
    fn holds_key(&self) -> bool {
        false
    }

    /// Bytes of frames that one append may hold, of a segment with this many.
    fn most_at_once(&self, segment_bytes: usize) -> usize {
        (segment_bytes / 2).max(1 << 16)
    }

    /// A frame must begin at a multiple of this many bytes, which is a power of two.
    fn alignment(&self) -> usize {
        1
    }

    /// The next position after `at` where a whole, checked frame stands: how a reader gets past
    /// damage.
    fn resync(&self, bytes: &[u8], at: usize, base: u64, shift: usize) -> Option<usize> {
        let step = self.alignment().max(1);
        let mut next = at.checked_add(step)? / step * step;
        while next < bytes.len() {
            let offset = base.wrapping_add(next as u64).wrapping_sub(shift as u64);
            if let Step::Frame(_) = self.step(bytes, next, offset, true) {
                return Some(next);
            }
            next = next.checked_add(step)?;
        }
        None
    }
}
