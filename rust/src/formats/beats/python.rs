//! What Python uses of the Beats format.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::cipher::{KEY_BYTES, Keystream};
use super::encode::Encoding;
use super::macs::{self, Chain};
use super::publish::{FileEnd, StreamEnd};
use super::state::StateFile;
use super::{BeatsFrames, Ready, lz4};
use crate::bytes::words;
use crate::errors;
use crate::files::region;
use crate::formats::mirror::PyMirror;
use crate::segment::frame::Fault;
use crate::segment::publish::PyPublish;
use crate::segment::side_files::SideFiles;
use crate::segment::walk::{Care, Met, Walk};
use crate::segment::{PyFrames, PySegment, Segment};
use crate::sys::memory;

/// Damage: byte of the file, bytes concerned, found, expected.
type Note = (usize, usize, String, String);

fn framing(encoding: &str, wide_flags: bool) -> BeatsFrames {
    BeatsFrames {
        name: BeatsFrames::new_name(),
        encoding: if encoding == "json" { Encoding::Json } else { Encoding::Cbor },
        keystream: None,
        is_packed: false,
        max_flags: if wide_flags { u64::from(u32::MAX) } else { u64::from(u8::MAX) },
        broken: None,
        ready: Mutex::new(Ready::default()),
    }
}

/// The framing of a segment: `encoding` is json or cbor, `packed` says that each event is an LZ4
/// block. With `key`, frames are encrypted from byte `data_at` of the file on.
#[pyfunction]
#[pyo3(signature = (encoding, *, packed=false, wide_flags=false, key=None, iv=None, data_at=0))]
pub fn beats_frames(
    encoding: &str,
    packed: bool,
    wide_flags: bool,
    key: Option<[u8; KEY_BYTES]>,
    iv: Option<[u8; KEY_BYTES]>,
    data_at: usize,
) -> PyFrames {
    let mut frames = framing(encoding, wide_flags);
    frames.is_packed = packed;
    frames.keystream = key.map(|key| Keystream::new(&key, iv.unwrap_or_default(), data_at));
    PyFrames(Arc::new(frames))
}

fn read_stream(
    path: &Path,
    data_at: usize,
    key: Option<[u8; KEY_BYTES]>,
    iv: Option<[u8; KEY_BYTES]>,
) -> std::io::Result<Vec<u8>> {
    let mut file = region::open(path, false)?;
    let mut bytes = Vec::new();
    let len = words::size(file.metadata()?.len());
    if !memory::reserve(&mut bytes, len) || !memory::has_room(len.saturating_mul(2)) {
        return Err(errors::located(memory::none_left_io(), path));
    }
    std::io::Read::read_to_end(&mut file, &mut bytes)?;
    let mut data = bytes.split_off(data_at.min(bytes.len()));
    if let Some(key) = key {
        Keystream::new(&key, iv.unwrap_or_default(), 0).from(0).apply(&mut data);
    }
    Ok(data)
}

/// What was unpacked, unless memory ran out over it.
fn unpacked(found: lz4::Unpacked, path: &Path) -> std::io::Result<lz4::Unpacked> {
    if found.is_out_of_memory() {
        return Err(errors::located(memory::none_left_io(), path));
    }
    Ok(found)
}

/// A stream, for the fuzzer's seeds.
#[cfg(test)]
pub fn fuzz_pack(plain: &[u8]) -> Vec<u8> {
    lz4::pack_stream(plain)
}

/// Unpacks a stream of any bytes, for the fuzzer.
#[cfg(any(test, feature = "fuzzing"))]
pub fn fuzz_stream(data: &[u8]) {
    let _ = lz4::unpack_stream(data, true).plain.len();
    let _ = lz4::open_end(data);
}

/// Opens a segment that is one compressed stream: unpacked, with its first frame at logical
/// position `first`. Also answers damage that did not stop the unpacking.
#[pyfunction]
#[pyo3(signature = (path, base, first, *, data_at, key=None, iv=None, extras=None))]
#[allow(clippy::too_many_arguments)]
pub fn beats_stream(
    py: Python<'_>,
    path: PathBuf,
    base: u64,
    first: usize,
    data_at: usize,
    key: Option<[u8; KEY_BYTES]>,
    iv: Option<[u8; KEY_BYTES]>,
    extras: Option<PathBuf>,
) -> PyResult<(PySegment, Vec<Note>)> {
    let found = py.detach(|| -> std::io::Result<_> {
        let data = read_stream(&path, data_at, key, iv)?;
        unpacked(lz4::unpack_stream(&data, false), &path)
    })?;
    let mut frames = framing("cbor", true);
    let len = found.plain.len() as u64;
    frames.broken =
        found.broken.map(|(at, _, found, expected)| Fault::new(data_at + at, found, expected));
    // One byte more than there is: a reader that gets to the end then meets the fault.
    let end = base + len + u64::from(frames.broken.is_some());
    let mut bytes = found.plain;
    bytes.splice(0..0, std::iter::repeat_n(0, first));
    let sides = extras
        .map(|folder| SideFiles::new(Some(folder), None, base, 0, false, false))
        .transpose()?;
    let (place, sides) = ((path, base, first), sides.map(Arc::new));
    let segment = Segment::owned(place, bytes, 0, base..end, Arc::new(frames), sides);
    let notes = found.notes.into_iter().map(|(at, len, a, b)| (data_at + at, len, a, b)).collect();
    Ok((PySegment(Arc::new(segment)), notes))
}

/// What a broken block of a compressed stream still gave, and the plain bytes of the blocks that
/// stand behind it.
#[pyfunction]
#[pyo3(signature = (path, *, data_at, key=None, iv=None))]
pub fn beats_stream_rest<'py>(
    py: Python<'py>,
    path: PathBuf,
    data_at: usize,
    key: Option<[u8; KEY_BYTES]>,
    iv: Option<[u8; KEY_BYTES]>,
) -> PyResult<(Bound<'py, PyBytes>, Vec<Bound<'py, PyBytes>>)> {
    let found = py.detach(|| -> std::io::Result<_> {
        let data = read_stream(&path, data_at, key, iv)?;
        unpacked(lz4::unpack_stream(&data, true), &path)
    })?;
    let saved = memory::bytes_object(py, found.plain.get(found.saved_at..).unwrap_or_default())?;
    let behind = found.behind.iter().map(|piece| memory::bytes_object(py, piece));
    Ok((saved, behind.collect::<PyResult<_>>()?))
}

/// `plain` as a closed stream.
#[pyfunction]
pub fn beats_pack_stream<'py>(py: Python<'py>, plain: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    if !memory::has_room(plain.len().saturating_mul(3)) {
        return Err(memory::none_left(plain.len()));
    }
    memory::bytes_object(py, &py.detach(|| lz4::pack_stream(plain)))
}

/// The byte of a file where the blocks of its open stream end; the rest of it is a hole.
#[pyfunction]
pub fn beats_open_end(py: Python<'_>, path: PathBuf, data_at: usize) -> PyResult<usize> {
    let found = py.detach(|| -> std::io::Result<_> {
        Ok(data_at + lz4::open_end(&read_stream(&path, data_at, None, None)?))
    })?;
    Ok(found)
}

/// What ends an open stream that holds `plain`.
#[pyfunction]
pub fn beats_stream_end<'py>(py: Python<'py>, plain: &[u8]) -> Bound<'py, PyBytes> {
    PyBytes::new(py, &py.detach(|| lz4::ending(plain)))
}

/// Whether `plain` begins like a compressed stream.
#[pyfunction]
pub fn beats_is_stream(plain: &[u8]) -> bool {
    lz4::is_stream(plain)
}

/// Encrypts or decrypts `data`, which stands `at` bytes behind the first encrypted one.
#[pyfunction]
#[pyo3(signature = (key, iv, data, *, at=0))]
pub fn beats_crypt<'py>(
    py: Python<'py>,
    key: [u8; KEY_BYTES],
    iv: [u8; KEY_BYTES],
    data: &[u8],
    at: usize,
) -> Bound<'py, PyBytes> {
    let mut out = data.to_vec();
    Keystream::new(&key, iv, 0).from(at).apply(&mut out);
    PyBytes::new(py, &out)
}

/// How an end is published; with `stream`, for segments that are written as one: the queue's
/// folder, that of their plain copies, and where frames begin in these; with `mac_key`, the queue's
/// key, every frame gets a tag beside its segment.
#[pyfunction]
#[pyo3(signature = (stream=None, *, mac_key=None))]
pub fn beats_publish(
    stream: Option<(PathBuf, PathBuf, u64)>,
    mac_key: Option<[u8; KEY_BYTES]>,
) -> PyPublish {
    match stream {
        None => PyPublish(Arc::new(FileEnd::new(mac_key))),
        Some((folder, copies, header_bytes)) => {
            PyPublish(Arc::new(StreamEnd::new(folder, copies, header_bytes)))
        }
    }
}

/// `state.dat` at `path` as a group's own file; `host` has `segment_of(offset)`.
#[pyfunction]
pub fn beats_state(path: PathBuf, version: u32, host: Py<PyAny>) -> PyResult<PyMirror> {
    Ok(PyMirror(Arc::new(StateFile::open(&path, version, host)?)))
}

/// Closes the tags of a segment that ends at `end`.
#[pyfunction]
pub fn beats_close_macs(
    py: Python<'_>,
    segment: &PySegment,
    path: PathBuf,
    key: [u8; KEY_BYTES],
    iv: [u8; KEY_BYTES],
    end: u64,
) -> PyResult<()> {
    let chain = Chain::new(&key, macs::id(segment.0.base()), iv);
    Ok(py.detach(|| macs::close(&path, chain, &segment.0, end))?)
}

/// What the tags say about the frames up to `end`: `(offset, found)` for each fault.
#[pyfunction]
pub fn beats_check_macs(
    py: Python<'_>,
    segment: &PySegment,
    tags: &[u8],
    key: [u8; KEY_BYTES],
    iv: [u8; KEY_BYTES],
    end: u64,
) -> Vec<(u64, String)> {
    let chain = Chain::new(&key, macs::id(segment.0.base()), iv);
    py.detach(|| macs::check(tags, chain, &segment.0, end))
}

/// Every whole frame of `[start, limit)`, also behind damage: `(offset, size, crc)`.
#[pyfunction]
pub fn beats_whole_frames(
    py: Python<'_>,
    segment: &PySegment,
    start: u64,
    limit: u64,
) -> Vec<(u64, usize, u32)> {
    py.detach(|| {
        let (segment, mut spans) = (&*segment.0, Vec::new());
        let mut walk = Walk::new(segment, start, limit, Care::Checksums);
        while let Some((offset, met)) = walk.next() {
            match met {
                Met::Frame => {
                    let size = walk.view.size;
                    let crc = words::u32_le(&plain_frame(segment, offset, size), size - 8);
                    spans.push((offset, size, crc.unwrap_or(0)));
                }
                Met::Gap(_) => {}
                Met::Damage(..) if walk.pass_damage() => {}
                Met::Damage(..) => break,
            }
        }
        spans
    })
}

fn plain_frame(segment: &Segment, offset: u64, size: usize) -> Vec<u8> {
    let (bytes, at) = segment.window(offset, offset.saturating_add(size as u64));
    segment.frames().plain_bytes(bytes, at).into_owned()
}

/// The bytes of a frame before encryption.
#[pyfunction]
pub fn beats_plain_frame<'py>(
    py: Python<'py>,
    segment: &PySegment,
    offset: u64,
    size: usize,
) -> Bound<'py, PyBytes> {
    PyBytes::new(py, &plain_frame(&segment.0, offset, size))
}
