//! Appending what another library holds as Arrow: an array of bodies, or a table of messages.

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema};
use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BinaryViewArray, LargeBinaryArray, LargeListArray,
    LargeStringArray, ListArray, MapArray, RecordBatch, StringArray, StringViewArray, StructArray,
    make_array,
};
use arrow_data::ArrayData;
use arrow_schema::{DataType, TimeUnit};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyString, PyTuple};

use crate::append::Writer;
use crate::bytes::checksum::crc32c;
use crate::bytes::headers;
use crate::errors;
use crate::message::utf8;
use crate::segment::frame::{Draft, NO_TIME};
use crate::sys::capsule;

/// The columns that become part of a message.
const TAKEN: [&str; 9] =
    ["body", "tag", "id", "key", "headers", "timestamp", "timestamp_ns", "due", "due_ns"];
/// Columns of a scan that say where a message was: where it will be is the queue's to decide.
const PLACES: [&str; 2] = ["offset", "number"];

/// Refuses a table with a column that would be left out: its name may be misspelt.
fn refuse_unknown(py: Python<'_>, batch: &RecordBatch) -> PyResult<()> {
    let schema = batch.schema();
    let is_known = |name: &str| TAKEN.contains(&name) || PLACES.contains(&name);
    let names = schema.fields().iter().map(|field| field.name().as_str());
    let unknown: Vec<&str> = names.filter(|name| !is_known(name)).collect();
    if unknown.is_empty() {
        return Ok(());
    }
    let (unknown, taken) = (unknown.join(", "), TAKEN.join(", "));
    let text = format!("the table has columns that no message has: {unknown}; it takes {taken}");
    Err(errors::refused(py, &text))
}

/// Bytes in an Arrow column, whatever its width.
enum Bytes<'a> {
    Binary(&'a BinaryArray),
    LargeBinary(&'a LargeBinaryArray),
    Text(&'a StringArray),
    LargeText(&'a LargeStringArray),
    BinaryView(&'a BinaryViewArray),
    TextView(&'a StringViewArray),
}

impl<'a> Bytes<'a> {
    fn of(array: &'a ArrayRef) -> Option<Self> {
        let any = array.as_any();
        any.downcast_ref()
            .map(Self::Binary)
            .or_else(|| any.downcast_ref().map(Self::LargeBinary))
            .or_else(|| any.downcast_ref().map(Self::Text))
            .or_else(|| any.downcast_ref().map(Self::LargeText))
            .or_else(|| any.downcast_ref().map(Self::BinaryView))
            .or_else(|| any.downcast_ref().map(Self::TextView))
    }

    #[inline]
    fn get(&self, row: usize) -> &'a [u8] {
        match self {
            Self::Binary(array) if array.is_valid(row) => array.value(row),
            Self::LargeBinary(array) if array.is_valid(row) => array.value(row),
            Self::Text(array) if array.is_valid(row) => array.value(row).as_bytes(),
            Self::LargeText(array) if array.is_valid(row) => array.value(row).as_bytes(),
            Self::BinaryView(array) if array.is_valid(row) => array.value(row),
            Self::TextView(array) if array.is_valid(row) => array.value(row).as_bytes(),
            _ => &[],
        }
    }
}

fn column<'a>(py: Python<'_>, batch: &'a RecordBatch, name: &str) -> PyResult<Option<Bytes<'a>>> {
    let Some(array) = batch.column_by_name(name) else { return Ok(None) };
    if *array.data_type() == DataType::Null {
        return Ok(None); // A column whose values are all absent has this type.
    }
    let wrong = || {
        errors::refused(py, &format!("column {name} is {}, not bytes or text", array.data_type()))
    };
    Bytes::of(array).map(Some).ok_or_else(wrong)
}

/// A column of times in ns, `none` where there is none; `name` with or without `_ns`.
fn times(py: Python<'_>, batch: &RecordBatch, name: &str, none: i64) -> PyResult<Vec<i64>> {
    let array = batch.column_by_name(&format!("{name}_ns")).or_else(|| batch.column_by_name(name));
    let Some(array) = array else { return Ok(vec![none; batch.num_rows()]) };
    let scale = match array.data_type() {
        DataType::Int64 | DataType::Timestamp(TimeUnit::Nanosecond, _) => 1,
        DataType::Timestamp(TimeUnit::Microsecond, _) => 1_000,
        DataType::Timestamp(TimeUnit::Millisecond, _) => 1_000_000,
        DataType::Timestamp(TimeUnit::Second, _) => 1_000_000_000,
        DataType::Null => return Ok(vec![none; batch.num_rows()]),
        other => {
            return Err(errors::refused(py, &format!("column {name} is {other}, not a timestamp")));
        }
    };
    let data = array.to_data();
    let values =
        data.buffers().first().map(|buffer| buffer.typed_data::<i64>()).unwrap_or_default();
    let far = |value: i64| {
        let text =
            format!("column {name} has a time out of range ({value} x {scale} ns since 1970)");
        errors::refused(py, &format!("{text}: messages have times of the years 1678 to 2261"))
    };
    let time = |row: usize| {
        let value = values.get(data.offset() + row).copied().unwrap_or(0);
        // A time that means "none" would become the time of the put.
        value.checked_mul(scale).filter(|time| *time != NO_TIME).ok_or_else(|| far(value))
    };
    (0..batch.num_rows())
        .map(|row| if array.is_valid(row) { time(row) } else { Ok(none) })
        .collect()
}

/// Each row's headers in wire form.
fn header_column(py: Python<'_>, batch: &RecordBatch) -> PyResult<Vec<Vec<u8>>> {
    let Some(array) = batch.column_by_name("headers") else { return Ok(Vec::new()) };
    if *array.data_type() == DataType::Null {
        return Ok(Vec::new());
    }
    let wrong = || errors::refused(py, "column headers is no map of text to text");
    let (pairs, bounds) = pairs_of(array).ok_or_else(wrong)?;
    let [keys, values] = pairs.columns() else { return Err(wrong()) };
    let (keys, values) = (Bytes::of(keys).ok_or_else(wrong)?, Bytes::of(values).ok_or_else(wrong)?);
    let row = |row: usize| {
        let mut out = Vec::new();
        if array.is_valid(row) {
            for index in bounds(row)..bounds(row + 1) {
                if !(pairs.column(0).is_valid(index) && pairs.column(1).is_valid(index)) {
                    let key = String::from_utf8_lossy(keys.get(index));
                    return Err(errors::refused(py, &format!("header {key:?} is null, not text")));
                }
                headers::push(&mut out, keys.get(index), values.get(index));
            }
        }
        Ok(out)
    };
    (0..array.len()).map(row).collect()
}

/// Where each row's entries begin.
type Bounds<'a> = Box<dyn Fn(usize) -> usize + 'a>;

/// The entries of a map, or of what libraries without maps make of one: a list of pairs.
fn pairs_of(array: &ArrayRef) -> Option<(&StructArray, Bounds<'_>)> {
    let any = array.as_any();
    if let Some(map) = any.downcast_ref::<MapArray>() {
        return Some((map.entries(), bounds_of(map.value_offsets())));
    }
    if let Some(list) = any.downcast_ref::<ListArray>() {
        let pairs = list.values().as_any().downcast_ref()?;
        return Some((pairs, bounds_of(list.value_offsets())));
    }
    let list = any.downcast_ref::<LargeListArray>()?;
    let pairs = list.values().as_any().downcast_ref()?;
    Some((pairs, bounds_of(list.value_offsets())))
}

fn bounds_of<T: Copy>(offsets: &[T]) -> Bounds<'_>
where
    usize: TryFrom<T>,
{
    let at = |index: usize| offsets.get(index).copied().and_then(|at| usize::try_from(at).ok());
    Box::new(move |index| at(index).unwrap_or(0))
}

/// The columns of a table of messages.
pub struct Columns<'a> {
    body: Bytes<'a>,
    tags: Option<Bytes<'a>>,
    ids: Option<Bytes<'a>>,
    keys: Option<Bytes<'a>>,
    times: Vec<i64>,
    due: Vec<i64>,
    headers: Vec<Vec<u8>>,
}

impl<'a> Columns<'a> {
    /// Finds them by name.
    pub fn of(py: Python<'_>, batch: &'a RecordBatch) -> PyResult<Self> {
        let missing = || errors::refused(py, "the table has no column `body`");
        Ok(Self {
            body: column(py, batch, "body")?.ok_or_else(missing)?,
            tags: column(py, batch, "tag")?,
            ids: column(py, batch, "id")?,
            keys: column(py, batch, "key")?,
            times: times(py, batch, "timestamp", NO_TIME)?,
            due: times(py, batch, "due", 0)?,
            headers: header_column(py, batch)?,
        })
    }

    /// Its rows; `tag` where the table has no column of tags.
    pub fn drafts<'b>(&'b self, tag: &'b [u8]) -> impl Iterator<Item = Draft<'b>> {
        self.times.iter().enumerate().map(move |(row, time)| Draft {
            body: self.body.get(row),
            tag: self.tags.as_ref().map_or(tag, |tags| tags.get(row)),
            id: self.ids.as_ref().map_or(&[], |ids| ids.get(row)),
            key: self.keys.as_ref().map_or(&[], |keys| keys.get(row)),
            headers: self.headers.get(row).map_or(&[], Vec::as_slice),
            timestamp_ns: *time,
            due_ns: self.due.get(row).copied().unwrap_or(0),
        })
    }
}

/// What another library holds as an Arrow array.
fn array_of(data: &Bound<'_, PyAny>) -> PyResult<ArrayData> {
    let pair = data.call_method0("__arrow_c_array__")?;
    let pair = pair.cast::<PyTuple>()?;
    let schema: FFI_ArrowSchema =
        capsule::take(pair.get_item(0)?.cast::<PyCapsule>()?, c"arrow_schema")?;
    let array: FFI_ArrowArray =
        capsule::take(pair.get_item(1)?.cast::<PyCapsule>()?, c"arrow_array")?;
    capsule::import(array, &schema)
}

/// CRC-32C of what is in an Arrow array of bytes (`uint8`): a large file as it is mapped.
#[pyfunction]
pub fn crc32c_array(py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<u32> {
    let array = array_of(data)?;
    let bytes = array.buffers().first().map(|buffer| buffer.as_slice()).unwrap_or_default();
    let bytes = bytes.get(array.offset()..array.offset() + array.len()).unwrap_or_default();
    Ok(py.detach(|| crc32c(bytes)))
}

impl Writer {
    fn put_batch(
        &self,
        py: Python<'_>,
        batch: &RecordBatch,
        tag: &[u8],
        delay: Option<f64>,
    ) -> PyResult<Option<u64>> {
        refuse_unknown(py, batch)?;
        let columns = Columns::of(py, batch)?;
        let mut drafts: Vec<Draft<'_>> = columns.drafts(tag).collect();
        self.stamp_all(&mut drafts, delay)?;
        self.append_many(py, &drafts)
    }

    fn put_array(
        &self,
        py: Python<'_>,
        array: &ArrayRef,
        tag: &[u8],
        delay: Option<f64>,
    ) -> PyResult<Option<u64>> {
        if let Some(rows) = array.as_any().downcast_ref::<StructArray>() {
            return self.put_batch(py, &RecordBatch::from(rows), tag, delay);
        }
        let wrong = || {
            errors::refused(py, &format!("an array of {} is not bytes or text", array.data_type()))
        };
        let bodies = Bytes::of(array).ok_or_else(wrong)?;
        let mut drafts: Vec<Draft<'_>> = (0..array.len())
            .map(|row| Draft { body: bodies.get(row), tag, ..Draft::default() })
            .collect();
        self.stamp_all(&mut drafts, delay)?;
        self.append_many(py, &drafts)
    }

    fn put_stream(
        &self,
        py: Python<'_>,
        stream: FFI_ArrowArrayStream,
        tag: &[u8],
        delay: Option<f64>,
    ) -> PyResult<Option<u64>> {
        let failed = |error: arrow_schema::ArrowError| {
            errors::refused(py, &format!("the table can't be taken: {error}"))
        };
        let no_rows = |error: arrow_schema::ArrowError| {
            let advice = "a column alone has no rows: put pyarrow.table({'body': column})";
            errors::refused(py, &format!("the stream can't be taken: {error}; {advice}"))
        };
        let mut first = None;
        for batch in RecordBatchStreamReader::try_new(stream).map_err(no_rows)? {
            let batch = batch.map_err(failed)?;
            let offset = if batch.schema().fields().is_empty() {
                None
            } else if batch.column_by_name("body").is_none() && batch.num_columns() == 1 {
                self.put_array(py, batch.column(0), tag, delay)?
            } else {
                self.put_batch(py, &batch, tag, delay)?
            };
            first = first.or(offset);
        }
        Ok(first)
    }
}

#[pymethods]
impl Writer {
    /// Puts an Arrow array of bodies or a table with a column `body` (and `tag`, `id`, `key`,
    /// `headers`, `timestamp`, `due` where there are any; `offset` and `number` are passed over,
    /// another column is refused); returns the first offset.
    #[pyo3(signature = (data, *, tag=None, delay=None))]
    fn put_arrow<'py>(
        &self,
        py: Python<'py>,
        data: &Bound<'py, PyAny>,
        tag: Option<&Bound<'py, PyString>>,
        delay: Option<f64>,
    ) -> PyResult<Option<u64>> {
        let tag = utf8("tag", tag)?;
        if data.hasattr("__arrow_c_array__")? {
            return self.put_array(py, &make_array(array_of(data)?), tag, delay);
        }
        let stream = data.call_method0("__arrow_c_stream__")?;
        let stream: FFI_ArrowArrayStream =
            capsule::take(stream.cast::<PyCapsule>()?, c"arrow_array_stream")?;
        self.put_stream(py, stream, tag, delay)
    }
}
