//! CRC-32C (ours) and CRC-32 (zbus, Beats), by libraries that use the processor's instructions.

/// CRC-32C of `parts`, one after the other.
#[inline]
pub fn crc32c(parts: &[&[u8]]) -> u32 {
    parts.iter().fold(0, |crc, part| crc32c::crc32c_append(crc, part))
}

/// CRC-32 (IEEE) of `bytes`.
#[inline]
pub fn crc32(bytes: &[u8]) -> u32 {
    u32::try_from(crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, bytes)).unwrap_or(0)
}

/// A 64-bit name for a key, never 0. Two keys that share one merely wait for each other.
pub fn key_hash(key: &[u8]) -> u64 {
    if key.is_empty() {
        0
    } else {
        crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, key).max(1)
    }
}
