//! Messages as Arrow record batches, handed over through the C stream capsule.

use std::sync::Arc;

use arrow_array::builder::{
    Int64Builder, MapBuilder, MapFieldNames, StringBuilder, TimestampMicrosecondBuilder,
    TimestampNanosecondBuilder,
};
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{ArrayRef, BinaryArray, RecordBatch, RecordBatchReader};
use arrow_buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType, Field, Fields, Schema, SchemaRef, TimeUnit};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::bytes::headers;
use crate::errors;
use crate::read::reader::Reader;
use crate::read::scan::{Bodies, Halt, Scan, Scanner};
use crate::segment::frame::{FrameView, NO_NUMBER, NO_TIME};
use crate::segment::{Bare, Segment, Taken};
use crate::sys::{memory, sigbus};

const BATCH_BYTES: usize = 2 << 20;
const BATCH_ROWS: usize = 64 << 10;
/// What a row counts for beside its body.
const ROW_BYTES: usize = 32;
/// The body of a short message.
const SHORT_BYTES: usize = 128;
/// A short message with its frame.
const LIKELY_ROW_BYTES: usize = 100;

/// A column of the table that a queue is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Column {
    Offset,
    Number,
    Timestamp,
    TimestampNs,
    /// The time until which a message is held back.
    Due,
    Id,
    Key,
    Tag,
    Headers,
    Body,
    Payload,
    /// The same as `Timestamp`, in the microseconds that Spark has.
    TimestampUs,
    Segment,
    Position,
    Length,
    CorrOffset,
}

/// The columns a scan has unless others are asked for.
const DEFAULT: [&str; 8] = ["offset", "number", "timestamp", "id", "key", "tag", "headers", "body"];

fn column(name: &str) -> Option<Column> {
    Some(match name {
        "offset" => Column::Offset,
        "number" => Column::Number,
        "timestamp" => Column::Timestamp,
        "timestamp_ns" => Column::TimestampNs,
        "due" => Column::Due,
        "id" => Column::Id,
        "key" => Column::Key,
        "tag" => Column::Tag,
        "headers" => Column::Headers,
        "body" => Column::Body,
        "payload" => Column::Payload,
        "timestamp_us" => Column::TimestampUs,
        "segment" => Column::Segment,
        "position" => Column::Position,
        "length" => Column::Length,
        "corr_offset" => Column::CorrOffset,
        _ => return None,
    })
}

fn headers_type() -> DataType {
    let entries = Fields::from(vec![
        Field::new("key", DataType::Utf8, false),
        Field::new("value", DataType::Utf8, true),
    ]);
    DataType::Map(Arc::new(Field::new("entries", DataType::Struct(entries), false)), false)
}

fn field(name: &str, kind: Column) -> Field {
    let data_type = match kind {
        Column::Timestamp | Column::Due => {
            DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()))
        }
        Column::TimestampUs => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        Column::Id | Column::Key | Column::Tag | Column::Segment => DataType::Utf8,
        Column::Headers => headers_type(),
        Column::Body | Column::Payload => DataType::Binary,
        _ => DataType::Int64,
    };
    Field::new(name, data_type, kind != Column::Offset)
}

/// One message in the segment where the scan stands.
struct Row<'a> {
    offset: u64,
    frame: u64,
    view: &'a FrameView,
    /// What the view's spans are into.
    bytes: &'a [u8],
}

#[allow(clippy::large_enum_variant, reason = "a handful per scan, never moved in a loop")]
enum Builder {
    Int(Int64Builder),
    Time(TimestampNanosecondBuilder),
    TimeUs(TimestampMicrosecondBuilder),
    Text(StringBuilder),
    Bytes(BytesBuilder),
    Map(MapBuilder<StringBuilder, StringBuilder>),
}

/// A column's offsets can't count so many bytes. The error is our own and small: checking and
/// dropping the Arrow library's error after every value would cost more than the value itself.
struct TooLong(usize);

impl From<TooLong> for ArrowError {
    fn from(too_long: TooLong) -> Self {
        Self::OffsetOverflowError(too_long.0)
    }
}

/// A column of bytes without nulls: the Arrow library's builder keeps count of nulls at every
/// value.
struct BytesBuilder {
    values: Vec<u8>,
    /// Where each ends.
    ends: Vec<i32>,
}

impl BytesBuilder {
    fn with_capacity(rows: usize, bytes: usize) -> Self {
        let mut ends = Vec::with_capacity(rows + 1);
        ends.push(0);
        Self { values: Vec::with_capacity(bytes), ends }
    }

    /// Adds `value`, which `piece` begins with: that is copied.
    #[inline(always)]
    fn append(&mut self, value: &[u8], piece: &[u8]) -> Result<(), TooLong> {
        let end = self.values.len() + value.len();
        self.ends.push(i32::try_from(end).map_err(|_| TooLong(end))?);
        self.values.extend_from_slice(piece);
        self.values.truncate(end);
        Ok(())
    }

    /// The same, and whether more may come.
    #[inline(always)]
    fn take_piece(&mut self, value: &[u8], piece: &[u8]) -> Taken {
        match self.append(value, piece) {
            Ok(()) if BatchBuilder::is_enough(self.batch_bytes()) => Taken::Last,
            Ok(()) => Taken::One,
            Err(_) => Taken::Not, // The closer look that follows meets it, and says so.
        }
    }

    #[inline(always)]
    fn rows(&self) -> usize {
        self.ends.len() - 1
    }

    /// What a batch that has only this column counts as its bytes.
    #[inline(always)]
    fn batch_bytes(&self) -> usize {
        self.values.len() + self.rows() * ROW_BYTES
    }

    fn finish(&mut self) -> Result<BinaryArray, ArrowError> {
        let ends = OffsetBuffer::new(ScalarBuffer::from(std::mem::take(&mut self.ends)));
        BinaryArray::try_new(ends, Buffer::from_vec(std::mem::take(&mut self.values)), None)
    }
}

impl Bodies for BytesBuilder {
    #[inline(always)]
    fn take(&mut self, body: &[u8]) -> Taken {
        self.take_piece(body, body)
    }

    #[inline(always)]
    fn take_bare(&mut self, bare: &Bare<'_>) -> Taken {
        let body = bare.body();
        match bare.body_and_more::<SHORT_BYTES>().filter(|_| body.len() <= SHORT_BYTES) {
            Some(piece) => self.take_piece(body, piece),
            None => self.take_piece(body, body),
        }
    }
}

impl Builder {
    /// Room for `rows` with `bytes` of bodies: growing step by step would copy everything again.
    fn new(kind: Column, rows: usize, bytes: usize) -> Self {
        match kind {
            Column::TimestampUs => {
                Self::TimeUs(TimestampMicrosecondBuilder::with_capacity(rows).with_timezone("UTC"))
            }
            Column::Timestamp | Column::Due => {
                Self::Time(TimestampNanosecondBuilder::with_capacity(rows).with_timezone("UTC"))
            }
            Column::Id | Column::Key | Column::Tag | Column::Segment => {
                Self::Text(StringBuilder::with_capacity(rows, rows.saturating_mul(8)))
            }
            Column::Body | Column::Payload => Self::Bytes(BytesBuilder::with_capacity(rows, bytes)),
            Column::Headers => {
                let names = MapFieldNames {
                    entry: "entries".into(),
                    key: "key".into(),
                    value: "value".into(),
                };
                Self::Map(MapBuilder::new(Some(names), StringBuilder::new(), StringBuilder::new()))
            }
            _ => Self::Int(Int64Builder::with_capacity(rows)),
        }
    }

    #[inline(always)]
    fn push(&mut self, kind: Column, segment: &Segment, row: &Row<'_>) -> Result<(), ArrowError> {
        match self {
            Self::Bytes(values) if kind == Column::Body => {
                let body = row.view.body.of(row.bytes);
                Ok(values.append(body, body)?)
            }
            _ => self.push_other(kind, segment, row),
        }
    }

    fn push_other(
        &mut self,
        kind: Column,
        segment: &Segment,
        row: &Row<'_>,
    ) -> Result<(), ArrowError> {
        let Row { view, bytes, .. } = *row;
        let time = Some(view.timestamp_ns).filter(|time| *time != NO_TIME);
        match self {
            Self::Int(ints) => ints.append_option(match kind {
                Column::Offset => Some(row.offset.cast_signed()),
                Column::Number => Some(view.number).filter(|number| *number != NO_NUMBER),
                Column::Position => i64::try_from(segment.position(row.frame)).ok(),
                Column::Length => i64::try_from(view.size).ok(),
                Column::CorrOffset => corr_offset(view.headers.of(bytes)),
                _ => time,
            }),
            Self::Time(times) if kind == Column::Due => {
                times.append_option(Some(view.due_ns).filter(|due| *due != 0));
            }
            Self::Time(times) => times.append_option(time),
            Self::TimeUs(times) => times.append_option(time.map(|ns| ns.div_euclid(1000))),
            Self::Text(texts) if kind == Column::Segment => {
                let name = segment.path().file_name().unwrap_or_default();
                texts.append_value(name.to_string_lossy());
            }
            Self::Text(texts) => {
                let span = match kind {
                    Column::Id => view.id,
                    Column::Key => view.key,
                    _ => view.tag,
                };
                match span.len {
                    0 => texts.append_null(),
                    _ => texts.append_value(String::from_utf8_lossy(span.of(bytes))),
                }
            }
            Self::Bytes(values) => {
                let payload = segment.payload(row.frame, view);
                values.append(&payload, &payload)?;
            }
            Self::Map(map) => {
                for (key, value) in headers::iterate(view.headers.of(bytes)) {
                    map.keys().append_value(String::from_utf8_lossy(key));
                    map.values().append_value(String::from_utf8_lossy(value));
                }
                map.append(true)?;
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        Ok(match self {
            Self::Int(builder) => Arc::new(builder.finish()),
            Self::Time(builder) => Arc::new(builder.finish()),
            Self::TimeUs(builder) => Arc::new(builder.finish()),
            Self::Text(builder) => Arc::new(builder.finish()),
            Self::Bytes(builder) => Arc::new(builder.finish()?),
            Self::Map(builder) => Arc::new(builder.finish()),
        })
    }
}

/// The message that this one answers, where a format has a place for it.
fn corr_offset(raw: &[u8]) -> Option<i64> {
    let (_, value) = headers::iterate(raw).find(|(key, _)| *key == b"zbus.corr_offset")?;
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// One batch on its way.
struct BatchBuilder {
    builders: Vec<(Column, Builder)>,
    rows: usize,
    bytes: usize,
}

impl BatchBuilder {
    #[inline(always)]
    fn is_full(&self) -> bool {
        Self::is_enough(self.bytes)
    }

    #[inline(always)]
    fn is_enough(bytes: usize) -> bool {
        const { assert!(ROW_BYTES * BATCH_ROWS >= BATCH_BYTES) }; // So many rows are too many bytes.
        bytes >= BATCH_BYTES
    }

    /// About how many bytes a row adds to the batch.
    #[inline(always)]
    fn row_bytes(body_len: usize) -> usize {
        body_len + ROW_BYTES
    }

    #[inline(always)]
    fn push(&mut self, segment: &Segment, row: &Row<'_>) -> Result<(), ArrowError> {
        for (kind, builder) in &mut self.builders {
            builder.push(*kind, segment, row)?;
        }
        self.rows += 1;
        self.bytes += Self::row_bytes(row.view.body.len as usize);
        Ok(())
    }

    /// Takes the messages that follow until the batch is full, or says why there are no more. One
    /// look finds a message and tells where those behind it begin, mostly all the others.
    fn fill(&mut self, place: &mut Scanner) -> Result<Option<Halt>, ArrowError> {
        while !self.is_full() {
            let (offset, frame) = match place.next() {
                Ok(found) => found,
                Err(halt) => return Ok(Some(halt)),
            };
            let Reader { segment: Some(segment), view, .. } = &place.reader else {
                continue;
            };
            let row = Row { offset, frame, view, bytes: segment.bytes_of(frame, view) };
            self.push(segment, &row)?;
            if !self.is_full() {
                self.fill_known(place)?;
            }
        }
        Ok(None)
    }

    /// Takes the messages that need no closer look, until the batch is full.
    fn fill_known(&mut self, place: &mut Scanner) -> Result<(), ArrowError> {
        if let [(Column::Body, Builder::Bytes(bodies))] = self.builders.as_mut_slice() {
            // Only bodies are wanted: nothing has to be decided for each message, and the column
            // itself says how many there are.
            place.each_body(bodies);
            (self.rows, self.bytes) = (bodies.rows(), bodies.batch_bytes());
            return Ok(());
        }
        let mut pushed = Ok(());
        place.each_known(|segment, offset, view, bytes| {
            pushed = self.push(segment, &Row { offset, frame: offset, view, bytes });
            if pushed.is_err() || self.is_full() { Taken::Last } else { Taken::One }
        });
        pushed
    }

    fn finish(mut self, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
        let columns: Result<_, _> = self.builders.iter_mut().map(|(_, one)| one.finish()).collect();
        let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(self.rows));
        RecordBatch::try_new_with_options(Arc::clone(schema), columns?, &options)
    }
}

/// The batches of one scan.
struct Batches {
    scan: Py<Scan>,
    kinds: Vec<Column>,
    schema: SchemaRef,
    is_over: bool,
}

impl Batches {
    fn next_batch(&mut self, py: Python<'_>) -> PyResult<Option<RecordBatch>> {
        if self.is_over {
            return Ok(None);
        }
        let room = self.scan.get().lock(py).left().min(BATCH_BYTES);
        let likely = (room / LIKELY_ROW_BYTES).clamp(1, BATCH_ROWS);
        let needed = room.saturating_mul(2).saturating_add(likely * LIKELY_ROW_BYTES);
        if !memory::has_room(needed) {
            return Err(memory::none_left(needed));
        }
        let builder = |kind: &Column| (*kind, Builder::new(*kind, likely, room));
        let builders = self.kinds.iter().map(builder).collect();
        let mut table = BatchBuilder { builders, rows: 0, bytes: 0 };
        let hits = sigbus::hits();
        while !self.is_over && !table.is_full() {
            let scan = self.scan.get();
            let unopened = scan.lock(py).unopened();
            let filled = match unopened {
                Some(halt) => Ok(Some(halt)), // Nothing to let go of the interpreter lock for.
                None => py.detach(|| {
                    let mut place = scan.place.lock().unwrap_or_else(|e| e.into_inner());
                    table.fill(&mut place)
                }),
            };
            match filled
                .map_err(|error| pyo3::exceptions::PyRuntimeError::new_err(error.to_string()))?
            {
                None => break,
                Some(_) if sigbus::hits() != hits || scan.cut(py).is_some() => break,
                Some(halt) => self.is_over = !scan.resume(py, halt)?,
            }
        }
        if let Some(path) = self.scan.get().cut(py) {
            return Err(errors::vanished(py, &path));
        }
        if sigbus::hits() != hits {
            return Err(errors::vanished(py, std::path::Path::new("a segment of this scan")));
        }
        if table.rows == 0 {
            return Ok(None);
        }
        let batch = table.finish(&self.schema).map(Some);
        batch.map_err(|error| pyo3::exceptions::PyRuntimeError::new_err(error.to_string()))
    }
}

impl Iterator for Batches {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = Python::attach(|py| self.next_batch(py));
        batch.map_err(|error| ArrowError::ExternalError(error.to_string().into())).transpose()
    }
}

impl RecordBatchReader for Batches {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

/// An Arrow C stream over `scan` with these columns, in a capsule.
#[pyfunction]
#[pyo3(signature = (scan, columns=None))]
pub fn arrow_stream<'py>(
    py: Python<'py>,
    scan: Py<Scan>,
    columns: Option<Vec<String>>,
) -> PyResult<Bound<'py, PyCapsule>> {
    let names = columns.unwrap_or_else(|| DEFAULT.map(str::to_owned).to_vec());
    let mut kinds = Vec::new();
    let mut fields = Vec::new();
    for name in &names {
        let known = "offset, number, timestamp, timestamp_ns, timestamp_us, due, id, key, tag, \
                     headers, body, payload, segment, position, length, corr_offset";
        let unknown = || errors::error(py, "OptionError", ("columns", name.clone(), known));
        let kind = column(name).ok_or_else(unknown)?;
        kinds.push(kind);
        fields.push(field(name, kind));
    }
    let batches = Batches { scan, kinds, schema: Arc::new(Schema::new(fields)), is_over: false };
    let stream = FFI_ArrowArrayStream::new(Box::new(batches));
    PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
}
