//! CRC-32C of few bytes, by the processor's own instruction. The libraries are made for many: they
//! want a record, which was put together in registers, as bytes in memory, and the way there and
//! back costs three times what the checksum does. For a short frame, their choice of a method costs
//! as much as the checksum.

/// CRC-32C of `bytes`, begun with `seed` in the register. None where the processor has no
/// instruction for it.
#[inline]
pub fn of_bytes(seed: u32, bytes: &[u8]) -> Option<u32> {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has the instructions that the function is compiled with.
        return Some(unsafe { x86::of_bytes(seed, bytes) });
    }
    let _ = (seed, bytes);
    None
}

/// CRC-32C of `words` without the low half of the first, begun with `seed` in the register. None
/// where the processor has no instruction for it.
#[inline]
pub fn of_words(seed: u32, words: &[u64]) -> Option<u32> {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has the instructions that the function is compiled with.
        return Some(unsafe { x86::of_words(seed, words) });
    }
    let _ = (seed, words);
    None
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u32, _mm_crc32_u64};

    #[inline]
    #[target_feature(enable = "sse4.2")]
    pub fn of_bytes(seed: u32, bytes: &[u8]) -> u32 {
        let (words, rest) = bytes.as_chunks::<8>();
        let add = |register, word: &[u8; 8]| _mm_crc32_u64(register, u64::from_le_bytes(*word));
        let register = words.iter().fold(u64::from(seed), add);
        let mut register = u32::try_from(register & u64::from(u32::MAX)).unwrap_or(0);
        let (halves, rest) = rest.as_chunks::<4>();
        if let Some(half) = halves.first() {
            register = _mm_crc32_u32(register, u32::from_le_bytes(*half));
        }
        !rest.iter().fold(register, |register, byte| _mm_crc32_u8(register, *byte))
    }

    #[inline]
    #[target_feature(enable = "sse4.2")]
    pub fn of_words(seed: u32, words: &[u64]) -> u32 {
        let Some((first, rest)) = words.split_first() else { return !seed };
        let high = u32::try_from(first >> 32).unwrap_or(0);
        let begun = u64::from(_mm_crc32_u32(seed, high));
        let register = rest.iter().fold(begun, |register, word| _mm_crc32_u64(register, *word));
        !u32::try_from(register & u64::from(u32::MAX)).unwrap_or(0)
    }
}
