//! What Python uses of our own format: its framing and its end; and what it needs of every
//! format: checksums and tag filters. Each other format has its own functions for Python.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::bytes::cipher::SegmentCipher;
use crate::segment::PyFrames;
use crate::segment::penstock_frame::PenstockFrames;
use crate::segment::publish::PyPublish;
use crate::segment::publish::SizeWord;

/// The framing of a `penstock` segment; with `key` (32 bytes) and `salt` an encrypted one.
#[pyfunction]
#[pyo3(signature = (queue_id, base, *, compress=false, encrypted=false, key=None, salt=None))]
pub fn penstock_frames(
    queue_id: [u8; 16],
    base: u64,
    compress: bool,
    encrypted: bool,
    key: Option<&[u8]>,
    salt: Option<&[u8]>,
) -> PyResult<PyFrames> {
    let wrong = || pyo3::exceptions::PyValueError::new_err("a queue's key has 32 bytes");
    let cipher = match (encrypted, key) {
        (true, Some(key)) => Some(
            SegmentCipher::new(key, &queue_id, base, salt.unwrap_or_default()).ok_or_else(wrong)?,
        ),
        _ => None,
    };
    Ok(PyFrames(Arc::new(PenstockFrames { cipher, is_encrypted: encrypted, compress })))
}

/// What only someone with the queue's key can say about the segment header `header`: 16 bytes that
/// stand behind it, and prove the key before it is used for anything.
#[pyfunction]
pub fn penstock_key_check<'py>(
    py: Python<'py>,
    key: &[u8],
    queue_id: [u8; 16],
    base: u64,
    salt: &[u8],
    header: &[u8],
) -> PyResult<Bound<'py, PyBytes>> {
    let wrong = || pyo3::exceptions::PyValueError::new_err("a queue's key has 32 bytes");
    // No message is at this offset: the nonce is never another one's.
    let check = SegmentCipher::new(key, &queue_id, base, salt)
        .and_then(|cipher| cipher.encrypt(u64::MAX, header, b""));
    Ok(PyBytes::new(py, &check.ok_or_else(wrong)?))
}

/// The end of a `penstock` segment: the first frame's size word.
#[pyfunction]
pub fn publish_size_word() -> PyPublish {
    PyPublish(Arc::new(SizeWord))
}

/// CRC-32C of `data`.
#[pyfunction]
pub fn crc32c(data: &[u8]) -> u32 {
    crate::bytes::checksum::crc32c(data)
}

/// CRC-32 (IEEE) of `data`.
#[pyfunction]
pub fn crc32(data: &[u8]) -> u32 {
    crate::bytes::checksum::crc32(data)
}

/// Whether `tag` passes the filter.
#[pyfunction]
#[pyo3(signature = (tags, tag, dialect = "modern"))]
pub fn tag_matches(tags: &str, tag: &str, dialect: &str) -> PyResult<bool> {
    let unknown =
        || pyo3::exceptions::PyValueError::new_err(format!("no tag dialect is called {dialect}"));
    let dialect = crate::bytes::tags::dialect(dialect).ok_or_else(unknown)?;
    Ok(crate::bytes::tags::Filter::new(tags, dialect).matches(tag.as_bytes()))
}
