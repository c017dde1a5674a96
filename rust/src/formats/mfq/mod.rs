//! MappedFileQueues.Stream: `length i32 | payload | 0xFF`, little-endian and unaligned.
//!
//! The end is a word of its own, `offset/producer.offset`, and so is the one consumer's progress.
//! The original's consumer looks at the length word alone: it is stored after the rest of its
//! frame, and the four bytes behind the last frame are kept zero. Our own consumers go by the end.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use pyo3::prelude::*;

use crate::bytes::words;
use crate::errors;
use crate::files::region;
use crate::formats::mirror::{Mirror, PyMirror};
use crate::segment::frame::{Draft, Encoded, Fault, FrameView, Frames, Place, Span, Step};
use crate::segment::publish::{Batch, Publish, PyPublish};
use crate::segment::{PyFrames, Segment};
use crate::sys::mapping::Mapping;

const HEADER_BYTES: usize = 4;
/// Length word and end marker.
pub const OVERHEAD_BYTES: usize = HEADER_BYTES + 1;
const END_MARKER: u8 = 0xFF;
const MAX_PAYLOAD_BYTES: usize = 0xFF_FFFF;
/// A place where frames seem to go on counts when this many follow each other, or when they lead
/// to the end.
const CHAIN: usize = 64;

/// The framing of one segment.
pub struct MfqFrames {
    /// Bytes of every segment file.
    pub segment_bytes: usize,
}

fn refuse(what: &str) -> String {
    format!("format mfq has no place for {what}")
}

impl Frames for MfqFrames {
    fn measure(&self, draft: &Draft<'_>) -> Result<usize, String> {
        if !draft.tag.is_empty() {
            return Err(refuse("a tag"));
        }
        if !draft.id.is_empty() {
            return Err(refuse("an id"));
        }
        if !draft.headers.is_empty() {
            return Err(refuse("headers"));
        }
        let len = draft.body.len();
        if len == 0 {
            return Err(refuse("an empty body: length 0 means \"not yet\""));
        }
        let most = MAX_PAYLOAD_BYTES.min(self.segment_bytes.saturating_sub(OVERHEAD_BYTES));
        if len > most {
            return Err(format!("the body has {len} bytes, this mfq queue holds at most {most}"));
        }
        Ok(len + OVERHEAD_BYTES)
    }

    fn encode(&self, draft: &Draft<'_>, _place: Place, _held: bool, out: &mut [u8]) -> Encoded {
        let length = words::small(draft.body.len());
        let marker_at = HEADER_BYTES + draft.body.len();
        words::put_u32_le(out, 0, 0);
        words::put(out, HEADER_BYTES, draft.body).ok_or("the message does not fit its frame")?;
        words::put(out, marker_at, &[END_MARKER]).ok_or("the message does not fit its frame")?;
        // The original's consumer goes by the length alone: it comes last.
        fence(Ordering::Release);
        words::put_u32_le(out, 0, length);
        Ok(0)
    }

    fn step(&self, bytes: &[u8], at: usize, _offset: u64, _verify: bool) -> Step {
        let rest = bytes.get(at..).unwrap_or_default();
        if rest.is_empty() {
            return Step::End;
        }
        let Some(length) = words::u32_le(rest, 0) else {
            let found = format!("{} bytes", rest.len());
            return Step::CutShort(Fault::new(at, found, "a frame of at least 6"));
        };
        let length = length as usize;
        if length == 0 {
            return Step::End;
        }
        if length > MAX_PAYLOAD_BYTES {
            return Step::Bad(Fault::new(at, format!("length {length}"), "1 to 16777215"));
        }
        let size = length + OVERHEAD_BYTES;
        let Some(frame) = rest.get(..size) else {
            let left = rest.len().saturating_sub(OVERHEAD_BYTES);
            let expected = format!("at most {left} before the end");
            return Step::CutShort(Fault::new(at, format!("length {length}"), expected));
        };
        match frame.last() {
            Some(&END_MARKER) => {}
            other => {
                let found = format!("byte {:#04x}", other.copied().unwrap_or(0));
                return Step::Bad(Fault::new(at + size - 1, found, "the end marker 0xff"));
            }
        }
        let body = Span::new(HEADER_BYTES, length);
        Step::Frame(FrameView { size, body, payload: body, ..FrameView::default() })
    }

    fn has_plain(&self) -> bool {
        true
    }

    #[inline]
    fn find_plain(&self, bytes: &[u8], at: usize, view: &mut FrameView) -> bool {
        let rest = bytes.get(at..).unwrap_or_default();
        let length = words::u32_le(rest, 0).unwrap_or(0) as usize;
        if length == 0 || length > MAX_PAYLOAD_BYTES {
            return false;
        }
        if rest.get(length + HEADER_BYTES) != Some(&END_MARKER) {
            return false;
        }
        view.size = length + OVERHEAD_BYTES;
        view.body = Span::new(HEADER_BYTES, length);
        view.payload = view.body;
        // What else a message can have is beside the segment, and comes after this.
        (view.due_ns, view.key, view.owned) = (0, Span::default(), None);
        true
    }

    fn most_at_once(&self, segment_bytes: usize) -> usize {
        segment_bytes / 2
    }

    /// Without checksums one frame proves little: a chain of them must lead to the end.
    fn resync(&self, bytes: &[u8], at: usize, _base: u64, _shift: usize) -> Option<usize> {
        (at.checked_add(1)?..bytes.len()).find(|start| {
            let mut next = *start;
            for _ in 0..CHAIN {
                let Step::Frame(view) = self.step(bytes, next, 0, true) else { return false };
                next += view.size;
                if next == bytes.len() {
                    return true;
                }
            }
            true
        })
    }
}

/// One of the two offset files: eight bytes, mapped.
pub struct OffsetFile(Mapping);

impl OffsetFile {
    /// Maps it.
    pub fn open(path: &Path) -> std::io::Result<Self> {
        let file = region::open(path, true)?;
        let len = region::len(&file)?;
        if len < 8 {
            let found = format!("a file of {len} bytes");
            return Err(errors::damaged(path, words::size(len), found, "8 bytes with an offset"));
        }
        Ok(Self(Mapping::new(file, 8, true)?))
    }

    /// The offset; a negative one is nought.
    #[inline]
    pub fn get(&self) -> u64 {
        let value = self.0.word64(0).load(Ordering::Acquire);
        if value.cast_signed() < 0 { 0 } else { value }
    }

    /// Stores it.
    #[inline]
    pub fn set(&self, offset: u64) {
        self.0.publish64(0, offset);
    }

    /// Syncs it.
    pub fn sync(&self) -> std::io::Result<()> {
        region::sync(self.0.file()?)
    }
}

/// The end: `offset/producer.offset`.
pub struct ProducerOffset(pub OffsetFile);

/// Zeroes what is left behind the last frame of a frame that never became part of the queue: the
/// original's consumer would take it for one, if not now then behind the next frame, which the
/// original's producer puts there and zeroes nothing.
fn clear_next(segment: &Segment, end: u64) {
    let Some(map) = segment.map() else { return };
    let at = segment.position(end);
    let left = map.len().saturating_sub(at);
    let is_set = |byte: &u8| *byte != 0;
    if map.get(at, left.min(HEADER_BYTES)).is_some_and(|next| next.iter().any(is_set)) {
        let rest = map.get(at, left.min(MAX_PAYLOAD_BYTES + OVERHEAD_BYTES)).unwrap_or_default();
        let len = rest.iter().rposition(is_set).map_or(0, |last| last + 1);
        map.write_with(at, len, |stray| stray.fill(0));
    }
}

impl Publish for ProducerOffset {
    fn publish(&self, segment: &Segment, batch: &Batch) -> std::io::Result<()> {
        // A sync publishes again what puts have published. An original producer may be further on,
        // and what lies behind the end is then the frame that it writes just now.
        if self.0.get() < batch.end {
            clear_next(segment, batch.end);
        }
        self.publish_behind(segment, batch).map(drop)
    }

    fn publish_behind(&self, _segment: &Segment, batch: &Batch) -> std::io::Result<bool> {
        let is_behind = self.0.get() < batch.end;
        if is_behind {
            self.0.set(batch.end);
        }
        Ok(is_behind)
    }

    fn is_word(&self) -> bool {
        true
    }

    fn sync(&self) -> std::io::Result<()> {
        self.0.sync()
    }

    fn foreign_end(&self) -> Option<u64> {
        Some(self.0.get())
    }

    fn drop_above(&self, segment: &Segment, batch: &Batch, reserved: u64) -> std::io::Result<bool> {
        let end = self.0.get();
        if end > reserved {
            return Ok(false); // Another program has moved the end on.
        }
        if end > batch.end {
            self.0.set(batch.end);
        }
        segment.zero(batch.end, reserved);
        Ok(end > batch.end)
    }
}

/// The one consumer's progress: `offset/consumer.offset`.
pub struct ConsumerOffset(pub OffsetFile);

impl Mirror for ConsumerOffset {
    #[inline]
    fn store(&self, cursor: u64, _next: u64) -> std::io::Result<()> {
        if self.0.get() != cursor {
            self.0.set(cursor);
        }
        Ok(())
    }
}

/// The framing of an mfq segment.
#[pyfunction]
pub fn mfq_frames(segment_bytes: usize) -> PyFrames {
    PyFrames(Arc::new(MfqFrames { segment_bytes }))
}

/// The end of an mfq queue: its file `producer.offset`.
#[pyfunction]
pub fn producer_offset(path: PathBuf) -> PyResult<PyPublish> {
    Ok(PyPublish(Arc::new(ProducerOffset(OffsetFile::open(&path)?))))
}

/// Where an mfq queue keeps its default group's progress: its file `consumer.offset`.
#[pyfunction]
pub fn consumer_offset(path: PathBuf) -> PyResult<PyMirror> {
    Ok(PyMirror(Arc::new(ConsumerOffset(OffsetFile::open(&path)?))))
}
