//! One key per segment, one nonce per offset: AES-256-GCM-SIV by a library.
//!
//! The segment's key is derived from the queue's key, the queue id, the segment's base and a salt
//! that is drawn when the segment is created. An offset is written at most once under one salt:
//! after an unclean end the segment is closed and a new one begun, so no nonce comes twice.

use aes_gcm_siv::aead::{Aead, KeyInit, Payload};
use aes_gcm_siv::{Aes256GcmSiv, Nonce};
use hkdf::Hkdf;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use sha2::Sha256;
use zeroize::Zeroize;

/// Bytes that authentication adds to a frame.
pub const TAG_BYTES: usize = 16;
/// Length of a queue's key.
pub const KEY_BYTES: usize = 32;
const SALT_BYTES: usize = 16;

/// The cipher of one segment.
pub struct SegmentCipher {
    aead: Aes256GcmSiv,
    place: [u8; 24],
}

impl SegmentCipher {
    /// Derives the segment's key.
    pub fn new(key: &[u8], queue_id: &[u8; 16], base: u64, salt: &[u8]) -> Option<Self> {
        if key.len() != KEY_BYTES {
            return None;
        }
        let mut place = [0u8; 24];
        place.get_mut(..16)?.copy_from_slice(queue_id);
        place.get_mut(16..)?.copy_from_slice(&base.to_le_bytes());
        let mut derived = [0u8; KEY_BYTES];
        Hkdf::<Sha256>::new(Some(salt), key).expand(&place, &mut derived).ok()?;
        let aead = Aes256GcmSiv::new_from_slice(&derived).ok()?;
        derived.zeroize();
        Some(Self { aead, place })
    }

    fn nonce(offset: u64) -> Nonce {
        let mut nonce = [0u8; 12];
        nonce[4..].copy_from_slice(&offset.to_be_bytes());
        nonce.into()
    }

    fn associated(&self, offset: u64, header: &[u8]) -> Vec<u8> {
        let mut data = Vec::with_capacity(self.place.len() + 8 + header.len());
        data.extend_from_slice(&self.place);
        data.extend_from_slice(&offset.to_le_bytes());
        data.extend_from_slice(header);
        data
    }

    /// Encrypts `plain`; moving or editing the frame or its header makes `open` fail.
    pub fn encrypt(&self, offset: u64, header: &[u8], plain: &[u8]) -> Option<Vec<u8>> {
        let aad = self.associated(offset, header);
        self.aead.encrypt(&Self::nonce(offset), Payload { msg: plain, aad: &aad }).ok()
    }

    /// Decrypts, or none when the key is another one or anything was changed.
    pub fn decrypt(&self, offset: u64, header: &[u8], encrypted: &[u8]) -> Option<Vec<u8>> {
        let aad = self.associated(offset, header);
        self.aead.decrypt(&Self::nonce(offset), Payload { msg: encrypted, aad: &aad }).ok()
    }
}

/// Encrypts `data` under a key of its own, derived from `key` and a fresh salt that goes first.
/// `context` must be the same when it is opened.
#[pyfunction]
pub fn encrypt_bytes<'py>(
    py: Python<'py>,
    key: &[u8],
    data: &[u8],
    context: &[u8],
) -> PyResult<Bound<'py, PyBytes>> {
    let mut salt = [0u8; SALT_BYTES];
    let failed = |_| pyo3::exceptions::PyOSError::new_err("no random bytes");
    getrandom::fill(&mut salt).map_err(failed)?;
    let encrypted = one_off(key, &salt).and_then(|cipher| cipher.encrypt(0, context, data));
    let encrypted =
        encrypted.ok_or_else(|| pyo3::exceptions::PyValueError::new_err("no such key"))?;
    Ok(PyBytes::new(py, &[&salt, encrypted.as_slice()].concat()))
}

/// What `encrypt_bytes` encrypted; `ValueError` when the key is another one or anything was
/// changed.
#[pyfunction]
pub fn decrypt_bytes<'py>(
    py: Python<'py>,
    key: &[u8],
    data: &[u8],
    context: &[u8],
) -> PyResult<Bound<'py, PyBytes>> {
    let opened = data.split_at_checked(SALT_BYTES).and_then(|(salt, encrypted)| {
        one_off(key, salt).and_then(|cipher| cipher.decrypt(0, context, encrypted))
    });
    let text = "another key encrypted this, or it was changed";
    let opened = opened.ok_or_else(|| pyo3::exceptions::PyValueError::new_err(text))?;
    Ok(PyBytes::new(py, &opened))
}

/// A key for one use: 16-byte keys (Beats) are stretched to the length that the cipher has.
fn one_off(key: &[u8], salt: &[u8]) -> Option<SegmentCipher> {
    let mut stretched = [0u8; KEY_BYTES];
    Hkdf::<Sha256>::new(Some(salt), key).expand(b"penstock staging", &mut stretched).ok()?;
    let cipher = SegmentCipher::new(&stretched, &[0; 16], 0, salt);
    stretched.zeroize();
    cipher
}
