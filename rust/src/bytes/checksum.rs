//! CRC-32C (ours) and CRC-32 (zbus, Beats), by libraries that use the processor's instructions.

use crc_fast::{CrcAlgorithm, Digest};

use crate::sys::crc;

/// CRC-32C of `bytes`.
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// CRC-32C of `bytes`, begun with `seed` in its register instead of all ones: what a frame's
/// checksum is, so that it covers the size without a second pass.
#[inline]
pub fn crc32c_seeded(seed: u32, bytes: &[u8]) -> u32 {
    // The library is the faster one for many bytes.
    crc::of_bytes(seed, bytes).unwrap_or_else(|| by_library(seed, bytes))
}

#[inline]
fn by_library(seed: u32, bytes: &[u8]) -> u32 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(seed));
    digest.update(bytes);
    u32::try_from(digest.finalize()).unwrap_or(0)
}

/// The same of words that are not in memory yet: little-endian, without the low half of the first,
/// which is where the checksum goes.
#[inline]
pub fn crc32c_words(seed: u32, words: &[u64]) -> u32 {
    crc::of_words(seed, words).unwrap_or_else(|| {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        crc32c_seeded(seed, bytes.get(4..).unwrap_or_default())
    })
}

/// CRC-32C of what came before (`crc`) and then `bytes`.
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    crc32c_seeded(!crc, bytes)
}

/// CRC-32 (IEEE) of `bytes`. For a frame of some hundred bytes this library takes a third of the
/// time of the other one, which is the faster for CRC-32C.
#[inline]
pub fn crc32(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

/// A 64-bit name for a key, never 0. Two keys that share one merely wait for each other.
pub fn key_hash(key: &[u8]) -> u64 {
    if key.is_empty() { 0 } else { crc_fast::checksum(CrcAlgorithm::Crc64Nvme, key).max(1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_checksum_is_the_one_of_the_library() {
        let bytes: Vec<u8> = (0..crc::MOST_BYTES + 100).map(|at| words_byte(at)).collect();
        for len in 0..bytes.len() {
            let some = bytes.get(..len).unwrap_or_default();
            for seed in [0, 1, 136, u32::MAX] {
                assert_eq!(crc32c_seeded(seed, some), by_library(seed, some), "{len} bytes");
            }
        }
    }

    fn words_byte(at: usize) -> u8 {
        u8::try_from((at * at + 7 * at) % 251).unwrap_or(0)
    }
}
