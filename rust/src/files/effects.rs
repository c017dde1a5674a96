//! File effects for Python, so that its own file operations are in the effect log too.

use std::fs::File;
use std::os::fd::IntoRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use pyo3::prelude::*;

use crate::bytes::words;
use crate::errors;
use crate::files::region;
use crate::sys::files;

/// How many zeros are written by one call. For a whole file they are few, so that a later sync has
/// little to do.
const ZEROS_BYTES: usize = 64 << 10;
/// For the beginning of a file alone, for a writer that fills the rest soon.
const BLOCK_BYTES: usize = 256 << 10;

/// Replaces a file: temporary file, sync, rename, sync of the folder.
#[pyfunction]
#[pyo3(signature = (path, data, *, synced=true))]
pub fn replace_file(py: Python<'_>, path: PathBuf, data: &[u8], synced: bool) -> PyResult<()> {
    py.detach(|| region::replace(&path, data, synced)).map_err(|error| errors::os(error, &path))
}

/// Creates a file of `size` bytes that really exist; the first `zeroed` of them are written, so that
/// the first store to a page later costs no allocation. Of a whole file each piece is followed by a
/// rest of `rest_ns`. With `synced` it is synced. If that fails, there is no file.
#[pyfunction]
#[pyo3(signature = (path, size, *, head=None, zeroed=0, rest_ns=0, synced=false))]
pub fn create_file(
    py: Python<'_>,
    path: PathBuf,
    size: u64,
    head: Option<&[u8]>,
    zeroed: u64,
    rest_ns: u64,
    synced: bool,
) -> PyResult<()> {
    let fill = |file: &File| -> std::io::Result<()> {
        region::allocate(file, size)?;
        match zeroed < size {
            true => fill_zeros(file, zeroed, BLOCK_BYTES, Duration::ZERO)?,
            false => fill_zeros(file, size, ZEROS_BYTES, Duration::from_nanos(rest_ns))?,
        }
        if let Some(head) = head {
            region::write_at(file, 0, head)?;
        }
        if synced { region::sync(file) } else { Ok(()) }
    };
    py.detach(|| {
        let file = region::create(&path)?;
        fill(&file).inspect_err(|_| {
            // Or each try on a full disk leaves a file; an error here would hide that of the try.
            let _ = region::unlink(&path);
        })
    })
    .map_err(|error| errors::os(error, &path))
}

fn fill_zeros(file: &File, end: u64, piece: usize, rest: Duration) -> std::io::Result<()> {
    let zeros = vec![0u8; piece.min(words::size(end))];
    let mut at = 0;
    while at < end {
        let part = zeros.get(..words::size(end - at).min(piece)).unwrap_or_default();
        file.write_all_at(part, at)?;
        at += part.len() as u64;
        if !rest.is_zero() {
            thread::sleep(rest);
        }
    }
    Ok(())
}

/// Makes a folder: its owner's alone, or like the file or folder `like` and for the same users.
/// One that is there already is fine.
#[pyfunction]
#[pyo3(signature = (path, like=None))]
pub fn make_folder(path: PathBuf, like: Option<PathBuf>) -> PyResult<()> {
    match region::make_folder(&path, like.as_deref()) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        other => Ok(other?),
    }
}

/// Writes bytes into an existing file.
#[pyfunction]
#[pyo3(signature = (path, at, data, *, synced=false))]
pub fn write_file(
    py: Python<'_>,
    path: PathBuf,
    at: u64,
    data: &[u8],
    synced: bool,
) -> PyResult<()> {
    py.detach(|| -> std::io::Result<()> {
        let file = region::open(&path, true)?;
        region::write_at(&file, at, data)?;
        if synced { region::sync(&file) } else { Ok(()) }
    })
    .map_err(|error| errors::os(error, &path))
}

/// Cuts or extends a file.
#[pyfunction]
pub fn resize_file(py: Python<'_>, path: PathBuf, size: u64) -> PyResult<()> {
    py.detach(|| region::set_len(&region::open(&path, true)?, size))
        .map_err(|error| errors::os(error, &path))
}

/// Renames a file.
#[pyfunction]
pub fn rename_file(py: Python<'_>, source: PathBuf, target: PathBuf) -> PyResult<()> {
    py.detach(|| region::rename(&source, &target)).map_err(|error| errors::os(error, &target))
}

/// Unlinks a file; a missing one is no error. With the last name of a file go its pages, and that
/// takes a millisecond for a few megabytes.
#[pyfunction]
pub fn unlink_file(py: Python<'_>, path: PathBuf) -> PyResult<bool> {
    match py.detach(|| region::unlink(&path)) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(errors::os(error, &path)),
    }
}

/// Opens a small file that is locked or changed in place, and makes it where it is missing. Answers
/// its descriptor, which the caller closes.
#[pyfunction]
pub fn open_or_create(path: PathBuf) -> PyResult<i32> {
    region::open_or_create(&path).map(IntoRawFd::into_raw_fd).map_err(|e| errors::os(e, &path))
}

/// Syncs a file.
#[pyfunction]
pub fn sync_file(py: Python<'_>, path: PathBuf) -> PyResult<()> {
    py.detach(|| region::sync(&region::open(&path, true)?))
        .map_err(|error| errors::os(error, &path))
}

/// Syncs a folder's names.
#[pyfunction]
pub fn sync_folder(py: Python<'_>, path: PathBuf) -> PyResult<()> {
    py.detach(|| region::sync_folder(&path)).map_err(|error| errors::os(error, &path))
}

/// The magic number of the file system that holds `path`.
#[pyfunction]
pub fn file_system(path: PathBuf) -> PyResult<i64> {
    let found = std::fs::File::open(&path).and_then(|file| files::file_system(&file));
    found.map_err(|error| errors::os(error, &path))
}
