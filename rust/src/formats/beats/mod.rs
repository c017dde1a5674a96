//! The frames of an Elastic Beats disk queue, versions 0 to 3.
//!
//! ```text
//! frame   | size u32 | payload … | crc u32 | size u32 |      little-endian
//! ```
//!
//! `size` counts the whole frame. The crc (CRC-32, IEEE) covers the first size word and the
//! payload. Version 0 has JSON in it, the others CBOR; in version 3 that is an LZ4 block. In
//! encrypted segments all of it is inside the cipher, so nothing can be told without the key.
//! Segments that are compressed as one stream are unpacked before they come here.

mod cbor;
mod cipher;
mod encode;
mod event;
mod json;
mod lz4;
pub mod macs;
mod publish;
pub mod python;
mod state;

use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::bytes::checksum::crc32;
use crate::bytes::{headers, words};
use crate::segment::frame::{Draft, Encoded, Fault, FrameView, Frames, Place, Span, Step};
use crate::sys::memory;
use cipher::{KEY_BYTES, Keystream, Running};
use encode::Encoding;

/// How many bits of an offset are the position inside its segment, in which the IV does not count.
pub const POSITION_BITS: u32 = 40;
const POSITION_MASK: u64 = (1 << POSITION_BITS) - 1;

/// Size word, checksum, size word.
pub const OVERHEAD: usize = 12;
/// No frame is larger.
const MAX_FRAME_BYTES: usize = 1 << 30;
/// Reading or making an event takes at most so many times its size in memory, growing buffers
/// included.
const ROOM: usize = 6;
/// Bytes that are decrypted at once: for one look, in order, and kept at most.
const FIRST_BYTES: usize = 512;
const AHEAD_BYTES: usize = 32 << 10;
const MAX_AHEAD_BYTES: usize = 4 << 20;

/// Frames that were measured and wait to be placed.
#[derive(Default)]
struct Ready {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    next: usize,
    /// The keystream where the last frame ended, and that offset.
    running: Option<(u64, Running)>,
}

/// The framing of one segment.
pub struct BeatsFrames {
    name: u64,
    encoding: Encoding,
    keystream: Option<Keystream>,
    /// Each payload is an LZ4 block (version 3).
    is_packed: bool,
    max_flags: u64,
    /// What ends a segment that could not be unpacked to its end.
    broken: Option<Fault>,
    ready: Mutex<Ready>,
}

/// Bytes that were decrypted together. Bytes below the end of a queue never change, so they stay
/// right. The name tells which framing they are of.
struct Decoded {
    name: u64,
    start: usize,
    plain: Vec<u8>,
}

impl Decoded {
    /// Makes `[at, at + len)` available. A reader that goes on in order gets many bytes at once.
    fn fill(&mut self, name: u64, keystream: &Keystream, bytes: &[u8], at: usize, len: usize) {
        let end = self.start + self.plain.len();
        if self.name == name && at >= self.start && at + len <= end {
            return;
        }
        let reads_on = self.name == name && (self.start..=end).contains(&at);
        let wanted = len.max(if reads_on { AHEAD_BYTES } else { FIRST_BYTES });
        let until = at.saturating_add(wanted).min(bytes.len());
        self.plain.clear();
        if self.plain.capacity() > MAX_AHEAD_BYTES {
            self.plain = Vec::new();
        }
        self.plain.extend_from_slice(bytes.get(at..until).unwrap_or_default());
        keystream.from(at).apply(&mut self.plain);
        (self.name, self.start) = (name, at);
    }
}

static NAMES: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static DECODED: RefCell<Decoded> =
        const { RefCell::new(Decoded { name: 0, start: 0, plain: Vec::new() }) };
    static PLAIN: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// What the bytes of a frame say, before anyone looks inside.
enum Framing {
    Whole(usize),
    Stop(Step),
}

impl BeatsFrames {
    /// A name that no other framing of this process has.
    fn new_name() -> u64 {
        NAMES.fetch_add(1, Ordering::Relaxed)
    }

    fn ready(&self) -> MutexGuard<'_, Ready> {
        self.ready.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Calls `use_it` with the plain bytes from `at` on, as many as there are of `len`.
    fn plain<R>(&self, bytes: &[u8], at: usize, len: usize, use_it: impl FnOnce(&[u8]) -> R) -> R {
        let len = len.min(bytes.len().saturating_sub(at));
        let Some(keystream) = &self.keystream else {
            return use_it(bytes.get(at..at + len).unwrap_or_default());
        };
        DECODED.with_borrow_mut(|ahead| {
            ahead.fill(self.name, keystream, bytes, at, len);
            use_it(ahead.plain.get(at - ahead.start..at - ahead.start + len).unwrap_or_default())
        })
    }

    /// The frame's size, or why there is none.
    #[inline]
    fn size(&self, bytes: &[u8], at: usize) -> Framing {
        let left = bytes.len().saturating_sub(at);
        if left == 0 {
            return Framing::Stop(match &self.broken {
                Some(fault) => Step::CutShort(fault.clone()),
                None => Step::End,
            });
        }
        let Some(word) = self.plain(bytes, at, 4, |plain| words::u32_le(plain, 0)) else {
            let found = format!("{left} bytes");
            return Framing::Stop(Step::CutShort(Fault::new(at, found, "a frame")));
        };
        let size = word as usize;
        if size <= OVERHEAD || size > MAX_FRAME_BYTES {
            let found = format!("frame size {size}");
            return Framing::Stop(Step::Bad(Fault::new(at, found, "13 to 2^30")));
        }
        if size > left {
            let (found, expected) = (format!("frame size {size}"), format!("at most {left} left"));
            return Framing::Stop(Step::CutShort(Fault::new(at, found, expected)));
        }
        Framing::Whole(size)
    }

    /// The message of the whole frame in `frame`.
    fn open(&self, frame: &[u8], at: usize, verify: bool) -> Step {
        let size = frame.len();
        if let Some(fault) = check(frame, at, verify) {
            return Step::Bad(fault);
        }
        let payload = frame.get(4..size - 8).unwrap_or_default();
        let mut view = self.decode(payload).unwrap_or_else(|_| {
            // The frame is whole and its event can't be read: `open_frame` says why.
            FrameView { opaque: true, ..FrameView::default() }
        });
        view.size = size;
        view.payload = Span::new(4, size - OVERHEAD);
        Step::Frame(view)
    }

    fn decode(&self, payload: &[u8]) -> Result<FrameView, String> {
        if !self.is_packed {
            return event_of(self.encoding, payload);
        }
        PLAIN.with_borrow_mut(|plain| {
            let len = lz4::unpack_event(payload, plain)?;
            if !has_room(len) {
                return Err(lz4::NO_MEMORY.into());
            }
            let view = event_of(self.encoding, plain.get(..len).unwrap_or_default());
            if plain.len() > 4 << 20 {
                plain.truncate(1 << 20); // The memory that one large event took is given back.
                plain.shrink_to_fit();
            }
            view
        })
    }

    /// Whether the message's key is inside the event: beside an encrypted segment nothing tells it.
    fn has_key_inside(&self) -> bool {
        self.keystream.is_some()
    }

    /// Appends the event that a draft becomes; one that was copied from another queue as it is, if
    /// this one can hold it so.
    fn event(&self, draft: &Draft<'_>, out: &mut Vec<u8>) -> Result<(), String> {
        if let Some(payload) = self.copied(draft)? {
            out.extend_from_slice(&payload);
            return Ok(());
        }
        encode::encode(draft, self.encoding, self.max_flags, self.has_key_inside(), out)
    }

    fn copied(&self, draft: &Draft<'_>) -> Result<Option<Vec<u8>>, String> {
        let mut all = headers::iterate(draft.headers);
        let Some((_, text)) = all.find(|(name, _)| *name == event::PAYLOAD) else {
            return Ok(None);
        };
        let wrong = |why: &str| format!("header beats.payload: {why}; leave it out");
        let payload = STANDARD.decode(text).map_err(|_| wrong("not base64"))?;
        let view = event_of(self.encoding, &payload).map_err(|why| wrong(&why))?;
        let owned = view.owned.as_deref().unwrap_or_default();
        if view.body.of(owned) != draft.body {
            return Err(wrong("another event than the body"));
        }
        let flags = headers::iterate(view.headers.of(owned))
            .find(|(name, _)| *name == event::FLAGS)
            .and_then(|(_, text)| std::str::from_utf8(text).ok()?.parse::<u64>().ok());
        let has_key = !self.has_key_inside() || view.key.of(owned) == draft.key;
        let fits = has_key && flags.unwrap_or(0) <= self.max_flags;
        Ok(fits.then_some(payload))
    }

    /// Appends the frame of a draft to `ready`, in plain.
    fn frame(&self, draft: &Draft<'_>, ready: &mut Ready) -> Result<usize, String> {
        let start = ready.bytes.len();
        ready.bytes.extend_from_slice(&[0; 4]);
        if self.is_packed {
            PLAIN.with_borrow_mut(|plain| {
                plain.clear();
                self.event(draft, plain)?;
                lz4::pack_event(plain, &mut ready.bytes);
                Ok::<(), String>(())
            })?;
        } else {
            self.event(draft, &mut ready.bytes)?;
        }
        let size = ready.bytes.len() - start + 8;
        if size > MAX_FRAME_BYTES {
            return Err(format!("the event has {size} bytes, at most 2^30 fit in a frame"));
        }
        let word = words::small(size);
        words::put_u32_le(&mut ready.bytes, start, word);
        let crc = crc32(ready.bytes.get(start..).unwrap_or_default());
        ready.bytes.extend_from_slice(&crc.to_le_bytes());
        ready.bytes.extend_from_slice(&word.to_le_bytes());
        Ok(size)
    }
}

/// Whether there is memory to read an event of `size` bytes: it is decrypted, taken apart, and put
/// together again as a message.
#[inline]
fn has_room(size: usize) -> bool {
    memory::has_room(size.saturating_mul(ROOM))
}

fn event_of(encoding: Encoding, payload: &[u8]) -> Result<FrameView, String> {
    event::message(|event| match encoding {
        Encoding::Json => json::decode(payload, event),
        Encoding::Cbor => cbor::decode(payload, event),
    })
}

/// What is wrong with the whole frame in `frame`, if anything is.
#[inline]
fn check(frame: &[u8], at: usize, verify: bool) -> Option<Fault> {
    let size = frame.len();
    let again = words::u32_le(frame, size.checked_sub(4)?)? as usize;
    if again != size {
        let found = format!("second size {again}");
        return Some(Fault::new(at + size - 4, found, format!("{size}")));
    }
    if verify {
        let stored = words::u32_le(frame, size.checked_sub(8)?)?;
        let computed = crc32(frame.get(..size - 8)?);
        if stored != computed {
            let found = format!("checksum {stored:08x}");
            return Some(Fault::new(at + size - 8, found, format!("{computed:08x}")));
        }
    }
    None
}

/// Where the frame at `at` ends, if a whole one with the right checksum stands there.
fn frame_end(plain: &[u8], at: usize) -> Option<usize> {
    let size = words::u32_le(plain, at)? as usize;
    let frame = plain.get(at..at.checked_add(size)?).filter(|_| size > OVERHEAD)?;
    check(frame, at, true).is_none().then_some(at + size)
}

/// The next place after `at` where a whole, checked frame stands.
fn find_frame(plain: &[u8], at: usize) -> Option<usize> {
    // Bytes that were made to look like frames must not make the search quadratic.
    let mut budget = plain.len().saturating_mul(16).saturating_add(64 << 20);
    for next in at.checked_add(1)?..plain.len().saturating_sub(OVERHEAD) {
        let size = words::u32_le(plain, next)? as usize;
        if size <= OVERHEAD || size > plain.len() - next {
            continue;
        }
        let again = words::u32_le(plain, next + size - 4)? as usize;
        if again == size {
            budget = budget.checked_sub(size)?;
            if check(plain.get(next..next + size)?, next, true).is_none() {
                return Some(next);
            }
        }
    }
    None
}

impl Frames for BeatsFrames {
    fn begin(&self) {
        let mut ready = self.ready();
        ready.bytes.clear();
        ready.ends.clear();
        (ready.next, ready.running) = (0, None);
    }

    fn measure(&self, draft: &Draft<'_>) -> Result<usize, String> {
        let mut ready = self.ready();
        let len = draft.body.len() + draft.headers.len();
        if !has_room(ready.bytes.len() + len) {
            return Err(format!("no memory is left to make an event of {len} bytes"));
        }
        let start = ready.bytes.len();
        let outcome = self.frame(draft, &mut ready);
        match outcome {
            Ok(_) => {
                let end = ready.bytes.len();
                ready.ends.push(end);
            }
            Err(_) => ready.bytes.truncate(start),
        }
        outcome
    }

    fn encode(&self, _draft: &Draft<'_>, place: Place, _held: bool, out: &mut [u8]) -> Encoded {
        let mut ready = self.ready();
        let index = ready.next;
        let start = index.checked_sub(1).and_then(|before| ready.ends.get(before)).copied();
        let end = ready.ends.get(index).copied().unwrap_or(0);
        let frame = ready.bytes.get(start.unwrap_or(0)..end).unwrap_or_default();
        if frame.len() != out.len() {
            return Err("the event was not measured".into());
        }
        let word = words::u32_le(frame, 0).unwrap_or(0);
        out.copy_from_slice(frame);
        if let Some(keystream) = &self.keystream {
            let at = words::size(place.offset & POSITION_MASK) + KEY_BYTES;
            let goes_on = ready.running.take().filter(|(offset, _)| *offset == place.offset);
            let mut running = goes_on.map_or_else(|| keystream.from(at), |(_, running)| running);
            running.apply(out);
            ready.running = Some((place.offset + out.len() as u64, running));
        }
        ready.next += 1;
        Ok(word)
    }

    fn is_checked(&self) -> bool {
        true
    }

    fn holds_key(&self) -> bool {
        self.has_key_inside()
    }

    fn step(&self, bytes: &[u8], at: usize, _offset: u64, verify: bool) -> Step {
        match self.size(bytes, at) {
            Framing::Whole(size) if !has_room(size) => {
                let payload = Span::new(4, size - OVERHEAD);
                Step::Frame(FrameView { size, payload, opaque: true, ..FrameView::default() })
            }
            Framing::Whole(size) => {
                self.plain(bytes, at, size, |frame| self.open(frame, at, verify))
            }
            Framing::Stop(step) => step,
        }
    }

    fn payload<'a>(&self, bytes: &'a [u8], at: usize, frame: &FrameView) -> Cow<'a, [u8]> {
        self.plain(bytes, at, frame.size, |plain| {
            let payload = frame.payload.of(plain);
            if !self.is_packed {
                return Cow::Owned(payload.to_vec());
            }
            let mut unpacked = Vec::new();
            let len = lz4::unpack_event(payload, &mut unpacked).unwrap_or(0);
            unpacked.truncate(len);
            Cow::Owned(unpacked)
        })
    }

    fn plain_bytes<'a>(&self, bytes: &'a [u8], at: usize) -> Cow<'a, [u8]> {
        let raw = bytes.get(at..).unwrap_or_default();
        match &self.keystream {
            None => Cow::Borrowed(raw),
            Some(_) => self.plain(bytes, at, raw.len(), |plain| Cow::Owned(plain.to_vec())),
        }
    }

    fn goes_by_place(&self) -> bool {
        self.keystream.is_some()
    }

    fn size_at(&self, bytes: &[u8], at: usize, _offset: u64) -> Option<usize> {
        match self.size(bytes, at) {
            Framing::Whole(size) => Some(size),
            Framing::Stop(_) => None,
        }
    }

    fn open_frame(
        &self,
        bytes: &[u8],
        at: usize,
        _offset: u64,
        frame: &FrameView,
    ) -> Result<Vec<FrameView>, Fault> {
        if !has_room(frame.size) {
            return Err(Fault::no_memory(at, frame.size));
        }
        let found = self.plain(bytes, at, frame.size, |plain| self.decode(frame.payload.of(plain)));
        match found {
            Ok(view) => Ok(vec![FrameView { size: frame.size, payload: frame.payload, ..view }]),
            Err(why) if why == lz4::NO_MEMORY => Err(Fault::no_memory(at, frame.size)),
            Err(why) => Err(Fault::new(at + 4, format!("an event with {why}"), "a Beats event")),
        }
    }

    fn resync(&self, bytes: &[u8], at: usize, _base: u64, _shift: usize) -> Option<usize> {
        let Some(keystream) = &self.keystream else { return find_frame(bytes, at) };
        let mut plain = bytes.get(at..)?.to_vec();
        keystream.from(at).apply(&mut plain);
        find_frame(&plain, 0).map(|found| at + found)
    }
}
