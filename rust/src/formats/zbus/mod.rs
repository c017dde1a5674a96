//! The zbus frame: 204 bytes and the body, big-endian, no padding, no end mark.
//!
//! ```text
//!           layouts with CorrOffset          layout crc
//!   0 i64   offset, in the segment or the queue
//!   8 i64   timestamp ms                     CRC-32 of bytes 16..199
//!  16 40    id: length byte, up to 39 bytes
//!  56 i64   CorrOffset                       timestamp ms
//!  64 i64   number
//!  72 128   tag: length byte, up to 127 bytes
//! 200 i32   length of the body
//! ```
//! What stands between two frames can't be told from a frame by any magic number. What holds a
//! reader on course is the offset, which must be the frame's own place.

pub mod files;

use std::sync::Arc;

use pyo3::prelude::*;

use crate::bytes::checksum::crc32;
use crate::bytes::headers;
use crate::bytes::words;
use crate::segment::PyFrames;
use crate::segment::frame::{Draft, Encoded, Fault, FrameView, Frames, Place, Span, Step};
use crate::sys::memory;

/// Bytes before the body.
pub const HEAD_BYTES: usize = 204;
/// A segment, and so a body in it, has fewer bytes than this.
const MOST_BYTES: usize = (1 << 31) - 1;
const ID_AT: usize = 16;
const ID_MAX: usize = 39;
const TAG_AT: usize = 72;
const TAG_MAX: usize = 127;
const NUMBER_AT: usize = 64;
const LENGTH_AT: usize = 200;
const CORR_AT: usize = 56;
/// The header that CorrOffset is.
const CORR_NAME: &[u8] = b"zbus.corr_offset";
const NS_PER_MS: i64 = 1_000_000;

/// The framing of one segment.
pub struct ZbusFrames {
    /// Where the segment begins.
    pub base: u64,
    /// Whether the offset in a new frame counts from the queue's beginning, not the segment's.
    pub is_absolute: bool,
    /// Whether there is a checksum in the place of the timestamp.
    pub has_crc: bool,
}

fn corr_offset(wire: &[u8]) -> Result<i64, String> {
    let mut found = 0;
    for (name, value) in headers::iterate(wire) {
        let name_text = String::from_utf8_lossy(name);
        if name != CORR_NAME {
            return Err(format!(
                "format zbus has no place for header {name_text:?}, only for zbus.corr_offset"
            ));
        }
        let number = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
        found = number.filter(|number: &i64| *number >= 0).ok_or_else(|| {
            format!(
                "header {name_text} is {:?}, expected an offset",
                String::from_utf8_lossy(value)
            )
        })?;
    }
    Ok(found)
}

impl ZbusFrames {
    fn timestamp_at(&self) -> usize {
        if self.has_crc { CORR_AT } else { 8 }
    }

    fn encode_into(&self, draft: &Draft<'_>, place: Place, out: &mut [u8]) -> Option<()> {
        let shown =
            if self.is_absolute { place.offset } else { place.offset.wrapping_sub(self.base) };
        let (head, body) = out.split_at_mut_checked(HEAD_BYTES)?;
        head.fill(0);
        words::put_u64_be(head, 0, shown)?;
        words::put_i64_be(head, self.timestamp_at(), draft.timestamp_ns.div_euclid(NS_PER_MS))?;
        put_slot(head, ID_AT, draft.id)?;
        put_slot(head, TAG_AT, draft.tag)?;
        words::put_u64_be(head, NUMBER_AT, place.number)?;
        words::put_i32_be(head, LENGTH_AT, i32::try_from(draft.body.len()).ok()?)?;
        if self.has_crc {
            let crc = crc32(head.get(ID_AT..LENGTH_AT)?);
            words::put_u64_be(head, 8, u64::from(crc))?;
        } else if !draft.headers.is_empty() {
            words::put_i64_be(head, CORR_AT, corr_offset(draft.headers).ok()?)?;
        }
        body.copy_from_slice(draft.body);
        Some(())
    }

    fn view(&self, frame: &[u8], body_len: usize) -> Option<FrameView> {
        let mut view = FrameView {
            size: HEAD_BYTES + body_len,
            number: words::i64_be(frame, NUMBER_AT)?,
            timestamp_ns: words::i64_be(frame, self.timestamp_at())?.saturating_mul(NS_PER_MS),
            id: slot(frame, ID_AT, ID_MAX)?,
            tag: slot(frame, TAG_AT, TAG_MAX)?,
            body: Span::new(HEAD_BYTES, body_len),
            payload: Span::new(HEAD_BYTES, body_len),
            ..FrameView::default()
        };
        let corr = if self.has_crc { 0 } else { words::i64_be(frame, CORR_AT)? };
        if corr != 0 && !memory::has_room(frame.len().saturating_mul(3)) {
            view.opaque = true;
        } else if corr != 0 {
            let mut owned = frame.to_vec();
            let mut wire = Vec::new();
            headers::push(&mut wire, CORR_NAME, corr.to_string().as_bytes())?;
            view.headers = Span::new(owned.len(), wire.len());
            owned.extend_from_slice(&wire);
            view.owned = Some(owned.into());
        }
        Some(view)
    }
}

fn put_slot(head: &mut [u8], at: usize, text: &[u8]) -> Option<()> {
    *head.get_mut(at)? = u8::try_from(text.len()).ok()?;
    words::put(head, at + 1, text)
}

/// The string in a slot; none when its length byte points outside. The length is signed: nought
/// and below mean "absent".
fn slot(frame: &[u8], at: usize, most: usize) -> Option<Span> {
    let len = frame.get(at)?.cast_signed().max(0).unsigned_abs() as usize;
    (len <= most).then(|| Span::new(at + 1, len))
}

impl Frames for ZbusFrames {
    fn measure(&self, draft: &Draft<'_>) -> Result<usize, String> {
        for (what, part, most) in [("id", draft.id, ID_MAX), ("tag", draft.tag, TAG_MAX)] {
            if part.len() > most {
                return Err(format!(
                    "the {what} has {} bytes, format zbus holds {most}",
                    part.len()
                ));
            }
        }
        if !draft.headers.is_empty() {
            corr_offset(draft.headers)?;
            if self.has_crc {
                return Err("layout crc has no place for zbus.corr_offset; layout corr has".into());
            }
        }
        let size = HEAD_BYTES + draft.body.len();
        if size > MOST_BYTES {
            return Err(format!("the message has {size} bytes, a zbus segment at most 2^31-1"));
        }
        Ok(size)
    }

    fn encode(&self, draft: &Draft<'_>, place: Place, _held: bool, out: &mut [u8]) -> Encoded {
        let done = self.encode_into(draft, place, out);
        done.map(|()| 0).ok_or_else(|| "the message does not fit its frame".into())
    }

    fn step(&self, bytes: &[u8], at: usize, offset: u64, verify: bool) -> Step {
        let rest = bytes.get(at..).unwrap_or_default();
        if rest.is_empty() {
            return Step::End;
        }
        let Some(head) = rest.get(..HEAD_BYTES) else {
            let found = format!("{} bytes", rest.len());
            return Step::CutShort(Fault::new(at, found, "a frame of at least 204"));
        };
        let bad =
            |at: usize, found: String, expected: String| Step::Bad(Fault::new(at, found, expected));
        let shown = words::u64_be(head, 0).unwrap_or(0);
        let relative = offset.wrapping_sub(self.base);
        if shown != offset && shown != relative {
            let expected = format!("its place, {offset} or {relative}");
            return bad(at, format!("offset {shown}"), expected);
        }
        let length = words::i32_be(head, LENGTH_AT).unwrap_or(-1);
        let Ok(body_len) = usize::try_from(length) else {
            return bad(at + LENGTH_AT, format!("a body of {length} bytes"), "0 or more".into());
        };
        if self.has_crc && verify {
            let stored = words::u64_be(head, 8).unwrap_or(0);
            let crc = u64::from(crc32(head.get(ID_AT..LENGTH_AT).unwrap_or_default()));
            if stored != crc {
                return bad(at + 8, format!("checksum {stored:08x}"), format!("{crc:08x}"));
            }
        } else if shown == 0 && head.iter().all(|byte| *byte == 0) {
            // Bytes that never reached the disk: every frame has a time.
            return Step::End;
        }
        let Some(frame) = rest.get(..HEAD_BYTES + body_len) else {
            let left = rest.len() - HEAD_BYTES;
            let found = format!("a body of {body_len} bytes");
            return Step::CutShort(Fault::new(
                at + LENGTH_AT,
                found,
                format!("at most {left} left"),
            ));
        };
        match self.view(frame, body_len) {
            Some(view) => Step::Frame(view),
            None => bad(at + ID_AT, "an id or tag longer than its slot".into(), "39, 127".into()),
        }
    }
}

/// The framing of a `zbus` segment that begins at `base`.
#[pyfunction]
#[pyo3(signature = (base, *, absolute, crc))]
pub fn zbus_frames(base: u64, absolute: bool, crc: bool) -> PyFrames {
    PyFrames(Arc::new(ZbusFrames { base, is_absolute: absolute, has_crc: crc }))
}
