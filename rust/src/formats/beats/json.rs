//! Reading an event in JSON (version 0): meta and fields are taken as they stand.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::event::{Event, MARK, Raw};
use crate::bytes::headers;

#[derive(Deserialize)]
struct Stored<'a> {
    #[serde(default)]
    timestamp: i64,
    #[serde(default)]
    flags: u64,
    #[serde(borrow)]
    meta: Option<&'a RawValue>,
    #[serde(borrow)]
    fields: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    message: Cow<'a, str>,
}

/// Reads the event in `bytes`; what is not UTF-8 becomes U+FFFD.
pub fn decode(bytes: &[u8], event: &mut Event) -> Result<(), String> {
    let text = String::from_utf8_lossy(bytes);
    let stored: Stored<'_> = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    event.timestamp_ns = stored.timestamp;
    event.flags = stored.flags;
    object("meta", stored.meta, &mut event.meta)?;
    object("fields", stored.fields, &mut event.fields)?;
    if event.meta.len() > 2 { note(event) } else { Ok(()) }
}

/// Notes the texts of the meta: the id, the mark, what may be headers.
fn note(event: &mut Event) -> Result<(), String> {
    let mut meta: Map<String, Value> =
        serde_json::from_slice(&event.meta).map_err(|error| error.to_string())?;
    if let Some(Value::String(id)) = meta.get("_id") {
        event.id.extend_from_slice(id.as_bytes());
    }
    let mark = meta.get(MARK).and_then(Value::as_str);
    event.raw = mark.and_then(|mark| Raw::find(mark.as_bytes()));
    let Some(raw) = event.raw else { return Ok(()) };
    meta.shift_remove(MARK);
    for (name, text) in meta.iter().filter(|(name, _)| *name != "_id") {
        let text = text.as_str().unwrap_or_default();
        headers::push(&mut event.named, name.as_bytes(), text.as_bytes());
    }
    event.meta = serde_json::to_vec(&meta).map_err(|error| error.to_string())?;
    let body = serde_json::from_slice::<Line<'_>>(&event.fields).ok();
    let body = body.and_then(|line| match raw {
        Raw::Plain => Some(line.message.into_owned().into_bytes()),
        Raw::Base64 => STANDARD.decode(line.message.as_bytes()).ok(),
    });
    match body {
        Some(body) => event.fields = body,
        None => event.raw = None, // Another program has changed the fields.
    }
    Ok(())
}

fn object(name: &str, found: Option<&RawValue>, out: &mut Vec<u8>) -> Result<(), String> {
    let text = found.map_or("{}", RawValue::get);
    match text.as_bytes().first() {
        Some(b'{') => out.extend_from_slice(text.as_bytes()),
        Some(b'n') => out.extend_from_slice(b"{}"),
        _ => return Err(format!("{name} is no object")),
    }
    Ok(())
}
