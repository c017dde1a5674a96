//! Raising `penstock.errors` from native code. The classes live in Python; this finds them.

use std::io::ErrorKind;

use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::formats::frame::Fault;
use crate::segment::Segment;

fn class<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import("penstock.errors")?.getattr(name)
}

/// An instance of `penstock.errors.<name>` made from `arguments`.
pub fn error<'py>(
    py: Python<'py>,
    name: &str,
    arguments: impl pyo3::call::PyCallArgs<'py>,
) -> PyErr {
    match class(py, name).and_then(|class| class.call1(arguments)) {
        Ok(instance) => PyErr::from_value(instance),
        Err(failure) => PyRuntimeError::new_err(format!("{name}: {failure}")),
    }
}

/// An error of the operating system: with its number, so that callers can tell a full disk from a
/// bad one, and with the file. A missing file and one that is there already are Python's own errors;
/// the others are ours, and say what to do.
pub fn os(error: std::io::Error, path: &std::path::Path) -> PyErr {
    let Some(number) = error.raw_os_error() else { return error.into() };
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default().to_owned();
    if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::AlreadyExists) {
        return PyOSError::new_err((number, text, path.to_path_buf()));
    }
    Python::attach(|py| {
        let storage = class(py, "StorageError")
            .and_then(|class| class.call_method1("of", (path.to_path_buf(), number, &text)));
        storage.map_or_else(|failure| failure, PyErr::from_value)
    })
}

/// Damage in a segment: its file and its byte.
pub fn corrupt(py: Python<'_>, segment: &Segment, fault: &Fault) -> PyErr {
    let arguments =
        (segment.path().to_path_buf(), fault.at, fault.found.clone(), fault.expected.clone());
    error(py, "CorruptError", arguments)
}

/// A file that was cut short under a mapping.
pub fn vanished(py: Python<'_>, path: &std::path::Path) -> PyErr {
    let text = "a file was cut short while it was mapped; run `penstock verify`";
    error(py, "StorageError", (path.to_path_buf(), text))
}

/// The message cannot be held: before a byte is written.
pub fn refused(py: Python<'_>, why: &str) -> PyErr {
    error(py, "RefusedError", (why,))
}

/// The queue was closed; or this process is a fork of the one that opened it.
pub fn closed(py: Python<'_>, is_forked: bool) -> PyErr {
    if !is_forked {
        return plain(py, "ClosedError");
    }
    let why = "the queue was opened before this process was forked: what was bound to it then \
               is not ours; call the queue's own methods, or open it again with Queue(path)";
    error(py, "ClosedError", (why,))
}

/// A word of the control block that can't be: nothing was written.
pub fn impossible(
    py: Python<'_>,
    path: &std::path::Path,
    at: usize,
    found: &str,
    expected: &str,
) -> PyErr {
    error(py, "CorruptError", (path.to_path_buf(), at, found, expected))
}

/// No arguments.
pub fn plain(py: Python<'_>, name: &str) -> PyErr {
    error(py, name, PyTuple::empty(py))
}
