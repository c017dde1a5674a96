//! Bytes of a segment as Python's buffer: no copy, read-only.

use std::ffi::c_int;
use std::sync::Arc;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;

use crate::segment::Segment;

/// A span of a mapped segment. Whoever looks at it keeps the mapping alive.
#[pyclass(frozen, module = "penstock._core")]
pub struct View {
    segment: Arc<Segment>,
    offset: u64,
    skip: usize,
    len: usize,
}

impl View {
    /// A `memoryview` of the `len` bytes that begin `skip` bytes after `offset`.
    pub fn of<'py>(
        py: Python<'py>,
        segment: &Arc<Segment>,
        offset: u64,
        skip: usize,
        len: usize,
    ) -> PyResult<Bound<'py, PyMemoryView>> {
        let view = Self { segment: Arc::clone(segment), offset, skip, len };
        PyMemoryView::from(Bound::new(py, view)?.as_any())
    }

    fn bytes(&self) -> &[u8] {
        let frame = self.segment.frame_bytes(self.offset, self.skip.saturating_add(self.len));
        frame.get(self.skip..).unwrap_or_default()
    }
}

#[pymethods]
impl View {
    /// # Safety
    /// Called by the interpreter alone, with a buffer struct of its own to fill.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let bytes = slf.get().bytes();
        let len = isize::try_from(bytes.len()).unwrap_or(0);
        // SAFETY: the bytes are inside a mapping that `slf` keeps alive, and the filled struct
        // holds a reference to `slf`; read-only is asked for, and bytes of a published frame
        // never change.
        let answer = unsafe {
            ffi::PyBuffer_FillInfo(
                view,
                slf.as_ptr(),
                bytes.as_ptr().cast_mut().cast(),
                len,
                1,
                flags,
            )
        };
        if answer == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }

    /// # Safety
    /// Called by the interpreter alone.
    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {}

    fn __len__(&self) -> usize {
        self.len
    }
}
