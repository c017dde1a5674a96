//! The `penstock` frame, version 1. Little-endian, begins at a multiple of 8.
//!
//! ```text
//!  0 size u32         whole frame without padding; 0 = nothing here yet, all ones = sealed here
//!  4 crc u32          CRC-32C of everything from byte 8 on, begun with the size in its register
//!  8 flags u16        1 key, 2 due time, 4 producer, 8 compressed, 16 encrypted
//! 10 id_len u16
//! 12 tag_len u16
//! 14 ext_len u16
//! 16 number u64
//! 24 timestamp i64    ns since 1970
//! 32 headers_len u32
//! 36 extension | id | tag | headers | body
//! ```
//! The extension holds, in this order, what the flags say: due time i64; producer id u64 and
//! sequence u64; key (the rest). In a compressed frame it is `count u32, raw_len u32` and the body
//! is an LZ4 block of that many frames (crc 0, no padding); their offsets are frame + i. In an
//! encrypted frame everything from byte 36 on is ciphertext with its tag.

use std::sync::Arc;

use crate::bytes::checksum::crc32c_seeded;
use crate::bytes::cipher::{SegmentCipher, TAG_BYTES};
use crate::bytes::word_offsets::word_offsets;
use crate::bytes::words::{self, align8};
use crate::segment::frame::{Draft, Encoded, Fault, FrameView, Frames, Place, Span, Step};
use crate::sys::memory;

word_offsets! {
    /// Fields of a frame.
    pub mod field {
        SIZE = 0,
        CRC = 4,
        FLAGS = 8,
        ID_LEN = 10,
        TAG_LEN = 12,
        EXT_LEN = 14,
        NUMBER = 16,
        TIMESTAMP_NS = 24,
        HEADERS_LEN = 32,
    }
}
/// Bytes before the extension.
pub const FIXED_BYTES: usize = 36;
/// The size word that ends a segment that is followed by another.
pub const SEALED_WORD: u32 = u32::MAX;
/// No frame is larger.
pub const MAX_FRAME_BYTES: usize = 1 << 30;
/// An id, a tag, or an extension, at most.
const MAX_SHORT: usize = 65535;
const SIZES: std::ops::RangeInclusive<usize> =
    FIXED_BYTES..=MAX_FRAME_BYTES + FIXED_BYTES + TAG_BYTES;
/// No message has a larger one.
const MAX_NUMBER: u64 = i64::MAX.cast_unsigned();
/// Messages in one compressed frame, and its plain bytes, at most.
const MAX_PACKED_COUNT: u32 = 1 << 16;
const MAX_PACKED_BYTES: usize = 64 << 20;

const HAS_KEY: u16 = 1;
const HAS_DUE: u16 = 2;
const HAS_PRODUCER: u16 = 4;
const COMPRESSED: u16 = 8;
const ENCRYPTED: u16 = 16;
/// Another frame of the same put follows: a power cut leaves all of them, or none.
const HAS_MORE: u16 = 32;
const KNOWN_FLAGS: u16 = HAS_KEY | HAS_DUE | HAS_PRODUCER | COMPRESSED | ENCRYPTED | HAS_MORE;

/// The framing of one segment of ours.
pub struct PenstockFrames {
    /// Set in encrypted queues whose key is known.
    pub cipher: Option<SegmentCipher>,
    /// Every frame of the segment is encrypted, or none is. Otherwise anyone who can write to the
    /// disk could add plain frames among those that only the owner of the key can make.
    pub is_encrypted: bool,
    /// Whether single messages and lists are compressed when it pays.
    pub compress: bool,
}

struct Shape {
    flags: u16,
    ext_len: usize,
    plain_len: usize,
}

#[inline]
fn shape(draft: &Draft<'_>) -> Result<Shape, String> {
    let mut flags = 0;
    let mut ext_len = draft.key.len();
    if draft.due_ns != 0 {
        flags |= HAS_DUE;
        ext_len += 8;
    }
    if !draft.key.is_empty() {
        flags |= HAS_KEY;
    }
    let plain_len =
        ext_len + draft.id.len() + draft.tag.len() + draft.headers.len() + draft.body.len();
    if draft.id.len().max(draft.tag.len()).max(ext_len) > MAX_SHORT || plain_len > MAX_FRAME_BYTES {
        return Err(too_long(draft, plain_len));
    }
    Ok(Shape { flags, ext_len, plain_len })
}

/// What of it is too long.
#[cold]
fn too_long(draft: &Draft<'_>, plain_len: usize) -> String {
    let key_room = if draft.due_ns == 0 { MAX_SHORT } else { MAX_SHORT - 8 };
    for (what, part, room) in
        [("id", draft.id, MAX_SHORT), ("tag", draft.tag, MAX_SHORT), ("key", draft.key, key_room)]
    {
        if part.len() > room {
            return format!("{what} has {} bytes, at most {room} fit", part.len());
        }
    }
    format!("the message has {plain_len} bytes, at most {MAX_FRAME_BYTES} fit in a frame")
}

/// The variable part, from byte 36 on.
#[inline]
fn fill_plain(draft: &Draft<'_>, out: &mut [u8]) -> Option<()> {
    if draft.body.len() == out.len() {
        return words::put(out, 0, draft.body); // Most frames have nothing else.
    }
    let mut at = 0;
    if draft.due_ns != 0 {
        words::put_i64_le(out, at, draft.due_ns)?;
        at += 8;
    }
    for part in [draft.key, draft.id, draft.tag, draft.headers, draft.body] {
        if !part.is_empty() {
            words::put(out, at, part)?;
            at += part.len();
        }
    }
    Some(())
}

/// Everything of the fixed part but size and crc.
#[inline]
fn fill_header(
    draft: &Draft<'_>,
    shape: &Shape,
    flags: u16,
    number: u64,
    out: &mut [u8],
) -> Option<()> {
    let short = |len: usize| u16::try_from(len).ok();
    words::put_u16_le(out, field::FLAGS, flags)?;
    words::put_u16_le(out, field::ID_LEN, short(draft.id.len())?)?;
    words::put_u16_le(out, field::TAG_LEN, short(draft.tag.len())?)?;
    words::put_u16_le(out, field::EXT_LEN, short(shape.ext_len)?)?;
    words::put_u64_le(out, field::NUMBER, number)?;
    words::put_i64_le(out, field::TIMESTAMP_NS, draft.timestamp_ns)?;
    words::put_u32_le(out, field::HEADERS_LEN, u32::try_from(draft.headers.len()).ok()?)
}

/// Size word, checksum, padding. With `held` the size word stays zero. Answers the size word.
#[inline]
fn finish(out: &mut [u8], size: usize, held: bool) -> Option<u32> {
    let size_word = u32::try_from(size).ok()?;
    out.get_mut(size..)?.fill(0);
    let crc = crc32c_seeded(size_word, out.get(8..size)?);
    words::put_u32_le(out, field::CRC, crc)?;
    words::put_u32_le(out, field::SIZE, if held { 0 } else { size_word })?;
    Some(size_word)
}

fn more(place: Place) -> u16 {
    if place.has_more { HAS_MORE } else { 0 }
}

impl PenstockFrames {
    /// The fields of a frame that begins at `at` and whose checksum, if asked for, is right.
    fn view_of(&self, head: &Head, frame: &[u8], at: usize) -> Result<FrameView, Fault> {
        let unknown = head.flags & !KNOWN_FLAGS;
        if unknown != 0 {
            let found = format!("unknown flag {unknown:#x}");
            return Err(Fault::new(at + 8, found, "a flag of version 1"));
        }
        match (head.flags & ENCRYPTED != 0, self.is_encrypted) {
            (false, true) => {
                return Err(Fault::new(at + 8, "a frame in plain text", "encrypted frames"));
            }
            (true, false) => {
                return Err(Fault::new(at + 8, "an encrypted frame", "frames in plain text"));
            }
            _ => {}
        }
        let inside = head.size - FIXED_BYTES;
        let mut view = FrameView::default();
        if head.flags & (COMPRESSED | ENCRYPTED) != 0 {
            view = opaque_view(head, frame);
        } else if split(head, frame, FIXED_BYTES, inside, &mut view).is_none() {
            return Err(Fault::new(at + 10, "lengths past the frame", "lengths inside it"));
        }
        view.size = align8(head.size);
        view.payload = Span::new(FIXED_BYTES, inside);
        Ok(view)
    }

    fn written_size(&self, plain_len: usize) -> usize {
        FIXED_BYTES + plain_len + if self.cipher.is_some() { TAG_BYTES } else { 0 }
    }

    fn encode_into(
        &self,
        draft: &Draft<'_>,
        place: Place,
        held: bool,
        out: &mut [u8],
    ) -> Option<u32> {
        let mut shape = shape(draft).ok()?;
        shape.flags |= more(place);
        let size = self.written_size(shape.plain_len);
        match &self.cipher {
            None => {
                fill_header(draft, &shape, shape.flags, place.number, out)?;
                fill_plain(draft, out.get_mut(FIXED_BYTES..size)?)?;
            }
            Some(cipher) => {
                fill_header(draft, &shape, shape.flags | ENCRYPTED, place.number, out)?;
                let mut plain = vec![0; shape.plain_len];
                fill_plain(draft, &mut plain)?;
                let encrypted = cipher.encrypt(place.offset, out.get(8..FIXED_BYTES)?, &plain)?;
                words::put(out, FIXED_BYTES, &encrypted)?;
            }
        }
        finish(out, size, held)
    }

    /// One frame around an LZ4 block of `raw`, or none when that would not pay.
    fn encode_packed(
        &self,
        raw: &[u8],
        count: u32,
        first: Place,
        timestamp_ns: i64,
    ) -> Option<Vec<u8>> {
        let block = lz4_flex::block::compress(raw);
        let size = self.written_size(8 + block.len());
        if size >= raw.len() || size < count as usize {
            return None;
        }
        let mut out = vec![0; align8(size)];
        let draft = Draft { timestamp_ns, ..Draft::default() };
        let shape = Shape { flags: 0, ext_len: 8, plain_len: 8 + block.len() };
        let encrypted = if self.cipher.is_some() { ENCRYPTED } else { 0 };
        let flags = COMPRESSED | encrypted | more(first);
        fill_header(&draft, &shape, flags, first.number, &mut out)?;
        let mut plain = Vec::with_capacity(8 + block.len());
        plain.extend_from_slice(&count.to_le_bytes());
        plain.extend_from_slice(&words::small(raw.len()).to_le_bytes());
        plain.extend_from_slice(&block);
        let inside = match &self.cipher {
            Some(cipher) => cipher.encrypt(first.offset, out.get(8..FIXED_BYTES)?, &plain)?,
            None => plain,
        };
        words::put(&mut out, FIXED_BYTES, &inside)?;
        finish(&mut out, size, false)?;
        Some(out)
    }
}

struct Head {
    size: usize,
    flags: u16,
    id_len: usize,
    tag_len: usize,
    ext_len: usize,
    headers_len: usize,
    number: u64,
    timestamp_ns: i64,
}

/// Whether the frame has nothing but a body, as most have.
#[inline(always)]
fn is_bare(fixed: &[u8; FIXED_BYTES]) -> Option<bool> {
    // The flags and the three lengths behind them are one word: little-endian, flags lowest.
    const { assert!(field::ID_LEN == field::FLAGS + 2 && field::TAG_LEN == field::FLAGS + 4) };
    const { assert!(field::EXT_LEN == field::FLAGS + 6) };
    let flags_and_lengths = words::u64_le(fixed, field::FLAGS)? & !u64::from(HAS_MORE);
    let has_headers = words::u32_le(fixed, field::HEADERS_LEN)? != 0;
    let is_numbered = words::u64_le(fixed, field::NUMBER)? <= MAX_NUMBER;
    Some(flags_and_lengths == 0 && !has_headers && is_numbered)
}

/// What `split` finds in a bare frame of `size` bytes.
#[inline(always)]
fn split_bare(fixed: &[u8; FIXED_BYTES], size: usize, view: &mut FrameView) -> Option<()> {
    const NONE: Span = Span { at: 36, len: 0 };
    const { assert!(NONE.at as usize == FIXED_BYTES) };
    (view.key, view.id, view.tag, view.headers) = (NONE, NONE, NONE, NONE);
    view.body = Span::new(FIXED_BYTES, size - FIXED_BYTES);
    (view.due_ns, view.timestamp_ns) = (0, words::i64_le(fixed, field::TIMESTAMP_NS)?);
    view.number = words::i64_le(fixed, field::NUMBER)?;
    let has_more = words::u16_le(fixed, field::FLAGS)? != 0;
    (view.count, view.opaque, view.has_more) = (1, false, has_more);
    if view.owned.is_some() {
        view.owned = None;
    }
    Some(())
}

#[inline]
fn read_head(frame: &[u8]) -> Option<Head> {
    Some(Head {
        size: words::u32_le(frame, field::SIZE)? as usize,
        flags: words::u16_le(frame, field::FLAGS)?,
        id_len: usize::from(words::u16_le(frame, field::ID_LEN)?),
        tag_len: usize::from(words::u16_le(frame, field::TAG_LEN)?),
        ext_len: usize::from(words::u16_le(frame, field::EXT_LEN)?),
        number: words::u64_le(frame, field::NUMBER)?,
        timestamp_ns: words::i64_le(frame, field::TIMESTAMP_NS)?,
        headers_len: words::u32_le(frame, field::HEADERS_LEN)? as usize,
    })
}

/// Spans of the variable part, which begins at `start` of the bytes the spans are into and has
/// `len` bytes. None when the lengths contradict each other.
#[inline]
fn split(head: &Head, bytes: &[u8], start: usize, len: usize, view: &mut FrameView) -> Option<()> {
    let known = head.ext_len + head.id_len + head.tag_len + head.headers_len;
    let body_len = len.checked_sub(known)?;
    let mut key_at = start;
    view.due_ns = 0;
    if head.flags & HAS_DUE != 0 {
        view.due_ns = words::i64_le(bytes, key_at)?;
        key_at += 8;
    }
    if head.flags & HAS_PRODUCER != 0 {
        key_at += 16;
    }
    let ext_end = start + head.ext_len;
    let key_len = ext_end.checked_sub(key_at)?;
    if (head.flags & HAS_KEY == 0) != (key_len == 0) {
        return None;
    }
    view.key = Span::new(key_at, key_len);
    view.id = Span::new(ext_end, head.id_len);
    view.tag = Span::new(ext_end + head.id_len, head.tag_len);
    let headers_at = ext_end + head.id_len + head.tag_len;
    view.headers = Span::new(headers_at, head.headers_len);
    view.body = Span::new(headers_at + head.headers_len, body_len);
    view.number = i64::try_from(head.number).ok()?;
    view.timestamp_ns = head.timestamp_ns;
    (view.count, view.opaque) = (1, false);
    view.has_more = head.flags & HAS_MORE != 0;
    if view.owned.is_some() {
        view.owned = None;
    }
    Some(())
}

impl PenstockFrames {
    /// The bytes of the frame at `at`, if it is a whole, plain one whose checksum fits: what nearly
    /// every frame is. None says nothing; `step` tells what is there.
    ///
    /// The view is filled in place and before the checksum is taken: moved right after it was
    /// stored, it would have to wait for its own stores.
    #[inline]
    pub fn plain_at<'a>(bytes: &'a [u8], at: usize, view: &mut FrameView) -> Option<&'a [u8]> {
        let frame = Self::split_plain(bytes, at, view)?;
        let size = words::u32_le(frame, field::SIZE)?;
        let fits = words::u32_le(frame, field::CRC)? == crc32c_seeded(size, frame.get(8..)?);
        fits.then_some(frame)
    }

    /// The bytes of the frame that `rest` begins with, if it is a whole one that has nothing but a
    /// body and whose checksum, by `sum`, fits. None says nothing.
    #[inline(always)]
    pub fn bare_in(rest: &[u8], sum: impl Fn(u32, &[u8]) -> u32) -> Option<&[u8]> {
        let fixed = rest.first_chunk::<FIXED_BYTES>()?;
        let size = words::u32_le(fixed, field::SIZE)?;
        if !SIZES.contains(&(size as usize)) || !is_bare(fixed)? {
            return None;
        }
        let frame = rest.get(..size as usize)?;
        (words::u32_le(fixed, field::CRC)? == sum(size, frame.get(8..)?)).then_some(frame)
    }

    /// Where the body is in such a frame of `size` bytes.
    #[inline(always)]
    pub fn bare_body(size: usize) -> Span {
        Span::new(FIXED_BYTES, size.saturating_sub(FIXED_BYTES))
    }

    /// The body of such a frame, and what else follows in `frame`.
    #[inline(always)]
    pub fn body_of_bare(frame: &[u8]) -> &[u8] {
        frame.get(FIXED_BYTES..).unwrap_or_default()
    }

    /// The view of a plain frame that was found before.
    pub fn read_again(bytes: &[u8], at: usize) -> FrameView {
        let mut view = FrameView::default();
        Self::split_plain(bytes, at, &mut view);
        view
    }

    #[inline]
    fn split_plain<'a>(bytes: &'a [u8], at: usize, view: &mut FrameView) -> Option<&'a [u8]> {
        let rest = bytes.get(at..)?;
        // One look at the length: all fields behind it are where they are.
        let fixed = rest.first_chunk::<FIXED_BYTES>()?;
        let size = words::u32_le(fixed, field::SIZE)? as usize;
        if !SIZES.contains(&size) {
            return None;
        }
        let frame = rest.get(..size)?;
        if is_bare(fixed)? {
            split_bare(fixed, size, view)?;
        } else {
            let head = read_head(fixed)?;
            if head.flags & !(HAS_KEY | HAS_DUE | HAS_MORE) != 0 {
                return None;
            }
            split(&head, frame, FIXED_BYTES, size - FIXED_BYTES, view)?;
        }
        view.size = align8(size);
        view.payload = Span::new(FIXED_BYTES, size - FIXED_BYTES);
        Some(frame)
    }
}

impl Frames for PenstockFrames {
    fn is_own(&self) -> bool {
        !self.is_encrypted
    }

    fn measure(&self, draft: &Draft<'_>) -> Result<usize, String> {
        let len = shape(draft)?.plain_len;
        if self.cipher.is_some() && !memory::has_room(len.saturating_mul(3)) {
            return Err(format!("no memory is left to encrypt {len} bytes"));
        }
        Ok(align8(self.written_size(len)))
    }

    fn encode(&self, draft: &Draft<'_>, place: Place, held: bool, out: &mut [u8]) -> Encoded {
        self.encode_into(draft, place, held, out)
            .ok_or_else(|| "the message does not fit its frame".into())
    }

    fn trailing_zeros(&self) -> usize {
        8
    }

    fn is_packing(&self) -> bool {
        self.compress
    }

    fn pack(&self, drafts: &[Draft<'_>], first: Place) -> Option<Vec<u8>> {
        let plain = PenstockFrames { cipher: None, is_encrypted: false, compress: false };
        let mut raw = Vec::new();
        let len: usize = drafts.iter().map(|d| d.body.len() + d.headers.len()).sum();
        if !memory::has_room(len.saturating_mul(6)) {
            return None;
        }
        for (draft, number) in drafts.iter().zip(first.number..) {
            let size = FIXED_BYTES + shape(draft).ok()?.plain_len;
            let at = raw.len();
            raw.resize(at + size, 0);
            let out = raw.get_mut(at..)?;
            plain.encode_into(draft, Place { number, ..Place::default() }, false, out)?;
            words::put_u32_le(out, field::CRC, 0)?;
        }
        let count = u32::try_from(drafts.len()).ok()?;
        if count > MAX_PACKED_COUNT || raw.len() > MAX_PACKED_BYTES {
            return None;
        }
        self.encode_packed(&raw, count, first, drafts.first()?.timestamp_ns)
    }

    fn step(&self, bytes: &[u8], at: usize, offset: u64, verify: bool) -> Step {
        let rest = bytes.get(at..).unwrap_or_default();
        let Some(size_word) = words::u32_le(rest, field::SIZE) else { return Step::End };
        if size_word == 0 {
            return Step::End;
        }
        if size_word == SEALED_WORD {
            // It is met only where a segment was left empty, because a larger message than it can
            // hold came.
            return Step::Hole(offset.saturating_add(8));
        }
        let size = size_word as usize;
        if !SIZES.contains(&size) {
            return Step::Bad(Fault::new(at, format!("frame size {size}"), "36 to 2^30"));
        }
        let Some(frame) = rest.get(..size) else {
            let left = rest.len();
            return Step::CutShort(Fault::new(
                at,
                format!("frame size {size}"),
                format!("at most {left} left"),
            ));
        };
        let Some(head) = read_head(frame) else { return Step::End };
        if verify {
            let stored = words::u32_le(frame, field::CRC).unwrap_or(0);
            let crc = crc32c_seeded(size_word, frame.get(8..).unwrap_or_default());
            if crc != stored {
                let (found, expected) = (format!("checksum {stored:08x}"), format!("{crc:08x}"));
                return Step::Bad(Fault::new(at, found, expected));
            }
        }
        match self.view_of(&head, frame, at) {
            Ok(view) => Step::Frame(view),
            Err(fault) => Step::Bad(fault),
        }
    }

    fn open_frame(
        &self,
        bytes: &[u8],
        at: usize,
        offset: u64,
        frame: &FrameView,
    ) -> Result<Vec<FrameView>, Fault> {
        let raw = bytes.get(at..).unwrap_or_default();
        let bad = |found: &str, expected: &str| Fault::new(at, found, expected);
        if !memory::has_room(frame.size.saturating_mul(3)) {
            return Err(Fault::no_memory(at, frame.size));
        }
        let head = read_head(raw).ok_or_else(|| bad("a frame cut short", "a whole frame"))?;
        let inside = raw
            .get(FIXED_BYTES..head.size)
            .ok_or_else(|| bad("a frame cut short", "a whole frame"))?;
        let plain: Vec<u8> = if head.flags & ENCRYPTED == 0 {
            inside.to_vec()
        } else {
            let Some(cipher) = &self.cipher else {
                return Err(bad("an encrypted frame", "a key: open the queue with key="));
            };
            let header = raw.get(8..FIXED_BYTES).unwrap_or_default();
            cipher.decrypt(offset, header, inside).ok_or_else(|| {
                bad("a frame that its key does not open", "the queue's key and an unchanged frame")
            })?
        };
        if head.flags & COMPRESSED == 0 {
            let mut view = FrameView::default();
            split(&head, &plain, 0, plain.len(), &mut view)
                .ok_or_else(|| bad("lengths past the frame", "lengths inside it"))?;
            view.size = frame.size;
            view.payload = frame.payload;
            view.owned = Some(plain.into());
            return Ok(vec![view]);
        }
        let inside = words::u32_le(&plain, 4).unwrap_or(0) as usize;
        if inside <= MAX_PACKED_BYTES && !memory::has_room(inside.saturating_mul(2)) {
            return Err(Fault::no_memory(at, frame.size));
        }
        unpack(&plain, frame)
            .ok_or_else(|| bad("a compressed frame that does not unpack", "an LZ4 block of frames"))
    }

    fn is_checked(&self) -> bool {
        true
    }

    fn alignment(&self) -> usize {
        8
    }
}

fn opaque_view(head: &Head, frame: &[u8]) -> FrameView {
    let mut view =
        FrameView { opaque: true, timestamp_ns: head.timestamp_ns, ..FrameView::default() };
    view.number = i64::try_from(head.number).unwrap_or(i64::MAX);
    view.has_more = head.flags & HAS_MORE != 0;
    // The count of an encrypted batch is inside the cipher: `open_frame` tells.
    if head.flags & COMPRESSED != 0 {
        view.count = match head.flags & ENCRYPTED {
            0 => words::u32_le(frame, FIXED_BYTES).unwrap_or(0).clamp(1, MAX_PACKED_COUNT),
            _ => 0,
        };
    }
    view
}

fn unpack(plain: &[u8], outer: &FrameView) -> Option<Vec<FrameView>> {
    let count = words::u32_le(plain, 0)?;
    let raw_len = words::u32_le(plain, 4)? as usize;
    if count == 0 || count > MAX_PACKED_COUNT || raw_len > MAX_PACKED_BYTES {
        return None;
    }
    // No more memory is taken than the bytes that are there can be unpacked to.
    if raw_len > plain.len().saturating_mul(255) || count as usize > raw_len / FIXED_BYTES {
        return None;
    }
    let raw: Arc<[u8]> = lz4_flex::block::decompress(plain.get(8..)?, raw_len).ok()?.into();
    let mut views = Vec::with_capacity(count as usize);
    let mut at = 0usize;
    for _ in 0..count {
        let head = read_head(raw.get(at..)?)?;
        let len = head.size.checked_sub(FIXED_BYTES)?;
        if head.flags & (COMPRESSED | ENCRYPTED) != 0 || at + head.size > raw.len() {
            return None;
        }
        let mut view = FrameView::default();
        split(&head, &raw, at + FIXED_BYTES, len, &mut view)?;
        view.size = outer.size;
        view.payload = outer.payload;
        view.count = count;
        view.owned = Some(Arc::clone(&raw));
        views.push(view);
        at += head.size;
    }
    (at == raw.len()).then_some(views)
}
