//! Raising `penstock.errors` from native code. The classes live in Python; this finds them.

use std::fs::File;
use std::io::{Error, ErrorKind};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyTuple;

fn class<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    // Looked for once: to import what is imported takes as long as three gets, and who asks an
    // empty queue gets an error each time.
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let found = || Ok::<_, PyErr>(py.import("penstock.errors")?.unbind());
    MODULE.get_or_try_init(py, found)?.bind(py).getattr(name)
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

mod classes {
    #![allow(missing_docs)]
    pyo3::import_exception!(penstock.errors, CorruptError);
    pyo3::import_exception!(penstock.errors, ExistingFileError);
    pyo3::import_exception!(penstock.errors, MissingFileError);
    pyo3::import_exception!(penstock.errors, NotAFolderError);
    pyo3::import_exception!(penstock.errors, StorageError);
}

/// `error` with its file, as `penstock.errors` has it: the error stays an `io::Error` of its kind
/// on its way through native code, and what Python gets from it has path, number and advice. Needs
/// no interpreter: the Python object is made when someone looks at it.
#[cold]
pub fn located(error: Error, path: &Path) -> Error {
    if error.get_ref().is_some_and(|inner| inner.is::<PyErr>()) {
        return error;
    }
    let (kind, number) = (error.kind(), error.raw_os_error());
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default().to_owned();
    let arguments = (path.to_path_buf(), text, number);
    let raised = match kind {
        ErrorKind::NotFound => PyErr::new::<classes::MissingFileError, _>(arguments),
        ErrorKind::AlreadyExists => PyErr::new::<classes::ExistingFileError, _>(arguments),
        ErrorKind::NotADirectory => PyErr::new::<classes::NotAFolderError, _>(arguments),
        _ => PyErr::new::<classes::StorageError, _>(arguments),
    };
    Error::new(kind, raised)
}

/// The same for a file that is open: its name is asked for only now that it is needed.
#[cold]
pub fn located_file(error: Error, file: &File) -> Error {
    located(error, &path_of(file))
}

/// The name of a file that is open.
pub fn path_of(file: &File) -> PathBuf {
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    std::fs::read_link(link).unwrap_or_else(|_| PathBuf::from("an open file"))
}

/// Bytes of a file that no process of ours has written there.
#[cold]
pub fn damaged(path: &Path, at: usize, found: String, expected: &str) -> Error {
    let arguments = (path.to_path_buf(), at, found, expected.to_owned());
    Error::new(ErrorKind::InvalidData, PyErr::new::<classes::CorruptError, _>(arguments))
}

/// An error of the operating system, for Python.
pub fn os(error: Error, path: &Path) -> PyErr {
    located(error, path).into()
}

/// Bytes that no process of ours has written: the file, the byte, what is there and what should be.
pub fn corrupt(py: Python<'_>, path: &Path, at: usize, found: &str, expected: &str) -> PyErr {
    error(py, "CorruptError", (path.to_path_buf(), at, found, expected))
}

/// Nothing is wrong with a file, but there is no memory to read it with.
pub fn no_memory(py: Python<'_>, path: &Path, found: &str) -> PyErr {
    error(py, "StorageError", (path.to_path_buf(), found, libc::ENOMEM))
}

/// A file that was cut short under a mapping.
pub fn vanished(py: Python<'_>, path: &Path) -> PyErr {
    let text = "a file was cut short while it was mapped; run `penstock verify`";
    error(py, "StorageError", (path.to_path_buf(), text))
}

/// A sync of the queue with this sidecar has failed; `named` is what came of a look whether its
/// control block still has a name.
#[cold]
pub fn poisoned(py: Python<'_>, sidecar: &Path, named: std::io::Result<()>) -> PyErr {
    let why = match named {
        Ok(()) => "a sync failed",
        Err(error) if error.raw_os_error() == Some(libc::ESTALE) => {
            "the queue was deleted while it was open, and what was put since then is lost"
        }
        Err(_) => "a sync failed, since another part of this program closed the queue's files",
    };
    error(py, "PoisonedError", (sidecar.to_path_buf(), why))
}

/// The message cannot be held: before a byte is written.
pub fn refused(py: Python<'_>, why: &str) -> PyErr {
    error(py, "UnsupportedError", (why,))
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

/// An error whose class takes no arguments.
pub fn plain(py: Python<'_>, name: &str) -> PyErr {
    error(py, name, PyTuple::empty(py))
}
