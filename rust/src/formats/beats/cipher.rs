//! AES-128 in counter mode, as the Beats disk queue has it: one keystream per segment.
//!
//! The counter block is the segment's IV, counted up as one big-endian 128-bit number. There is
//! no authentication: what was changed on the disk is noticed by the frame's checksum alone.

use aes::Aes128;
use ctr::cipher::{InnerIvInit, KeyInit, StreamCipher, StreamCipherSeek};
use ctr::{Ctr128BE, CtrCore};

/// Length of a queue's key, and of a segment's IV.
pub const KEY_BYTES: usize = 16;

/// The keystream of one segment.
pub struct Keystream {
    aes: Aes128,
    iv: [u8; KEY_BYTES],
    /// The byte of the file that the keystream's first byte is for.
    data_at: usize,
}

/// The keystream from some byte on.
pub struct Running(Ctr128BE<Aes128>);

impl Keystream {
    /// The keystream of the segment with this IV, whose frames begin at byte `data_at`.
    pub fn new(key: &[u8; KEY_BYTES], iv: [u8; KEY_BYTES], data_at: usize) -> Self {
        Self { aes: Aes128::new(&(*key).into()), iv, data_at }
    }

    /// The keystream from byte `at` of the file on.
    pub fn from(&self, at: usize) -> Running {
        let core = CtrCore::inner_iv_init(self.aes.clone(), &self.iv.into());
        let mut stream = Ctr128BE::from_core(core);
        stream.seek(at.saturating_sub(self.data_at) as u64);
        Running(stream)
    }
}

impl Running {
    /// Encrypts or decrypts the next bytes.
    pub fn apply(&mut self, bytes: &mut [u8]) {
        self.0.apply_keystream(bytes);
    }
}
