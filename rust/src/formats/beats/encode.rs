//! Writing an event: a JSON object becomes fields, id and headers become meta.
//!
//! What comes out stays inside what every original reader takes: maps only, keys that are not
//! empty, no tags, no half floats, and negative numbers in a width whose top bit is clear
//! (-200 as `39 00c7`): the originals read the others wrongly.

use std::fmt;
use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ciborium_ll::{Encoder, Header};
use serde::Deserializer as _;
use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_json::ser::{CharEscape, CompactFormatter, Formatter};
use serde_json::{Map, Value};

use super::event::{FLAGS, ID, KEY, MARK, MESSAGE, META, PAYLOAD, Raw};
use crate::bytes::headers;
use crate::segment::frame::Draft;

/// How an event is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// Version 0.
    Json,
    /// Every other version.
    Cbor,
}

/// Bytes on their way out, and where in the object the writer stands when it refuses.
struct EventOut<'a> {
    out: &'a mut Vec<u8>,
    encoding: Encoding,
    /// Keys around what was refused, innermost first.
    trail: Vec<String>,
}

/// The original's manner of escaping texts in JSON, and all that is not ASCII besides: the
/// original's reader garbles a text that has both an escape and bytes of UTF-8.
struct Escaped;

impl Formatter for Escaped {
    fn write_string_fragment<W: Write + ?Sized>(
        &mut self,
        out: &mut W,
        text: &str,
    ) -> std::io::Result<()> {
        let is_plain = |c: char| c.is_ascii() && !matches!(c, '<' | '>' | '&');
        let mut rest = text;
        while let Some((plain, found)) =
            rest.find(|c| !is_plain(c)).and_then(|at| rest.split_at_checked(at))
        {
            out.write_all(plain.as_bytes())?;
            let mut after = found.chars();
            if let Some(c) = after.next() {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    write!(out, "\\u{unit:04x}")?;
                }
            }
            rest = after.as_str();
        }
        out.write_all(rest.as_bytes())
    }

    fn write_char_escape<W: Write + ?Sized>(
        &mut self,
        out: &mut W,
        escape: CharEscape,
    ) -> std::io::Result<()> {
        match escape {
            CharEscape::Backspace => out.write_all(b"\\u0008"),
            CharEscape::FormFeed => out.write_all(b"\\u000c"),
            other => CompactFormatter.write_char_escape(out, other),
        }
    }
}

fn head(out: &mut Vec<u8>, header: Header) {
    // Writing to memory does not fail.
    let _ = Encoder::from(out).push(header);
}

impl EventOut<'_> {
    fn is_json(&self) -> bool {
        self.encoding == Encoding::Json
    }

    fn json<T: serde::Serialize + ?Sized>(&mut self, value: &T) {
        let _ = serde_json::to_writer(&mut *self.out, value);
    }

    fn text(&mut self, text: &str) {
        if self.is_json() {
            return self.json_text(text);
        }
        head(self.out, Header::Text(Some(text.len())));
        self.out.extend_from_slice(text.as_bytes());
    }

    /// A text with all escaped that the original's reader would garble.
    fn json_text(&mut self, text: &str) {
        let mut writer = serde_json::Serializer::with_formatter(&mut *self.out, Escaped);
        let _ = serde::Serialize::serialize(text, &mut writer);
    }

    fn signed(&mut self, value: i64) {
        match u64::try_from(value) {
            Ok(value) if !self.is_json() => head(self.out, Header::Positive(value)),
            _ if self.is_json() => self.json(&value),
            _ => self.negative(!value),
        }
    }

    /// -1 - `argument`, in a width whose top bit stays clear.
    fn negative(&mut self, argument: i64) {
        let out = &mut *self.out;
        if let Some(small) = u8::try_from(argument).ok().filter(|small| *small < 24) {
            out.push(0x20 | small);
        } else if let Ok(byte) = i8::try_from(argument) {
            out.push(0x38);
            out.extend_from_slice(&byte.to_be_bytes());
        } else if let Ok(short) = i16::try_from(argument) {
            out.push(0x39);
            out.extend_from_slice(&short.to_be_bytes());
        } else if let Ok(word) = i32::try_from(argument) {
            out.push(0x3a);
            out.extend_from_slice(&word.to_be_bytes());
        } else {
            out.push(0x3b);
            out.extend_from_slice(&argument.to_be_bytes());
        }
    }

    fn open(&mut self, json: u8) -> usize {
        self.out.push(json);
        self.out.len() - 1
    }

    /// Sets the count of a map or list, now that it is known.
    fn close(&mut self, start: usize, count: usize, json: u8) {
        if self.is_json() {
            return self.out.push(json);
        }
        let major: u8 = if json == b'}' { 0xa0 } else { 0x80 };
        match u8::try_from(count).ok().filter(|count| *count < 24) {
            Some(count) => {
                if let Some(first) = self.out.get_mut(start) {
                    *first = major | count;
                }
            }
            None => {
                let mut wide = Vec::with_capacity(9);
                let is_map = json == b'}';
                let header =
                    if is_map { Header::Map(Some(count)) } else { Header::Array(Some(count)) };
                head(&mut wide, header);
                self.out.splice(start..=start, wide);
            }
        }
    }

    fn comma(&mut self, count: usize) {
        if count > 0 && self.is_json() {
            self.out.push(b',');
        }
    }

    fn colon(&mut self) {
        if self.is_json() {
            self.out.push(b':');
        }
    }

    fn key<E: serde::de::Error>(&mut self, key: &str) -> Result<(), E> {
        if key.is_empty() && !self.is_json() {
            return Err(E::custom("a key is empty, which no Beat can read"));
        }
        self.text(key);
        self.colon();
        Ok(())
    }
}

/// One value of any kind; a seed and a visitor at once.
struct Any<'s, 'a>(&'s mut EventOut<'a>);
/// The same for an object alone.
struct Object<'s, 'a>(&'s mut EventOut<'a>);
/// Where a key was written: `(start, end)`.
struct Key<'s, 'a>(&'s mut EventOut<'a>);

impl<'de> DeserializeSeed<'de> for Any<'_, '_> {
    type Value = ();
    fn deserialize<D: serde::Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> DeserializeSeed<'de> for Key<'_, '_> {
    type Value = (usize, usize);
    fn deserialize<D: serde::Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Key<'_, '_> {
    type Value = (usize, usize);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: serde::de::Error>(self, key: &str) -> Result<Self::Value, E> {
        let start = self.0.out.len();
        self.0.key(key)?;
        Ok((start, self.0.out.len()))
    }
}

fn entries<'de, A: MapAccess<'de>>(sink: &mut EventOut<'_>, mut map: A) -> Result<(), A::Error> {
    let start = sink.open(b'{');
    let mut count = 0;
    loop {
        let before = sink.out.len();
        sink.comma(count);
        let Some((from, to)) = map.next_key_seed(Key(sink))? else {
            sink.out.truncate(before);
            break;
        };
        if let Err(error) = map.next_value_seed(Any(sink)) {
            let key = sink.out.get(from..to).unwrap_or_default();
            let key = if sink.encoding == Encoding::Cbor { after_head(key) } else { key };
            sink.trail.push(String::from_utf8_lossy(key).trim_matches(['"', ':']).to_owned());
            return Err(error);
        }
        count += 1;
    }
    sink.close(start, count, b'}');
    Ok(())
}

/// A text without its CBOR head.
fn after_head(item: &[u8]) -> &[u8] {
    let skip = match item.first().map_or(0, |first| first & 0x1f) {
        24 => 2,
        25 => 3,
        26 => 5,
        27 => 9,
        _ => 1,
    };
    item.get(skip..).unwrap_or_default()
}

impl<'de> Visitor<'de> for Any<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        let null: &[u8] = if self.0.is_json() { b"null" } else { &[0xf6] };
        self.0.out.extend_from_slice(null);
        Ok(())
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        match self.0.encoding {
            Encoding::Json => self.0.json(&value),
            Encoding::Cbor => self.0.out.push(0xf4 | u8::from(value)),
        }
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.0.signed(value);
        Ok(())
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<(), E> {
        match self.0.encoding {
            Encoding::Json if i64::try_from(value).is_err() => {
                return Err(E::custom(format!("{value} is read as a negative number in layout 0")));
            }
            Encoding::Json => self.0.json(&value),
            Encoding::Cbor => head(self.0.out, Header::Positive(value)),
        }
        Ok(())
    }

    fn visit_f64<E>(self, value: f64) -> Result<(), E> {
        match self.0.encoding {
            Encoding::Json => self.0.json(&value),
            Encoding::Cbor => {
                self.0.out.push(0xfb);
                self.0.out.extend_from_slice(&value.to_be_bytes());
            }
        }
        Ok(())
    }

    fn visit_str<E>(self, value: &str) -> Result<(), E> {
        self.0.text(value);
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        entries(self.0, map)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let sink = self.0;
        let start = sink.open(b'[');
        let mut count = 0;
        loop {
            let before = sink.out.len();
            sink.comma(count);
            if list.next_element_seed(Any(sink))?.is_none() {
                sink.out.truncate(before);
                break;
            }
            count += 1;
        }
        sink.close(start, count, b']');
        Ok(())
    }
}

impl<'de> Visitor<'de> for Object<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        entries(self.0, map)
    }
}

/// Why an event can't be written.
enum NoEvent {
    /// The body is not JSON at all.
    NoJson(String),
    Other(String),
}

/// The JSON object in `text`, as it is stored.
fn object(sink: &mut EventOut<'_>, text: &[u8]) -> Result<(), NoEvent> {
    let mut json = serde_json::Deserializer::from_slice(text);
    let outcome = json.deserialize_map(Object(sink)).and_then(|()| json.end());
    outcome.map_err(|error| {
        let keys = sink.trail.iter().rev().map(String::as_str);
        let path: Vec<&str> = std::iter::once("fields").chain(keys).collect();
        let text = format!("{}: {error}", path.join("."));
        if error.is_data() { NoEvent::Other(text) } else { NoEvent::NoJson(text) }
    })
}

/// The body in the field `message`, as it is.
fn line(sink: &mut EventOut<'_>, body: &[u8]) {
    let start = sink.open(b'{');
    sink.text(MESSAGE);
    sink.colon();
    match std::str::from_utf8(body) {
        Ok(text) => sink.text(text),
        Err(_) if sink.is_json() => sink.text(&STANDARD.encode(body)),
        Err(_) => {
            head(sink.out, Header::Bytes(Some(body.len())));
            sink.out.extend_from_slice(body);
        }
    }
    sink.close(start, 1, b'}');
}

/// What headers and id say about the event.
#[derive(Default)]
struct Extra {
    flags: u64,
    meta: Map<String, Value>,
    /// Headers of ours say that this was an event before.
    is_event: bool,
}

fn extra(draft: &Draft<'_>, max_flags: u64, holds_key: bool) -> Result<Extra, String> {
    let mut found = Extra::default();
    let mut named = Vec::new();
    for (name, value) in headers::iterate(draft.headers) {
        let text = String::from_utf8_lossy(value);
        match name {
            META => {
                found.meta = serde_json::from_slice(value)
                    .map_err(|error| format!("header beats.meta: {error}; give a JSON object"))?;
            }
            FLAGS => {
                let flags = text.parse().ok().filter(|flags| *flags <= max_flags);
                found.flags = flags.ok_or_else(|| {
                    format!("header beats.flags is {text:?}; give a number from 0 to {max_flags}")
                })?;
            }
            PAYLOAD => {}
            _ => named.push((String::from_utf8_lossy(name).into_owned(), text.into_owned())),
        }
        found.is_event |= name == META || name == FLAGS;
    }
    for (name, text) in named {
        if name.as_bytes() == ID || name == MARK || name == KEY {
            return Err(format!("format beats has no place for a header called {name}"));
        }
        found.meta.insert(name, Value::String(text));
    }
    if !draft.id.is_empty() {
        let id = String::from_utf8_lossy(draft.id).into_owned();
        found.meta.insert(String::from_utf8_lossy(ID).into_owned(), Value::String(id));
    }
    if holds_key && !draft.key.is_empty() {
        let key = String::from_utf8_lossy(draft.key).into_owned();
        found.meta.insert(KEY.to_owned(), Value::String(key));
    }
    Ok(found)
}

/// The event: four keys in the original's order. With `mark` the body is not a JSON object.
fn event(
    sink: &mut EventOut<'_>,
    draft: &Draft<'_>,
    extra: &Extra,
    mark: Option<Raw>,
) -> Result<(), NoEvent> {
    let start = sink.open(b'{');
    let name = |sink: &mut EventOut<'_>, index: usize, name: &str| {
        sink.comma(index);
        sink.text(name);
        sink.colon();
    };
    name(sink, 0, "timestamp");
    sink.signed(draft.timestamp_ns);
    name(sink, 1, "flags");
    sink.signed(i64::try_from(extra.flags).unwrap_or(0));
    name(sink, 2, "meta");
    let inner = sink.open(b'{');
    let mut count = 0;
    for (name, value) in &extra.meta {
        sink.comma(count);
        let written = sink.key::<serde_json::Error>(name);
        written.and_then(|()| value.deserialize_any(Any(sink))).map_err(|error| {
            sink.trail.push(name.clone());
            let path: Vec<&str> = sink.trail.iter().rev().map(String::as_str).collect();
            NoEvent::Other(format!("meta.{}: {error}", path.join(".")))
        })?;
        count += 1;
    }
    if let Some(mark) = mark {
        name(sink, count, MARK);
        sink.text(mark.name());
        count += 1;
    }
    sink.close(inner, count, b'}');
    name(sink, 3, "fields");
    match mark {
        None => object(sink, draft.body)?,
        Some(_) => line(sink, draft.body),
    }
    sink.close(start, 4, b'}');
    Ok(())
}

/// Appends the event that the draft becomes. With `holds_key`, the message's key is part of it.
pub fn encode(
    draft: &Draft<'_>,
    encoding: Encoding,
    max_flags: u64,
    holds_key: bool,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    if !draft.tag.is_empty() {
        return Err("format beats has no place for a tag".into());
    }
    let before = out.len();
    let mut sink = EventOut { out, encoding, trail: Vec::new() };
    let is_bare = draft.headers.is_empty() && draft.id.is_empty();
    let extra = match is_bare && (draft.key.is_empty() || !holds_key) {
        true => Extra::default(),
        false => extra(draft, max_flags, holds_key)?,
    };
    let begins = draft.body.iter().find(|byte| !byte.is_ascii_whitespace());
    if extra.is_event || begins == Some(&b'{') {
        match event(&mut sink, draft, &extra, None) {
            Ok(()) => return Ok(()),
            Err(NoEvent::NoJson(_)) if !extra.is_event => sink.out.truncate(before),
            Err(NoEvent::NoJson(text) | NoEvent::Other(text)) => return Err(text),
        }
    }
    let is_text = encoding == Encoding::Cbor || std::str::from_utf8(draft.body).is_ok();
    let mark = if is_text { Raw::Plain } else { Raw::Base64 };
    match event(&mut sink, draft, &extra, Some(mark)) {
        Ok(()) => Ok(()),
        Err(NoEvent::NoJson(text) | NoEvent::Other(text)) => Err(text),
    }
}
