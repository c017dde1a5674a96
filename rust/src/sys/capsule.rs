//! Taking Arrow's C structs out of the capsules of another library.

use std::ffi::CStr;

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi};
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_data::ArrayData;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyCapsuleMethods};

/// The three structs of the Arrow C interface, each of which moves out by leaving an empty one.
pub trait Movable: Sized {
    /// Moves the struct out of `pointer`.
    ///
    /// # Safety
    /// `pointer` points to a live struct of this type that nobody else uses during the call.
    unsafe fn move_out(pointer: *mut Self) -> Self;
}

macro_rules! movable {
    ($($kind:ty),*) => {$(
        impl Movable for $kind {
            unsafe fn move_out(pointer: *mut Self) -> Self {
                // SAFETY: the caller's promise; an empty struct without release stays behind, so
                // the capsule's own destructor has nothing to free.
                unsafe { std::ptr::replace(pointer, Self::empty()) }
            }
        }
    )*};
}

movable!(FFI_ArrowArray, FFI_ArrowSchema, FFI_ArrowArrayStream);

/// Takes the struct out of a capsule called `name`.
pub fn take<T: Movable>(capsule: &Bound<'_, PyCapsule>, name: &CStr) -> PyResult<T> {
    let pointer = capsule.pointer_checked(Some(name))?;
    // SAFETY: the name says what the capsule holds, by the Arrow PyCapsule protocol; the capsule
    // is alive while borrowed and we hold the interpreter lock.
    Ok(unsafe { T::move_out(pointer.as_ptr().cast::<T>()) })
}

/// The array's data, owned from here on.
pub fn import(array: FFI_ArrowArray, schema: &FFI_ArrowSchema) -> PyResult<ArrayData> {
    // SAFETY: both structs came out of capsules of the Arrow protocol, whose producer vouches for
    // them; the import checks buffers and lengths against the type.
    unsafe { from_ffi(array, schema) }.map_err(|error| PyValueError::new_err(error.to_string()))
}
