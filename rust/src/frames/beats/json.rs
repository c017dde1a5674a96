//! Reading an event in JSON (version 0): meta and fields are taken as they stand.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::event::Event;

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
struct Named<'a> {
    #[serde(rename = "_id", borrow)]
    id: Option<&'a RawValue>,
}

/// Reads the event in `bytes`; what is no UTF-8 becomes U+FFFD.
pub fn decode(bytes: &[u8], event: &mut Event) -> Result<(), String> {
    let text = String::from_utf8_lossy(bytes);
    let stored: Stored<'_> = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    event.timestamp_ns = stored.timestamp;
    event.flags = stored.flags;
    object("meta", stored.meta, &mut event.meta)?;
    object("fields", stored.fields, &mut event.fields)?;
    if event.meta.len() > 2 {
        let named: Named<'_> =
            serde_json::from_slice(&event.meta).map_err(|error| error.to_string())?;
        let id = named.id.and_then(|id| serde_json::from_str::<String>(id.get()).ok());
        event.id.extend_from_slice(id.unwrap_or_default().as_bytes());
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
