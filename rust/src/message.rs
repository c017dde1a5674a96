//! `penstock.Message`: what a user puts and gets. Fields are read from the frame when asked for.

use std::borrow::Cow;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, OnceLock};

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};

use crate::bytes::headers;
use crate::errors;
use crate::segment::Segment;
use crate::segment::frame::{Draft, FrameView, NO_NUMBER, NO_TIME, Span};
use crate::segment::message_bytes::MessageBytes;
use crate::sys::memory;
use crate::sys::reuse::{Changing, Reusable};

/// One message of a queue. What its fields give are copies: you may keep them when the queue is
/// closed.
#[pyclass(frozen, module = "penstock")]
pub struct Message(Changing<MessageParts>);

/// What a message is made of.
pub struct MessageParts {
    /// Where its bytes are.
    pub content: MessageBytes,
    /// Where it is in its queue, and how it was handed out.
    pub lease: Lease,
    /// Who handed it out; none where there is nothing to ack.
    pub leases: Option<Arc<dyn Leases>>,
    /// What `value` decodes with.
    pub codec: OnceLock<Py<PyAny>>,
}

/// The offset of a message that is in no queue yet.
const NOWHERE: u64 = u64::MAX;

impl Deref for Message {
    type Target = MessageParts;

    #[inline(always)]
    fn deref(&self) -> &MessageParts {
        &self.0
    }
}

impl DerefMut for Message {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut MessageParts {
        &mut self.0
    }
}

impl MessageParts {
    /// Nothing yet.
    #[inline(always)]
    pub fn empty() -> Self {
        let (content, lease) = (MessageBytes::default(), Lease::none(NOWHERE));
        Self { content, lease, leases: None, codec: OnceLock::new() }
    }

    /// Takes the message out.
    pub fn take(&mut self) -> Message {
        Message(Changing::new(std::mem::replace(self, Self::empty())))
    }

    /// Takes out what the next message of the same group may have, and what else Python knows of.
    #[inline(always)]
    pub fn leave(&mut self) -> Left {
        let segment = self.content.take_segment();
        Left { segment, leases: self.leases.take(), _codec: self.codec.take() }
    }
}

/// What a message that nobody has any more leaves to the next one. Counted references, which are
/// dear to count: other threads may do so at the same time.
#[derive(Default)]
pub struct Left {
    /// Where it was.
    pub segment: Option<Arc<Segment>>,
    /// Who had handed it out.
    pub leases: Option<Arc<dyn Leases>>,
    _codec: Option<Py<PyAny>>,
}

impl Reusable for Message {
    type Value = MessageParts;

    #[inline(always)]
    fn inside(&self) -> &Changing<MessageParts> {
        &self.0
    }
}

impl Message {
    /// Room for one.
    #[inline(always)]
    pub fn empty() -> Self {
        Self(Changing::new(MessageParts::empty()))
    }

    /// A message that was found at `offset`.
    #[inline]
    pub fn found(offset: u64, content: MessageBytes) -> Self {
        Self::claimed(Lease::none(offset), content)
    }

    /// A message that a consumer gets. The caller sets its group, if it has a lease.
    #[inline(always)]
    pub fn claimed(lease: Lease, content: MessageBytes) -> Self {
        Self(Changing::new(MessageParts { content, lease, leases: None, codec: OnceLock::new() }))
    }

    /// The message as a Python object that the collector of cycles leaves alone: it would find
    /// nothing to follow, and go through every message of a long list again and again.
    #[inline]
    pub fn into_object(self, py: Python<'_>) -> PyResult<Bound<'_, Self>> {
        Bound::new(py, self).inspect(memory::untrack)
    }

    /// One of its words: `span` takes it from the view.
    fn word<'py>(
        &self,
        py: Python<'py>,
        span: fn(&FrameView) -> Span,
    ) -> PyResult<Option<Bound<'py, PyString>>> {
        let span = span(&*self.view(py)?);
        let bytes = self.content.bytes(span);
        let word = PyString::new(py, &String::from_utf8_lossy(bytes));
        self.check(py, bytes)?;
        Ok(Some(word).filter(|_| span.len > 0))
    }

    /// An error if its file was cut short, after `bytes` were read from there.
    #[inline]
    fn check(&self, py: Python<'_>, bytes: &[u8]) -> PyResult<()> {
        self.content.cut(bytes).map_or(Ok(()), |path| Err(errors::vanished(py, path)))
    }

    /// An error if its file was cut short: it can't be put anywhere else.
    pub fn check_whole(&self, py: Python<'_>) -> PyResult<()> {
        self.check(py, self.content.bytes(self.content.body()))
    }

    fn view(&self, py: Python<'_>) -> PyResult<Cow<'_, FrameView>> {
        let view = self.content.view();
        self.check(py, if view.size == 0 && self.offset().is_some() { &[0] } else { &[] })?;
        Ok(view)
    }

    /// The message as something to append.
    pub fn draft(&self) -> Draft<'_> {
        let view = self.content.view();
        Draft {
            body: self.content.bytes(view.body),
            tag: self.content.bytes(view.tag),
            id: self.content.bytes(view.id),
            key: self.content.bytes(view.key),
            headers: self.content.bytes(view.headers),
            timestamp_ns: view.timestamp_ns,
            due_ns: view.due_ns,
        }
    }

    fn leases(&self, py: Python<'_>) -> PyResult<&dyn Leases> {
        let why = "this message was not handed out by a group: there is nothing to ack";
        self.leases.as_deref().ok_or_else(|| errors::error(py, "ReceiptError", (why,)))
    }

    /// Acks or gives back, if the lease still runs.
    fn end(&self, py: Python<'_>, leases: &dyn Leases, is_done: bool) -> PyResult<()> {
        let runs = || leases.is_leased(py, self.lease);
        if !runs()? {
            return Ok(());
        }
        let ended = match is_done {
            true => leases.ack(py, self.lease),
            false => leases.nack(py, self.lease, 0.0),
        };
        // The lease may have ended between the two.
        ended.or_else(|error| if runs()? { Err(error) } else { Ok(()) })
    }
}

/// A message that was handed out once: the next time it has another token.
#[derive(Clone, Copy)]
pub struct Lease {
    /// The number of its entry in the group's table.
    pub entry: u32,
    /// How often the message was handed out, this time included.
    pub receives: u32,
    /// The token of this lease; 0: there is none, the message was read without one.
    pub token: u64,
    /// The message.
    pub offset: u64,
}

impl Lease {
    /// The lease of a message that nobody has to ack.
    #[inline(always)]
    pub const fn none(offset: u64) -> Self {
        Self { entry: 0, receives: 0, token: 0, offset }
    }

    /// As text, to be given back later, also in another process.
    pub fn text(&self) -> String {
        let Self { entry, token, offset, .. } = self;
        format!("{entry:x}-{token:x}-{offset:x}")
    }

    /// The lease that a text names.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let entry = u32::from_str_radix(parts.next()?, 16).ok()?;
        let token = u64::from_str_radix(parts.next()?, 16).ok()?;
        let offset = u64::from_str_radix(parts.next()?, 16).ok()?;
        parts.next().is_none().then_some(Self { entry, receives: 0, token, offset })
    }
}

/// Who hands messages out on leases, and takes them back.
pub trait Leases: Send + Sync {
    /// Acks the message: it is done.
    fn ack(&self, py: Python<'_>, lease: Lease) -> PyResult<()>;

    /// Gives the message back to the queue, now or after `delay_s`.
    fn nack(&self, py: Python<'_>, lease: Lease, delay_s: f64) -> PyResult<()>;

    /// Makes the lease run for `seconds` from now.
    fn extend(&self, py: Python<'_>, lease: Lease, seconds: f64) -> PyResult<()>;

    /// Whether the lease still runs. Without the lock a yes may be out of date, and a no may come
    /// from a table that is being made anew.
    fn is_leased(&self, py: Python<'_>, lease: Lease) -> PyResult<bool>;
}

/// A body: bytes, or anything with a buffer.
pub enum Body<'py> {
    /// Bytes, used as they are.
    Bytes(Bound<'py, PyBytes>),
    /// A copy of what is in a buffer.
    Copied(Vec<u8>),
}

impl<'py> Body<'py> {
    /// The bytes of `value`; an error for what has none.
    pub fn of(value: &Bound<'py, PyAny>) -> PyResult<Self> {
        if let Ok(bytes) = value.cast::<PyBytes>() {
            return Ok(Self::Bytes(bytes.clone()));
        }
        let text = if value.is_instance_of::<Message>() {
            "put() takes a body, and put_many() takes messages: put_many([message])"
        } else {
            "a body is bytes (or a bytes-like object); use codec= for other objects"
        };
        let buffer = PyBuffer::<u8>::get(value).map_err(|_| PyTypeError::new_err(text))?;
        Ok(Self::Copied(buffer.to_vec(value.py())?))
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes.as_bytes(),
            Self::Copied(bytes) => bytes,
        }
    }
}

/// The UTF-8 of a text that belongs to a message; none is empty. A text with a lone surrogate has
/// no UTF-8: Python makes such texts of file names in other encodings.
#[inline]
pub fn utf8<'a>(name: &str, text: Option<&'a Bound<'_, PyString>>) -> PyResult<&'a [u8]> {
    let Some(text) = text else { return Ok(&[]) };
    let expected = "text that UTF-8 can hold, without a lone surrogate";
    let refused = |_| errors::error(text.py(), "OptionError", (name, text, expected));
    text.to_str().map(str::as_bytes).map_err(refused)
}

/// Headers in wire form.
pub fn encode_headers(headers: Option<&Bound<'_, PyDict>>) -> PyResult<Vec<u8>> {
    let mut out = Vec::new();
    for (key, value) in headers.into_iter().flatten() {
        let (Ok(key), Ok(value)) = (key.cast::<PyString>(), value.cast::<PyString>()) else {
            let text =
                format!("headers are text to text; found {}: {}", key.repr()?, value.repr()?);
            return Err(PyTypeError::new_err(text));
        };
        let (name, value) = (utf8("headers", Some(key))?, utf8("headers", Some(value))?);
        let pushed = headers::push(&mut out, name, value);
        pushed.ok_or_else(|| {
            errors::refused(key.py(), "a header's name has more than 65535 bytes")
        })?;
    }
    Ok(out)
}

/// The beginning of a body, for people: as text where it is text, else as bytes; in quotes, with
/// everything escaped that a terminal would obey.
fn preview(body: &[u8]) -> String {
    const SHOWN_BYTES: usize = 60;
    let shown = body.get(..SHOWN_BYTES).unwrap_or(body);
    let more = if shown.len() < body.len() { "…" } else { "" };
    // A character that was cut in two at the end is left out; anything else is not text.
    let whole = match std::str::from_utf8(shown) {
        Err(error) if error.error_len().is_none() && !more.is_empty() => error.valid_up_to(),
        _ => shown.len(),
    };
    let text = shown.get(..whole).and_then(|whole| std::str::from_utf8(whole).ok());
    let is_odd = |c: char| c.is_control() && !matches!(c, '\t' | '\n' | '\r');
    match text.filter(|text| !text.contains(is_odd)) {
        Some(text) => format!("{text:?}{more}"),
        None => format!("b\"{}\"{more}", shown.escape_ascii()),
    }
}

#[pymethods]
impl Message {
    /// A message to put: `body` and what belongs to it.
    #[new]
    #[pyo3(signature = (body, *, tag=None, id=None, key=None, headers=None, timestamp_ns=None, due_ns=None))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        body: &Bound<'_, PyAny>,
        tag: Option<&Bound<'_, PyString>>,
        id: Option<&Bound<'_, PyString>>,
        key: Option<&Bound<'_, PyString>>,
        headers: Option<&Bound<'_, PyDict>>,
        timestamp_ns: Option<i64>,
        due_ns: Option<i64>,
    ) -> PyResult<Self> {
        let texts = [utf8("tag", tag)?, utf8("id", id)?, utf8("key", key)?];
        let (body, headers) = (Body::of(body)?, encode_headers(headers)?);
        let body = body.bytes();
        let len = body.len() + headers.len();
        if !memory::has_room(len.saturating_mul(4)) {
            return Err(memory::none_left(len));
        }
        let mut owned = Vec::new();
        let mut add = |part: &[u8]| {
            let span = Span::new(owned.len(), part.len());
            owned.extend_from_slice(part);
            span
        };
        let [tag, id, key] = texts.map(&mut add);
        let (headers, body) = (add(&headers), add(body));
        let view = FrameView {
            tag,
            id,
            key,
            headers,
            body,
            timestamp_ns: timestamp_ns.unwrap_or(NO_TIME),
            due_ns: due_ns.unwrap_or(0),
            owned: Some(owned.into()),
            ..FrameView::default()
        };
        Ok(Self::found(NOWHERE, MessageBytes::new(view)))
    }

    /// Where it is in its queue.
    #[getter]
    fn offset(&self) -> Option<u64> {
        Some(self.lease.offset).filter(|offset| *offset != NOWHERE)
    }

    /// How many messages were put before it, as its format counts them.
    #[getter]
    fn number(&self, py: Python<'_>) -> PyResult<Option<i64>> {
        Ok(Some(self.view(py)?.number).filter(|number| *number != NO_NUMBER))
    }

    /// When it was put, ns since 1970.
    #[getter]
    fn timestamp_ns(&self, py: Python<'_>) -> PyResult<Option<i64>> {
        Ok(Some(self.view(py)?.timestamp_ns).filter(|time| *time != NO_TIME))
    }

    /// When it was put, as a `datetime` in UTC, to the microsecond; none where there is no time.
    #[getter]
    fn timestamp<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(ns) = self.timestamp_ns(py)? else { return Ok(None) };
        py.import("penstock.clock")?.call_method1("moment", (ns,)).map(Some)
    }

    /// Nobody gets it before this time, ns since 1970.
    #[getter]
    fn due_ns(&self, py: Python<'_>) -> PyResult<Option<i64>> {
        Ok(Some(self.view(py)?.due_ns).filter(|due| *due != 0))
    }

    /// The sender's name for it.
    #[getter]
    fn id<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyString>>> {
        self.word(py, |view| view.id)
    }

    /// The label that filters look at.
    #[getter]
    fn tag<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyString>>> {
        self.word(py, |view| view.tag)
    }

    /// Messages with one key are handed out one at a time, in order.
    #[getter]
    fn key<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyString>>> {
        self.word(py, |view| view.key)
    }

    /// Headers, a new dict at each call.
    #[getter]
    fn headers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        let bytes = self.content.bytes(self.view(py)?.headers);
        for (key, value) in headers::iterate(bytes) {
            dict.set_item(String::from_utf8_lossy(key), String::from_utf8_lossy(value))?;
        }
        self.check(py, bytes)?;
        Ok(dict)
    }

    /// The user's bytes.
    #[getter]
    pub fn body<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self.content.bytes(self.content.body());
        let body = memory::bytes_object(py, bytes)?;
        self.check(py, body.as_bytes())?;
        Ok(body)
    }

    /// The body as text, which must be UTF-8: else `CodecError`.
    #[getter]
    fn text<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        match std::str::from_utf8(self.body(py)?.as_bytes()) {
            Ok(text) => Ok(PyString::new(py, text)),
            Err(error) => {
                let why = format!("the body is not UTF-8 text: {error}; see message.body");
                Err(errors::error(py, "CodecError", (why,)))
            }
        }
    }

    /// The value of the body, which must be JSON: else `CodecError`.
    fn json<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let value = py.import("json")?.call_method1("loads", (self.body(py)?,));
        value.map_err(|error| {
            let why = format!("the body is not JSON: {}; see message.body", error.value(py));
            errors::error(py, "CodecError", (why,))
        })
    }

    /// The object that was put, by the queue's codec; without one, the body.
    #[getter]
    fn value<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self.codec.get() {
            None => Ok(self.body(py)?.into_any()),
            Some(codec) => codec.bind(py).call_method1("decode", (self.body(py)?,)),
        }
    }

    /// `value` decodes with this codec from now on, unless it has one.
    fn use_codec(&self, codec: Py<PyAny>) {
        let _ = self.codec.set(codec);
    }

    /// The bytes inside the frame, still encoded, compressed or encrypted.
    #[getter]
    fn payload<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let payload = memory::bytes_object(py, &self.content.payload())?;
        self.check(py, payload.as_bytes())?;
        Ok(payload)
    }

    /// How often it was handed out in its group, this time included.
    #[getter]
    fn receives(&self) -> u32 {
        self.lease.receives
    }

    /// Proof of the lease, as text; none without one.
    #[getter]
    fn receipt(&self) -> Option<String> {
        self.leases.as_ref().map(|_| self.lease.text())
    }

    /// It is done and never comes back. Without a lease (`ack="auto"`) there is nothing to do.
    fn ack(&self, py: Python<'_>) -> PyResult<()> {
        self.leases(py)?.ack(py, self.lease)
    }

    /// It could not be handled: hand it out again, after `delay` seconds.
    #[pyo3(signature = (delay = 0.0))]
    fn nack(&self, py: Python<'_>, delay: f64) -> PyResult<()> {
        self.leases(py)?.nack(py, self.lease, delay)
    }

    /// Keep it for another `seconds` from now.
    fn extend(&self, py: Python<'_>, seconds: f64) -> PyResult<()> {
        self.leases(py)?.extend(py, self.lease, seconds)
    }

    /// At the end of a loop's body: acks what is still leased (`done`), or gives it back.
    fn settle(&self, py: Python<'_>, done: bool) -> PyResult<()> {
        self.leases.as_deref().map_or(Ok(()), |leases| self.end(py, leases, done))
    }

    /// Refused, with what to send instead: a lease stays with the process that has it.
    fn __reduce__(&self) -> PyResult<()> {
        let advice = "a message can't be pickled or copied: send its body, and its receipt, with \
                      which group.ack(receipt) works in any process";
        Err(PyTypeError::new_err(advice))
    }

    fn __repr__(&self) -> String {
        let offset = self.offset().map_or_else(|| "new".to_owned(), |offset| offset.to_string());
        let tag = String::from_utf8_lossy(self.content.bytes(self.content.view().tag)).into_owned();
        let tag = if tag.is_empty() { tag } else { format!(" tag={tag:?}") };
        let body = self.content.bytes(self.content.body());
        format!("<Message {offset}{tag} {} bytes: {}>", body.len(), preview(body))
    }

    fn __len__(&self) -> usize {
        self.content.body().len as usize
    }
}
