//! Reading an event in CBOR, straight into JSON. The library tells the items apart; every length
//! is checked against what is left, and nesting is bounded.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ciborium_ll::{Decoder, Header};

use super::event::{Event, ID, KEY, MARK, MESSAGE, Raw};
use crate::bytes::headers;

/// Maps and lists inside each other, at most.
pub const MAX_DEPTH: usize = 128;

type Read<T> = Result<T, String>;

struct Items<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Items<'a> {
    /// The next item's head; tags mean nothing here and are passed over.
    #[inline]
    fn next(&mut self) -> Read<Header> {
        loop {
            let rest = self.bytes.get(self.at..).unwrap_or_default();
            let mut decoder = Decoder::from(rest);
            let head = decoder.pull().map_err(|_| self.wrong("bytes that are not a CBOR item"))?;
            self.at += decoder.offset();
            if !matches!(head, Header::Tag(_)) {
                return Ok(head);
            }
        }
    }

    #[inline]
    fn take(&mut self, len: Option<usize>) -> Read<&'a [u8]> {
        let len = len.ok_or_else(|| self.wrong("a text of unknown length"))?;
        let end = self.at.checked_add(len);
        let found = end.and_then(|end| self.bytes.get(self.at..end));
        let found = found.ok_or_else(|| self.wrong("a text that runs past the event"))?;
        self.at += len;
        Ok(found)
    }

    #[cold]
    fn wrong(&self, what: &str) -> String {
        format!("{what} at byte {} of the event", self.at)
    }
}

/// Reads the event in `bytes`.
pub fn decode(bytes: &[u8], event: &mut Event) -> Read<()> {
    let mut items = Items { bytes, at: 0 };
    let Header::Map(mut left) = items.next()? else { return Err(items.wrong("no map")) };
    while has_more(&mut items, &mut left)? {
        let head = items.next()?;
        let Header::Text(len) = head else { return Err(items.wrong("a key that is not text")) };
        match items.take(len)? {
            b"timestamp" => event.timestamp_ns = integer(&mut items)?,
            b"flags" => event.flags = u64::try_from(integer(&mut items)?).unwrap_or(0),
            b"meta" => meta(&mut items, event)?,
            b"fields" if event.raw.is_some() => body(&mut items, event)?,
            b"fields" => object(&mut items, &mut event.fields)?,
            _ => {
                let head = items.next()?;
                value(&mut items, head, &mut Vec::new(), 0)?;
            }
        }
    }
    Ok(())
}

/// Whether a map or list goes on: by its count, or up to the break.
#[inline]
fn has_more(items: &mut Items<'_>, left: &mut Option<usize>) -> Read<bool> {
    match left {
        Some(0) => Ok(false),
        Some(count) => {
            *count -= 1;
            Ok(true)
        }
        None => {
            let is_break = items.bytes.get(items.at) == Some(&0xff);
            items.at += usize::from(is_break);
            Ok(!is_break)
        }
    }
}

fn integer(items: &mut Items<'_>) -> Read<i64> {
    let found = match items.next()? {
        Header::Positive(value) => i64::try_from(value).ok(),
        Header::Negative(value) => i64::try_from(value).ok().map(|value| !value),
        _ => None,
    };
    found.ok_or_else(|| items.wrong("no integer of 64 bits"))
}

/// Meta or fields: a map, or null for an empty one.
fn object(items: &mut Items<'_>, out: &mut Vec<u8>) -> Read<()> {
    match items.next()? {
        Header::Map(left) => map(items, left, out, 0),
        Header::Simple(22 | 23) => Ok(()),
        _ => Err(items.wrong("no map")),
    }
}

/// Meta, whose texts are noted on the way: the id, the mark, what may be headers.
fn meta(items: &mut Items<'_>, event: &mut Event) -> Read<()> {
    let mut left = match items.next()? {
        Header::Map(left) => left,
        Header::Simple(22 | 23) => return Ok(()),
        _ => return Err(items.wrong("no map")),
    };
    event.meta.push(b'{');
    while has_more(items, &mut left)? {
        let before = event.meta.len();
        if before > 1 {
            event.meta.push(b',');
        }
        let name = key(items, &mut event.meta)?;
        event.meta.push(b':');
        let head = items.next()?;
        let start = items.at;
        value(items, head, &mut event.meta, 1)?;
        if let Header::Text(_) = head {
            let text = items.bytes.get(start..items.at).unwrap_or_default();
            if note(event, name, text) {
                event.meta.truncate(before);
            }
        }
    }
    event.meta.push(b'}');
    Ok(())
}

/// Notes a text of the meta; true for the mark and the key, which are shown to no user.
fn note(event: &mut Event, name: &[u8], text: &[u8]) -> bool {
    if name == ID {
        event.id.clear();
        event.id.extend_from_slice(String::from_utf8_lossy(text).as_bytes());
    } else if name == MARK.as_bytes() {
        event.raw = Raw::find(text);
        return event.raw.is_some();
    } else if name == KEY.as_bytes() {
        event.key.clear();
        event.key.extend_from_slice(String::from_utf8_lossy(text).as_bytes());
        return true;
    } else if headers::push(&mut event.named, name, text).is_none() {
        event.named.clear();
    }
    false
}

/// The body that is not a JSON object: the one field, as it is.
fn body(items: &mut Items<'_>, event: &mut Event) -> Read<()> {
    let start = items.at;
    let one = items.next()?;
    if let (Header::Map(Some(1)), Header::Text(name)) = (one, items.next()?) {
        if items.take(name)? == MESSAGE.as_bytes() {
            if let Header::Text(len) | Header::Bytes(len) = items.next()? {
                event.fields.extend_from_slice(items.take(len)?);
                return Ok(());
            }
        }
    }
    // Another program has changed the fields: they are taken as they stand.
    (items.at, event.raw) = (start, None);
    object(items, &mut event.fields)
}

fn map(
    items: &mut Items<'_>,
    mut left: Option<usize>,
    out: &mut Vec<u8>,
    depth: usize,
) -> Read<()> {
    out.push(b'{');
    let mut is_first = true;
    while has_more(items, &mut left)? {
        if !std::mem::take(&mut is_first) {
            out.push(b',');
        }
        key(items, out)?;
        out.push(b':');
        let head = items.next()?;
        value(items, head, out, depth + 1)?;
    }
    out.push(b'}');
    Ok(())
}

#[inline]
fn key<'a>(items: &mut Items<'a>, out: &mut Vec<u8>) -> Read<&'a [u8]> {
    match items.next()? {
        Header::Text(len) => {
            let raw = items.take(len)?;
            text(raw, out);
            Ok(raw)
        }
        Header::Positive(number) => {
            text(number.to_string().as_bytes(), out);
            Ok(&[])
        }
        Header::Negative(number) => {
            text((-1 - i128::from(number)).to_string().as_bytes(), out);
            Ok(&[])
        }
        _ => Err(items.wrong("a key that is not text")),
    }
}

fn value(items: &mut Items<'_>, head: Header, out: &mut Vec<u8>, depth: usize) -> Read<()> {
    if depth > MAX_DEPTH {
        return Err(items.wrong("more than 128 maps and lists inside each other"));
    }
    match head {
        Header::Positive(number) => json(out, &number),
        Header::Negative(number) => json(out, &(-1 - i128::from(number))),
        Header::Float(number) => json(out, &number),
        Header::Simple(20) => out.extend_from_slice(b"false"),
        Header::Simple(21) => out.extend_from_slice(b"true"),
        Header::Simple(22 | 23) => out.extend_from_slice(b"null"),
        Header::Text(len) => text(items.take(len)?, out),
        Header::Bytes(len) => bytes(items.take(len)?, out),
        Header::Map(left) => map(items, left, out, depth)?,
        Header::Array(left) => list(items, left, out, depth)?,
        Header::Simple(_) | Header::Break | Header::Tag(_) => {
            return Err(items.wrong("no value"));
        }
    }
    Ok(())
}

fn list(
    items: &mut Items<'_>,
    mut left: Option<usize>,
    out: &mut Vec<u8>,
    depth: usize,
) -> Read<()> {
    out.push(b'[');
    let mut is_first = true;
    while has_more(items, &mut left)? {
        if !std::mem::take(&mut is_first) {
            out.push(b',');
        }
        let head = items.next()?;
        value(items, head, out, depth + 1)?;
    }
    out.push(b']');
    Ok(())
}

/// A JSON text; what is not UTF-8 becomes U+FFFD, as Beats itself shows it.
#[inline]
fn text(raw: &[u8], out: &mut Vec<u8>) {
    match std::str::from_utf8(raw) {
        Ok(text) => json(out, text),
        Err(_) => json(out, &*String::from_utf8_lossy(raw)),
    }
}

fn bytes(raw: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    out.extend_from_slice(STANDARD.encode(raw).as_bytes());
    out.push(b'"');
}

/// Writing to memory does not fail, and neither numbers nor texts can be refused.
#[inline]
fn json<T: serde::Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    let _ = serde_json::to_writer(out, value);
}
