//! Go's gob, as far as VQS needs it: one `Message` per record, written by an encoder of its own.
//!
//! ```text
//! Message   { Id string, Body string, Attributes, SystemAttributes map[string]Attribute,
//!             DelaySeconds uint }
//! Attribute { DataType string, Value []byte }
//! ```
//! A record is a stream of its own: three type descriptors, then the value. What we write has the
//! type ids 65 to 67 (`TYPES`); what we read says its own ids, and we follow those. Everything is
//! bounded by the record: a count never allocates, a type never refers deeper than `MAX_DEPTH`.

use std::borrow::Cow;

/// The three type descriptors, as the original's encoder writes them.
pub const TYPES: &[u8; 175] = b"\
\x5c\xff\x81\x03\x01\x01\x07Message\x01\xff\x82\x00\x01\x05\x01\x02Id\x01\x0c\x00\x01\x04Body\x01\
\x0c\x00\x01\x0aAttributes\x01\xff\x86\x00\x01\x10SystemAttributes\x01\xff\x86\x00\x01\x0cDelaySeconds\
\x01\x06\x00\x00\x00\
\x2d\xff\x85\x04\x01\x01\x1cmap[string]storage.Attribute\x01\xff\x86\x00\x01\x0c\x01\xff\x84\x00\x00\
\x23\xff\x83\x03\x01\x02\xff\x84\x00\x01\x02\x01\x08DataType\x01\x0c\x00\x01\x05Value\x01\x0a\x00\x00\x00";
/// The message's type id in `TYPES`, as gob writes a signed number.
const MESSAGE_ID: &[u8; 2] = b"\xff\x82";

const MAX_TYPES: usize = 64;
const MAX_FIELDS: usize = 64;
const MAX_DEPTH: u32 = 16;
/// How many attributes a message has at most, both kinds together. Two bytes of a record make one,
/// which takes thirty times as much memory: without a limit a small gzipped record would fill the
/// memory.
pub const MAX_ATTRIBUTES: usize = 1 << 16;

/// An attribute of a message: the user's, or the system's.
#[derive(Clone, Debug)]
pub struct Attribute<'a> {
    /// From `SystemAttributes`.
    pub is_system: bool,
    /// Its key in the map.
    pub name: &'a [u8],
    /// `DataType`.
    pub kind: &'a [u8],
    /// `Value`.
    pub value: Cow<'a, [u8]>,
}

/// A message, decoded or to be encoded.
#[derive(Default, Debug)]
pub struct Parts<'a> {
    /// `Id`.
    pub id: &'a [u8],
    /// `Body`.
    pub body: &'a [u8],
    /// Both maps.
    pub attributes: Vec<Attribute<'a>>,
    /// `DelaySeconds`.
    pub delay_s: u64,
}

/// Bytes that are no gob of a message: where in the record, and why.
#[derive(Debug)]
pub struct Wrong {
    /// Byte of the record.
    pub at: usize,
    /// What is there.
    pub found: &'static str,
}

type Outcome<T> = Result<T, Wrong>;

// ── encoding ──────────────────────────────────────────────────────────────────────────────────

/// Where encoded bytes go: counted, or stored.
trait GobOut {
    fn put(&mut self, bytes: &[u8]);

    fn uint(&mut self, value: u64) {
        let raw = value.to_be_bytes();
        match u8::try_from(value) {
            Ok(small) if small < 128 => self.put(&[small]),
            _ => {
                let skip = (value.leading_zeros() / 8) as usize;
                // The count of bytes that follow, negated: 0xff for one, 0xf8 for eight.
                self.put(&[u8::try_from(0xf8 + skip).unwrap_or(0xf8)]);
                self.put(raw.get(skip..).unwrap_or_default());
            }
        }
    }

    fn text(&mut self, bytes: &[u8]) {
        self.uint(bytes.len() as u64);
        self.put(bytes);
    }
}

struct Count(usize);

impl GobOut for Count {
    fn put(&mut self, bytes: &[u8]) {
        self.0 = self.0.saturating_add(bytes.len());
    }
}

struct Store<'a> {
    out: &'a mut [u8],
    at: usize,
    is_full: bool,
}

impl GobOut for Store<'_> {
    fn put(&mut self, bytes: &[u8]) {
        self.is_full |= crate::bytes::words::put(self.out, self.at, bytes).is_none();
        self.at = self.at.saturating_add(bytes.len());
    }
}

/// Fields that are present say how far they are from the one before.
struct Deltas(u64);

impl Deltas {
    fn next(&mut self, out: &mut impl GobOut, field: u64) {
        out.uint(field - self.0);
        self.0 = field;
    }
}

fn put_map(parts: &Parts<'_>, is_system: bool, out: &mut impl GobOut) {
    let chosen = || parts.attributes.iter().filter(|one| one.is_system == is_system);
    out.uint(chosen().count() as u64);
    for one in chosen() {
        out.text(one.name);
        let mut deltas = Deltas(0);
        for (field, bytes) in [(1, one.kind), (2, &*one.value)] {
            if !bytes.is_empty() {
                deltas.next(out, field);
                out.text(bytes);
            }
        }
        out.uint(0);
    }
}

fn put_value(parts: &Parts<'_>, out: &mut impl GobOut) {
    out.put(MESSAGE_ID);
    let mut deltas = Deltas(0);
    for (field, bytes) in [(1, parts.id), (2, parts.body)] {
        if !bytes.is_empty() {
            deltas.next(out, field);
            out.text(bytes);
        }
    }
    for (field, is_system) in [(3, false), (4, true)] {
        deltas.next(out, field);
        put_map(parts, is_system, out);
    }
    if parts.delay_s != 0 {
        deltas.next(out, 5);
        out.uint(parts.delay_s);
    }
    out.uint(0);
}

fn value_len(parts: &Parts<'_>) -> usize {
    let mut count = Count(0);
    put_value(parts, &mut count);
    count.0
}

/// Bytes that `encode` takes.
pub fn measure(parts: &Parts<'_>) -> usize {
    let value = value_len(parts);
    let mut prefix = Count(0);
    prefix.uint(value as u64);
    TYPES.len().saturating_add(prefix.0).saturating_add(value)
}

/// Writes the record to `out`, which is as long as `measure` said. None: it is not.
pub fn encode(parts: &Parts<'_>, out: &mut [u8]) -> Option<()> {
    let mut store = Store { out, at: 0, is_full: false };
    store.put(TYPES);
    store.uint(value_len(parts) as u64);
    put_value(parts, &mut store);
    (!store.is_full && store.at == store.out.len()).then_some(())
}

// ── decoding ──────────────────────────────────────────────────────────────────────────────────

const BOOL: i64 = 1;
const UINT: i64 = 3;
const FLOAT: i64 = 4;
const BYTES: i64 = 5;
const STRING: i64 = 6;
const COMPLEX: i64 = 7;

struct Input<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Input<'a> {
    fn wrong<T>(&self, found: &'static str) -> Outcome<T> {
        Err(Wrong { at: self.at, found })
    }

    fn take(&mut self, len: u64) -> Outcome<&'a [u8]> {
        let end = usize::try_from(len).ok().and_then(|len| self.at.checked_add(len));
        match end.and_then(|end| Some((self.bytes.get(self.at..end)?, end))) {
            Some((taken, end)) => {
                self.at = end;
                Ok(taken)
            }
            None => self.wrong("a length past the end of the record"),
        }
    }

    fn uint(&mut self) -> Outcome<u64> {
        let Some(first) = self.bytes.get(self.at).copied() else {
            return self.wrong("the record ends inside a number");
        };
        if first < 128 {
            self.at += 1;
            return Ok(u64::from(first));
        }
        let len = 256 - usize::from(first);
        if len > 8 {
            return self.wrong("a number of more than 8 bytes");
        }
        self.at += 1;
        Ok(self.take(len as u64)?.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    fn int(&mut self) -> Outcome<i64> {
        let raw = self.uint()?;
        let half = (raw >> 1).cast_signed();
        Ok(if raw & 1 == 1 { !half } else { half })
    }

    fn text(&mut self) -> Outcome<&'a [u8]> {
        let len = self.uint()?;
        self.take(len)
    }

    /// The next field of a struct, counted from 1; none at its end.
    fn field(&mut self, last: &mut u64) -> Outcome<Option<u64>> {
        let delta = self.uint()?;
        if delta == 0 {
            return Ok(None);
        }
        match last.checked_add(delta) {
            Some(field) => *last = field,
            None => return self.wrong("a field number that can't be"),
        }
        Ok(Some(*last))
    }

    fn is_over(&self) -> bool {
        self.at >= self.bytes.len()
    }
}

enum GobType<'a> {
    Struct(Vec<(&'a [u8], i64)>),
    Map { key: i64, element: i64 },
    Slice { element: i64 },
}

/// The types that a record describes.
#[derive(Default)]
struct Types<'a>(Vec<(i64, GobType<'a>)>);

impl<'a> Types<'a> {
    fn get(&self, id: i64) -> Option<&GobType<'a>> {
        self.0.iter().find(|(known, _)| *known == id).map(|(_, shape)| shape)
    }

    /// Passes over a value nobody asked for.
    fn skip(&self, input: &mut Input<'a>, id: i64, depth: u32) -> Outcome<()> {
        if depth > MAX_DEPTH {
            return input.wrong("types inside types, too deep");
        }
        match (id, self.get(id)) {
            (BOOL..=FLOAT, _) => input.uint().map(drop),
            (BYTES | STRING, _) => input.text().map(drop),
            (COMPLEX, _) => input.uint().and_then(|_| input.uint()).map(drop),
            (_, Some(GobType::Struct(fields))) => {
                let mut last = 0;
                while let Some(field) = input.field(&mut last)? {
                    let Some((_, kind)) =
                        usize::try_from(field - 1).ok().and_then(|i| fields.get(i))
                    else {
                        return input.wrong("a field that its type does not have");
                    };
                    self.skip(input, *kind, depth + 1)?;
                }
                Ok(())
            }
            (_, Some(GobType::Map { key, element })) => {
                for _ in 0..input.uint()? {
                    self.skip(input, *key, depth + 1)?;
                    self.skip(input, *element, depth + 1)?;
                }
                Ok(())
            }
            (_, Some(GobType::Slice { element })) => {
                for _ in 0..input.uint()? {
                    self.skip(input, *element, depth + 1)?;
                }
                Ok(())
            }
            _ => input.wrong("a value of a type that was not described"),
        }
    }

    /// Reads a `wireType`: the body of a message with a negative type id.
    fn describe(&mut self, input: &mut Input<'a>, id: i64) -> Outcome<()> {
        if self.0.len() >= MAX_TYPES || self.get(id).is_some() {
            return input.wrong("too many types, or one described twice");
        }
        let (mut last, mut shape) = (0, None);
        while let Some(field) = input.field(&mut last)? {
            shape = Some(match field {
                1 | 2 => GobType::Slice { element: numbers(input, 3)?.0 },
                3 => GobType::Struct(fields(input)?),
                4 => numbers(input, 3).map(|(key, element)| GobType::Map { key, element })?,
                _ => return input.wrong("a kind of type that no message has"),
            });
        }
        match shape {
            Some(shape) => self.0.push((id, shape)),
            None => return input.wrong("a type without a description"),
        }
        Ok(())
    }
}

/// `CommonType{Name, Id}`.
fn common(input: &mut Input<'_>) -> Outcome<()> {
    let mut last = 0;
    while let Some(field) = input.field(&mut last)? {
        match field {
            1 => input.text().map(drop)?,
            2 => input.int().map(drop)?,
            _ => return input.wrong("a type's name with more than two fields"),
        }
    }
    Ok(())
}

/// A type of a name and up to two numbers: arrays, slices and maps.
fn numbers(input: &mut Input<'_>, most: u64) -> Outcome<(i64, i64)> {
    let (mut last, mut first, mut second) = (0, 0, 0);
    while let Some(field) = input.field(&mut last)? {
        match field {
            1 => common(input)?,
            2 => first = input.int()?,
            3 if most >= 3 => second = input.int()?,
            _ => return input.wrong("a type with too many fields"),
        }
    }
    Ok((first, second))
}

/// `StructType{CommonType, []fieldType{Name, Id}}`.
fn fields<'a>(input: &mut Input<'a>) -> Outcome<Vec<(&'a [u8], i64)>> {
    let (mut last, mut found) = (0, Vec::new());
    while let Some(field) = input.field(&mut last)? {
        match field {
            1 => common(input)?,
            2 => {
                for _ in 0..input.uint()? {
                    if found.len() >= MAX_FIELDS {
                        return input.wrong("a struct of too many fields");
                    }
                    let (mut inner, mut name, mut id) = (0, &[][..], 0);
                    while let Some(part) = input.field(&mut inner)? {
                        match part {
                            1 => name = input.text()?,
                            2 => id = input.int()?,
                            _ => return input.wrong("a field with more than a name and a type"),
                        }
                    }
                    found.push((name, id));
                }
            }
            _ => return input.wrong("a struct type with too many fields"),
        }
    }
    Ok(found)
}

/// What a field of the stream's struct is to us.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Id,
    Body,
    Attributes,
    System,
    Delay,
    Kind,
    Value,
    Other(i64),
}

const KNOWN_MESSAGE: &[Role] = &[Role::Id, Role::Body, Role::Attributes, Role::System, Role::Delay];
const KNOWN_ATTRIBUTE: &[Role] = &[Role::Kind, Role::Value];

struct Plan<'p, 'a> {
    types: &'p Types<'a>,
    message: &'p [Role],
    attribute: &'p [Role],
}

fn role(fields: &[Role], field: u64) -> Option<Role> {
    fields.get(usize::try_from(field).ok()?.checked_sub(1)?).copied()
}

impl<'a> Plan<'_, 'a> {
    fn message(&self, input: &mut Input<'a>) -> Outcome<Parts<'a>> {
        let mut parts = Parts::default();
        let mut last = 0;
        while let Some(field) = input.field(&mut last)? {
            match role(self.message, field) {
                Some(Role::Id) => parts.id = input.text()?,
                Some(Role::Body) => parts.body = input.text()?,
                Some(Role::Attributes) => self.map(input, false, &mut parts)?,
                Some(Role::System) => self.map(input, true, &mut parts)?,
                Some(Role::Delay) => parts.delay_s = input.uint()?,
                Some(Role::Other(id)) => self.types.skip(input, id, 0)?,
                _ => return input.wrong("a field that its type does not have"),
            }
        }
        Ok(parts)
    }

    fn map(&self, input: &mut Input<'a>, is_system: bool, parts: &mut Parts<'a>) -> Outcome<()> {
        for _ in 0..input.uint()? {
            if parts.attributes.len() >= MAX_ATTRIBUTES {
                return input.wrong("more than 65536 attributes");
            }
            let name = input.text()?;
            let (mut kind, mut value) = (&[][..], &[][..]);
            let mut last = 0;
            while let Some(field) = input.field(&mut last)? {
                match role(self.attribute, field) {
                    Some(Role::Kind) => kind = input.text()?,
                    Some(Role::Value) => value = input.text()?,
                    Some(Role::Other(id)) => self.types.skip(input, id, 0)?,
                    _ => return input.wrong("a field that its type does not have"),
                }
            }
            parts.attributes.push(Attribute { is_system, name, kind, value: value.into() });
        }
        Ok(())
    }
}

/// What the fields of the stream's own types are to us; the types must be those of a message.
fn roles<'a>(types: &Types<'a>, id: i64) -> Option<(Vec<Role>, Vec<Role>)> {
    let Some(GobType::Struct(found)) = types.get(id) else { return None };
    let mut element = None;
    let mut message = Vec::new();
    for (name, kind) in found {
        let (wanted, role) = match *name {
            b"Id" => (STRING, Role::Id),
            b"Body" => (STRING, Role::Body),
            b"DelaySeconds" => (UINT, Role::Delay),
            b"Attributes" | b"SystemAttributes" => {
                let Some(GobType::Map { key: STRING, element: inner }) = types.get(*kind) else {
                    return None;
                };
                if element.is_some_and(|known| known != *inner) {
                    return None;
                }
                element = Some(*inner);
                (*kind, if *name == b"Attributes" { Role::Attributes } else { Role::System })
            }
            _ => (*kind, Role::Other(*kind)),
        };
        if *kind != wanted {
            return None;
        }
        message.push(role);
    }
    let Some(element) = element else { return Some((message, Vec::new())) };
    let Some(GobType::Struct(found)) = types.get(element) else { return None };
    let attribute = found.iter().map(|(name, kind)| match (*name, *kind) {
        (b"DataType", STRING) => Some(Role::Kind),
        (b"Value", BYTES) => Some(Role::Value),
        (b"DataType" | b"Value", _) => None,
        (_, kind) => Some(Role::Other(kind)),
    });
    Some((message, attribute.collect::<Option<_>>()?))
}

/// The message of a record. Nothing may follow it.
pub fn decode(record: &[u8]) -> Outcome<Parts<'_>> {
    let mut input = Input { bytes: record, at: 0 };
    let is_known = record.starts_with(TYPES);
    let mut types = Types::default();
    if is_known {
        input.at = TYPES.len();
    }
    loop {
        let len = input.uint()?;
        let start = input.at;
        let message = input.take(len)?;
        let mut inner = Input { bytes: message, at: 0 };
        let outcome = read_one(&mut inner, &mut types, is_known);
        let parts = outcome.map_err(|wrong| Wrong { at: start + wrong.at, ..wrong })?;
        if !inner.is_over() {
            return Err(Wrong { at: start + inner.at, found: "bytes after the end of a value" });
        }
        if let Some(parts) = parts {
            return if input.is_over() {
                Ok(parts)
            } else {
                input.wrong("bytes after the message")
            };
        }
    }
}

fn read_one<'a>(
    input: &mut Input<'a>,
    types: &mut Types<'a>,
    is_known: bool,
) -> Outcome<Option<Parts<'a>>> {
    let id = input.int()?;
    if is_known && id == 65 {
        let plan = Plan { types, message: KNOWN_MESSAGE, attribute: KNOWN_ATTRIBUTE };
        return plan.message(input).map(Some);
    }
    if id < 0 {
        return types.describe(input, id.saturating_neg()).map(|()| None);
    }
    let Some((message, attribute)) = roles(types, id) else {
        return input.wrong("a value that is no message");
    };
    let plan = Plan { types, message: &message, attribute: &attribute };
    plan.message(input).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(parts: &Parts<'_>) -> Vec<u8> {
        let mut out = vec![0; measure(parts)];
        encode(parts, &mut out).expect("as long as measured");
        out
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        for len in [0, 1, 127, 128, 255, 256, 70_000] {
            let body = vec![b'x'; len];
            let parts = Parts { id: b"o-17", body: &body, ..Parts::default() };
            let bytes = record(&parts);
            let found = decode(&bytes).map_err(|_| "wrong").expect("a record");
            assert_eq!((found.id, found.body), (parts.id, parts.body));
        }
    }

    #[test]
    fn no_cut_or_flipped_bit_makes_it_panic() {
        let bytes = record(&Parts { id: b"o-17", body: b"some body", ..Parts::default() });
        for end in 0..bytes.len() {
            let _ = decode(bytes.get(..end).expect("inside"));
        }
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            if let Some(byte) = changed.get_mut(bit / 8) {
                *byte ^= 1 << (bit % 8);
            }
            let _ = decode(&changed);
        }
    }
}
