//! An event between its encoding and a message: fields are the body, meta and flags are headers.
//!
//! A body that is not a JSON object goes as a log line does, in the field `message`; a mark in the
//! meta says so, and then body and headers come back as they were put.

use std::cell::RefCell;
use std::sync::Arc;

use crate::bytes::headers;
use crate::segment::frame::{FrameView, Span};

/// The header that holds the event's meta, as JSON.
pub const META: &[u8] = b"beats.meta";
/// The header that holds the event's flags, as a decimal number.
pub const FLAGS: &[u8] = b"beats.flags";
/// The key of the meta that is the message's id.
pub const ID: &[u8] = b"_id";

/// The key of the meta that says how a body that is not a JSON object stands in `message`.
pub const MARK: &str = "penstock.body";
/// The key of the meta that is the message's key, in encrypted segments: beside them it would stand
/// for everyone to read.
pub const KEY: &str = "penstock.key";
/// The header of a message that is copied from another queue: the event as it was encoded there, in
/// base64. It is never stored as a header.
pub const PAYLOAD: &[u8] = b"beats.payload";
/// The field that such a body is in.
pub const MESSAGE: &str = "message";

/// How a body that is not a JSON object is stored.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Raw {
    /// As it is: a text, or in CBOR a byte string.
    Plain,
    /// In base64, where the encoding knows texts only.
    Base64,
}

impl Raw {
    /// As the mark says it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Base64 => "base64",
        }
    }

    /// What a mark means.
    pub fn find(name: &[u8]) -> Option<Self> {
        [Self::Plain, Self::Base64].into_iter().find(|raw| raw.name().as_bytes() == name)
    }
}

/// What was decoded: JSON texts and plain values. Reused from event to event.
#[derive(Default)]
pub struct Event {
    /// Nanoseconds since 1970.
    pub timestamp_ns: i64,
    /// Bit 0: guaranteed send.
    pub flags: u64,
    /// A JSON object.
    pub meta: Vec<u8>,
    /// A JSON object.
    pub fields: Vec<u8>,
    /// The text of meta's `_id`.
    pub id: Vec<u8>,
    /// The message's key, where it is in the event.
    pub key: Vec<u8>,
    /// The other texts of meta, as headers.
    pub named: Vec<u8>,
    /// Set by the mark: `fields` is the body itself, and `named` are the headers.
    pub raw: Option<Raw>,
}

thread_local! {
    static EVENT: RefCell<Event> = RefCell::default();
    static OWNED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Event {
    fn clear(&mut self) {
        (self.timestamp_ns, self.flags, self.raw) = (0, 0, None);
        self.named.clear();
        self.meta.clear();
        self.fields.clear();
        self.id.clear();
        self.key.clear();
    }

    fn view(&self, owned: &mut Vec<u8>) -> Option<FrameView> {
        owned.clear();
        let mut fields: &[u8] = &self.fields;
        if self.raw.is_some() {
            owned.extend_from_slice(&self.named);
        } else {
            let meta: &[u8] = if self.meta.is_empty() { b"{}" } else { &self.meta };
            fields = if fields.is_empty() { b"{}" } else { fields };
            headers::push(owned, META, meta)?;
            let mut digits = [0u8; 20];
            headers::push(owned, FLAGS, decimal(self.flags, &mut digits))?;
        }
        let headers = Span::new(0, owned.len());
        let body = Span::new(owned.len(), fields.len());
        owned.extend_from_slice(fields);
        let id = Span::new(owned.len(), self.id.len());
        owned.extend_from_slice(&self.id);
        let key = Span::new(owned.len(), self.key.len());
        owned.extend_from_slice(&self.key);
        let timestamp_ns = self.timestamp_ns;
        let owned = Some(Arc::from(owned.as_slice()));
        Some(FrameView { timestamp_ns, id, key, headers, body, owned, ..FrameView::default() })
    }
}

/// `value` in decimal, at the end of `digits`.
fn decimal(mut value: u64, digits: &mut [u8; 20]) -> &[u8] {
    let mut at = digits.len();
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + u8::try_from(value % 10).unwrap_or(0);
        value /= 10;
        at -= 1;
        if value == 0 {
            break;
        }
    }
    digits.get(at..).unwrap_or_default()
}

/// The message that `decode` makes of an event.
pub fn message(decode: impl FnOnce(&mut Event) -> Result<(), String>) -> Result<FrameView, String> {
    EVENT.with_borrow_mut(|event| {
        event.clear();
        decode(event)?;
        let view = OWNED.with_borrow_mut(|owned| event.view(owned));
        view.ok_or_else(|| "an event larger than a message may be".to_owned())
    })
}
