//! The VQS frame: `length u32`, then a gob `Message` (in the older stages gzipped).
//!
//! Attributes are headers. A text attribute of type `String` is the header of its name; every
//! other one says what it is:
//!
//! ```text
//! vqs.attr.<name>      text              vqs.attr64.<name>      base64
//! vqs.attr-type.<name> its type, unless it is String (text) or Binary (base64)
//! vqs.system.<name>    the same for system attributes, with vqs.system64. and vqs.system-type.
//! vqs.delay            DelaySeconds, when it is not 0
//! ```
//! A frame found is always a copy: ring space is used again once it is acked.

pub mod gob;
pub mod header;

use std::borrow::Cow;
use std::io::Read;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use pyo3::prelude::*;

use crate::bytes::{headers, words};
use crate::formats::vqs::gob::{Attribute, Parts};
use crate::segment::PyFrames;
use crate::segment::frame::{Draft, Encoded, Fault, FrameView, Frames, Place, Span, Step};
use crate::sys::memory;

/// Bytes before the record.
const PREFIX_BYTES: usize = 4;
/// A gzipped record may unpack to this much.
const MAX_UNPACKED: u64 = 64 << 20;

const OURS: &[u8] = b"vqs.";
const DELAY: &[u8] = b"vqs.delay";
const STRING: &[u8] = b"String";
const BINARY: &[u8] = b"Binary";
/// Header prefixes: text, base64, type; of attributes and of system attributes.
const NAMES: [[&[u8]; 3]; 2] = [
    [b"vqs.attr.", b"vqs.attr64.", b"vqs.attr-type."],
    [b"vqs.system.", b"vqs.system64.", b"vqs.system-type."],
];

/// The framing of a VQS ring.
pub struct VqsFrames {
    /// Records are gzipped (stages 2 and 3, which are only read).
    pub is_gzip: bool,
}

/// The attribute that a header stands for; none for headers that only describe another.
fn attribute<'a>(
    all: &'a [u8],
    key: &'a [u8],
    value: &'a [u8],
) -> Result<Option<Attribute<'a>>, String> {
    if !key.starts_with(OURS) {
        let value = Cow::Borrowed(value);
        return Ok(Some(Attribute { is_system: false, name: key, kind: STRING, value }));
    }
    if key == DELAY {
        return Ok(None);
    }
    for ([text, packed, kind], is_system) in NAMES.iter().zip([false, true]) {
        // Whether the message has a header of one of these prefixes and a name.
        let has = |prefix: &[u8], name: &[u8]| {
            headers::iterate(all).any(|(key, _)| key.strip_prefix(prefix) == Some(name))
        };
        if let Some(name) = key.strip_prefix(*kind) {
            if has(text, name) || has(packed, name) {
                return Ok(None);
            }
            let [key, text, packed] = [key, text, packed].map(String::from_utf8_lossy);
            return Err(format!("header {key}: it goes with a header {text}… or {packed}…"));
        }
        let is_packed = key.starts_with(packed);
        let Some(name) = key.strip_prefix(if is_packed { *packed } else { *text }) else {
            continue;
        };
        let is_plain_too = !is_system && !name.starts_with(OURS) && has(b"", name);
        if is_plain_too || (is_packed && has(text, name)) {
            let name = String::from_utf8_lossy(name);
            return Err(format!("headers: attribute {name} is there twice"));
        }
        let kinds = headers::iterate(all).find(|(key, _)| key.strip_prefix(*kind) == Some(name));
        let usual = if is_packed { BINARY } else { STRING };
        let value = if is_packed {
            let bytes = STANDARD.decode(value).map_err(|error| {
                format!("header {}: not base64: {error}", String::from_utf8_lossy(key))
            })?;
            Cow::Owned(bytes)
        } else {
            Cow::Borrowed(value)
        };
        let kind = kinds.map_or(usual, |(_, kind)| kind);
        return Ok(Some(Attribute { is_system, name, kind, value }));
    }
    let key = String::from_utf8_lossy(key);
    Err(format!("header {key}: names that begin with vqs. mean attributes; no such one is known"))
}

fn parts<'a>(draft: &Draft<'a>) -> Result<Parts<'a>, String> {
    if !draft.tag.is_empty() {
        return Err("format vqs has no place for a tag".into());
    }
    let mut delay_s = None;
    let mut attributes = Vec::new();
    for (key, value) in headers::iterate(draft.headers) {
        if key == DELAY {
            let text = std::str::from_utf8(value).ok().and_then(|text| text.parse::<u16>().ok());
            delay_s = Some(text.ok_or("header vqs.delay: not a number of seconds up to 65535")?);
        }
        attributes.extend(attribute(draft.headers, key, value)?);
    }
    if attributes.len() > gob::MAX_ATTRIBUTES {
        return Err(format!("format vqs holds at most {} headers", gob::MAX_ATTRIBUTES));
    }
    // A message that was delayed before, in another queue, says by how much.
    let delay_ns =
        if draft.due_ns == 0 { 0 } else { draft.due_ns.saturating_sub(draft.timestamp_ns) };
    let seconds = u64::try_from(delay_ns).unwrap_or(0).div_ceil(1_000_000_000);
    let delay_s = delay_s.map_or(seconds.min(u64::from(u16::MAX)), u64::from);
    Ok(Parts { id: draft.id, body: draft.body, attributes, delay_s })
}

/// Headers in wire form, from what the record holds.
fn headers_of(parts: &Parts<'_>) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let mut name = Vec::new();
    for one in &parts.attributes {
        let is_text = std::str::from_utf8(&one.value).is_ok() && !one.kind.starts_with(BINARY);
        let is_plain = is_text && !one.is_system && one.kind == STRING;
        if is_plain && !one.name.starts_with(OURS) {
            headers::push(&mut out, one.name, &one.value)?;
            continue;
        }
        let [text, packed, kind] = NAMES.get(usize::from(one.is_system))?;
        let mut called = |prefix: &[u8]| {
            name.clear();
            name.extend_from_slice(prefix);
            name.extend_from_slice(one.name);
            name.clone()
        };
        let usual = if is_text { STRING } else { BINARY };
        if one.kind != usual {
            headers::push(&mut out, &called(kind), one.kind)?;
        }
        if is_text {
            headers::push(&mut out, &called(text), &one.value)?;
        } else {
            headers::push(&mut out, &called(packed), STANDARD.encode(&one.value).as_bytes())?;
        }
    }
    if parts.delay_s != 0 {
        headers::push(&mut out, DELAY, parts.delay_s.to_string().as_bytes())?;
    }
    Some(out)
}

/// Where `part` is in `whole`, of which it is a slice.
fn span_in(whole: &[u8], part: &[u8]) -> Span {
    let at = (part.as_ptr() as usize).wrapping_sub(whole.as_ptr() as usize);
    if part.is_empty() { Span::default() } else { Span::new(at, part.len()) }
}

/// The view over a copy: the gob with what it holds, then headers, then the record as it stands in
/// the ring where that is another (gzipped).
fn view_of(gob: &[u8], parts: &Parts<'_>, record: Option<&[u8]>) -> Option<FrameView> {
    let mut view = FrameView {
        id: span_in(gob, parts.id),
        body: span_in(gob, parts.body),
        payload: Span::new(0, gob.len()),
        ..FrameView::default()
    };
    if parts.attributes.is_empty() && parts.delay_s == 0 && record.is_none() {
        view.owned = Some(gob.into());
        return Some(view);
    }
    let headers = headers_of(parts)?;
    let record = record.unwrap_or_default();
    view.headers = Span::new(gob.len(), headers.len());
    if !record.is_empty() {
        view.payload = Span::new(gob.len() + headers.len(), record.len());
    }
    view.owned = Some(Arc::from([gob, &headers, record].concat()));
    Some(view)
}

const NO_MEMORY: &str = "a record that there is no memory to unpack";

fn unzip(record: &[u8]) -> Result<Vec<u8>, &'static str> {
    let mut out = Vec::new();
    let mut unzipped = flate2::read::GzDecoder::new(record).take(MAX_UNPACKED + 1);
    match unzipped.read_to_end(&mut out) {
        Err(error) if error.kind() == std::io::ErrorKind::OutOfMemory => Err(NO_MEMORY),
        Err(_) => Err("a record that is not gzip"),
        Ok(len) if len as u64 > MAX_UNPACKED => Err("a record that unpacks to more than 64 MiB"),
        Ok(_) => Ok(out),
    }
}

impl VqsFrames {
    fn read(&self, at: usize, record: &[u8]) -> Result<FrameView, Fault> {
        let bad = |at: usize, found: &str| Fault::new(at, found, "a gob Message");
        let unzipped = match self.is_gzip {
            true => Cow::Owned(unzip(record).map_err(|found| bad(at, found))?),
            false => Cow::Borrowed(record),
        };
        let parts = gob::decode(&unzipped).map_err(|wrong| {
            bad(if self.is_gzip { at } else { at.saturating_add(wrong.at) }, wrong.found)
        })?;
        let raw = self.is_gzip.then_some(record);
        let view = view_of(&unzipped, &parts, raw);
        let view = view.ok_or_else(|| bad(at, "attributes past all limits"))?;
        Ok(FrameView { size: PREFIX_BYTES + record.len(), ..view })
    }
}

impl Frames for VqsFrames {
    fn measure(&self, draft: &Draft<'_>) -> Result<usize, String> {
        if self.is_gzip {
            return Err("queues of this stage of vqs are only read".into());
        }
        let len = gob::measure(&parts(draft)?);
        u32::try_from(len).map_err(|_| format!("a record of {len} bytes is too long for vqs"))?;
        Ok(PREFIX_BYTES + len)
    }

    fn encode(&self, draft: &Draft<'_>, _place: Place, _held: bool, out: &mut [u8]) -> Encoded {
        // The header of the file says where the ring ends: nothing of the frame is held back.
        let word = words::small(out.len().saturating_sub(PREFIX_BYTES));
        words::put_u32_le(out, 0, word);
        let record = out.get_mut(PREFIX_BYTES..).unwrap_or_default();
        gob::encode(&parts(draft)?, record).ok_or("the message does not fit its frame")?;
        Ok(word)
    }

    fn size_at(&self, bytes: &[u8], at: usize, _offset: u64) -> Option<usize> {
        let rest = bytes.get(at..)?;
        let size = PREFIX_BYTES + words::u32_le(rest, 0)? as usize;
        (size > PREFIX_BYTES && size <= rest.len()).then_some(size)
    }

    /// From the copy: the ring may be in a later lap by now.
    fn payload<'a>(&self, _bytes: &'a [u8], _at: usize, frame: &FrameView) -> Cow<'a, [u8]> {
        Cow::Owned(frame.payload.of(frame.owned.as_deref().unwrap_or_default()).to_vec())
    }

    fn step(&self, bytes: &[u8], at: usize, _offset: u64, _verify: bool) -> Step {
        let rest = bytes.get(at..).unwrap_or_default();
        let cut = |found: String| {
            Step::CutShort(Fault::new(at, found, format!("at most {} bytes left", rest.len())))
        };
        let len = match words::u32_le(rest, 0) {
            None if rest.is_empty() => return Step::End,
            None => return cut(format!("a length cut off after {} bytes", rest.len())),
            Some(0) => return Step::End,
            Some(len) => len as usize,
        };
        let Some(record) = rest.get(PREFIX_BYTES..).and_then(|rest| rest.get(..len)) else {
            return cut(format!("a record of {len} bytes"));
        };
        let opaque = || {
            let size = PREFIX_BYTES + len;
            Step::Frame(FrameView { size, opaque: true, ..FrameView::default() })
        };
        if !memory::has_room(len.saturating_mul(4)) {
            return opaque();
        }
        match self.read(at + PREFIX_BYTES, record) {
            Ok(view) => Step::Frame(view),
            Err(fault) if fault.found == NO_MEMORY => opaque(),
            Err(fault) => Step::Bad(fault),
        }
    }
}

/// The framing of a VQS ring; `gzip` for the stages that pack their records.
#[pyfunction]
#[pyo3(signature = (*, gzip=false))]
pub fn vqs_frames(gzip: bool) -> PyFrames {
    PyFrames(Arc::new(VqsFrames { is_gzip: gzip }))
}
