//! The recorder of effects as crash tests use it. Only in a build with the feature `recorder`.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use crate::sys::recorder::{self, Effect, control};

/// Starts or stops recording every effect of this process on files.
#[pyfunction]
pub fn record_effects(on: bool) {
    control::set_recording(on);
}

/// Puts a mark of the test's own into the log.
#[pyfunction]
pub fn mark_effect(label: String) {
    let _ = recorder::record(|| Ok(Effect::Mark(label)));
}

/// Takes the log: tuples that begin with the kind of the effect.
#[pyfunction]
pub fn take_effects(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let list = PyList::empty(py);
    for effect in control::take_log() {
        let tuple = match effect {
            Effect::Create(path, inode) => ("create", path, inode).into_pyobject(py)?,
            Effect::Store(inode, at, bytes) => ("store", inode, at, PyBytes::new(py, &bytes))
                .into_pyobject(py)?
                .into_any()
                .cast_into::<PyTuple>()?,
            Effect::Grow(inode, size) => ("grow", inode, size).into_pyobject(py)?,
            Effect::Rename(from, to) => ("rename", from, to).into_pyobject(py)?,
            Effect::Unlink(path) => {
                ("unlink", path).into_pyobject(py)?.into_any().cast_into::<PyTuple>()?
            }
            Effect::Sync(inode) => ("sync", inode).into_pyobject(py)?,
            Effect::SyncFolder(path) => ("sync_folder", path).into_pyobject(py)?,
            Effect::Mark(label) => ("mark", label).into_pyobject(py)?,
        };
        list.append(tuple)?;
    }
    Ok(list)
}

/// Lets every later sync fail with this error number, or only the `nth` of them; 0 ends it.
/// Whether the sync that was named before has come.
#[pyfunction]
#[pyo3(signature = (errno, nth = None))]
pub fn fail_syncs(errno: i32, nth: Option<i64>) -> bool {
    control::set_sync_fault(errno, nth) < 0
}

/// Lets the `nth` question for memory after this be answered with no, as if none were left; below
/// 0: none. Whether the question that was named before has come.
#[pyfunction]
pub fn refuse_memory(nth: i64) -> bool {
    crate::sys::memory::refuse_at(nth)
}
