//! A batch that lands whole or not at all, and that can be recognised afterwards.
//!
//! Sinks use it whose commit may be asked for twice. The note says where the batch was put and what
//! the checksum of its frames is, and it is on the disk before the batch is visible. After a crash
//! the sink compares: if frames below the tail have that checksum, the batch has landed.

use std::borrow::Borrow;
use std::path::PathBuf;

use arrow_array::RecordBatch;
use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::append::arrow_in::Columns;
use crate::append::note::{Note, check};
use crate::append::{Writer, stamp};
use crate::bytes::words;
use crate::segment::PySegment;
use crate::segment::frame::{Draft, Drafts};
use crate::sys::capsule;

/// The rows of a table. Drafts are made one by one: each takes as much memory as a short message.
struct Rows<'a> {
    columns: Vec<Columns<'a>>,
    count: usize,
    now_ns: i64,
    delay_ns: i64,
}

impl Drafts for Rows<'_> {
    fn count(&self) -> usize {
        self.count
    }

    fn each<'s>(&'s self) -> impl Iterator<Item: Borrow<Draft<'s>>> {
        let drafts = self.columns.iter().flat_map(|columns| columns.drafts(&[]));
        drafts.map(|draft| stamp(draft, self.now_ns, self.delay_ns))
    }
}

/// The checksum of the frames in `[first, end)`, as a note has it; none if any of them is missing.
#[pyfunction]
pub fn check_range(py: Python<'_>, segment: &PySegment, first: u64, end: u64) -> Option<u32> {
    let segment = &*segment.0;
    let len = words::size(end.saturating_sub(first));
    py.detach(|| (segment.frame_bytes(first, len).len() == len).then(|| check(segment, first, end)))
}

#[pymethods]
impl Writer {
    /// Appends a whole Arrow table (as `put_arrow` takes it) with one publication, however large
    /// it is, and syncs it. The file `note` is written before: `text`, which is one line, and a
    /// line with `first`, `end` and `check`. Answers `(first offset, offset behind, rows)`, none
    /// for an empty table.
    #[pyo3(signature = (data, *, note, text))]
    fn append_atomic(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        note: PathBuf,
        text: String,
    ) -> PyResult<Option<(u64, u64, usize)>> {
        let stream = data.call_method0("__arrow_c_stream__")?;
        let stream: FFI_ArrowArrayStream =
            capsule::take(stream.cast::<PyCapsule>()?, c"arrow_array_stream")?;
        let failed = |error: arrow_schema::ArrowError| {
            pyo3::exceptions::PyValueError::new_err(error.to_string())
        };
        let batches: Vec<RecordBatch> = RecordBatchStreamReader::try_new(stream)
            .map_err(failed)?
            .collect::<Result<_, _>>()
            .map_err(failed)?;
        let columns: Vec<Columns<'_>> =
            batches.iter().map(|batch| Columns::of(py, batch)).collect::<PyResult<_>>()?;
        let rows = Rows {
            columns,
            count: batches.iter().map(RecordBatch::num_rows).sum(),
            now_ns: self.now(),
            delay_ns: self.delay(None)?,
        };
        if rows.count == 0 {
            return Ok(None);
        }
        let note = Note { path: note, text };
        let (first, end) = self.append_detached(py, &rows, Some(&note))?;
        self.sync_up_to(py, end)?;
        Ok(Some((first, end, rows.count)))
    }
}
