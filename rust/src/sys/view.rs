//! Bytes of a mapping as Python's buffer: no copy, read-only.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;

/// What spans are lent of: bytes that stay where they are and never change.
pub trait Lender: Send + Sync {
    /// The `len` bytes from `offset` on, or fewer.
    fn lend(&self, offset: u64, len: usize) -> &[u8];
}

/// Lends spans of mapped bytes. As long as one is looked at, the mapping stays.
#[pyclass(frozen, module = "penstock._core")]
pub struct View {
    lender: Arc<dyn Lender>,
    offset: AtomicU64,
    skip: AtomicUsize,
    len: AtomicUsize,
}

impl View {
    /// A view of what this lender has; it lends nothing yet.
    pub fn new(lender: Arc<dyn Lender>) -> Self {
        let (offset, skip, len) = (0.into(), 0.into(), 0.into());
        Self { lender, offset, skip, len }
    }

    /// Whether it lends these bytes.
    pub fn is_of<L>(&self, lender: &Arc<L>) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.lender), Arc::as_ptr(lender))
    }

    /// A `memoryview` of the `len` bytes that begin `skip` bytes after `offset`. Not by two
    /// threads at once.
    pub fn lend<'py>(
        this: &Bound<'py, Self>,
        offset: u64,
        skip: usize,
        len: usize,
    ) -> PyResult<Bound<'py, PyMemoryView>> {
        let view = this.get();
        view.offset.store(offset, Ordering::Relaxed);
        view.skip.store(skip, Ordering::Relaxed);
        view.len.store(len, Ordering::Relaxed);
        PyMemoryView::from(this.as_any())
    }

    fn bytes(&self) -> &[u8] {
        let (skip, len) = (self.skip.load(Ordering::Relaxed), self.len.load(Ordering::Relaxed));
        let offset = self.offset.load(Ordering::Relaxed);
        let frame = self.lender.lend(offset, skip.saturating_add(len));
        frame.get(skip..).unwrap_or_default()
    }
}

/// Whether nobody but the holder of `view` has it.
pub fn is_last(view: &Py<PyMemoryView>) -> bool {
    // SAFETY: `view` holds a reference, so the object is there.
    unsafe { ffi::Py_REFCNT(view.as_ptr()) == 1 }
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
}
