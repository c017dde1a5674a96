//! CRC-32C of a few words in registers, by the processor's own instruction. The libraries take
//! bytes in memory: for a record that was put together just now the way there and back costs three
//! times what the checksum does.

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
    use std::arch::x86_64::{_mm_crc32_u32, _mm_crc32_u64};

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
