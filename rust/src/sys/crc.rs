//! CRC-32C of few bytes, by the processor's own instruction. The libraries are made for many: they
//! want a record, which was put together in registers, as bytes in memory, and the way there and
//! back costs three times what the checksum does. For a short frame, their choice of a method costs
//! as much as the checksum.

/// From so many bytes on, parts of them side by side are quicker than one after the other.
#[cfg(target_arch = "x86_64")]
const LEAST_BYTES: usize = 72;
/// From so many on, six parts are quicker than four.
#[cfg(target_arch = "x86_64")]
const MANY_BYTES: usize = 400;
/// How many words of eight bytes `of_bytes` takes at most.
const MOST_WORDS: usize = 192;
/// The same in bytes.
pub const MOST_BYTES: usize = MOST_WORDS * 8 + 7;

/// CRC-32C of `bytes`, begun with `seed` in the register. None where the processor has no
/// instruction for it, or where there are more than `MOST_BYTES`.
#[inline]
pub fn of_bytes(seed: u32, bytes: &[u8]) -> Option<u32> {
    if bytes.len() > MOST_BYTES {
        return None;
    }
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("sse4.2") {
        if bytes.len() >= LEAST_BYTES && is_x86_feature_detected!("pclmulqdq") {
            // SAFETY: the processor has the instructions that the functions are compiled with.
            return Some(unsafe {
                match bytes.len() < MANY_BYTES {
                    true => x86::of_parts(seed, bytes),
                    false => x86::of_six_parts(seed, bytes),
                }
            });
        }
        // SAFETY: as above.
        return Some(unsafe { x86::of_bytes(seed, bytes) });
    }
    let _ = (seed, bytes);
    None
}

/// Something that computes many checksums.
pub trait Work {
    /// What comes of it.
    type Answer;

    /// Does it with this CRC-32C, begun with a seed. To be inlined.
    fn run(self, sum: impl Fn(u32, &[u8]) -> u32) -> Self::Answer;
}

/// Does `work` with a checksum that is compiled into it, where the processor has an instruction
/// for it: the checksums of several frames are then computed at the same time, and many of them
/// take a third of the time. Frames of many bytes, and other processors, get `other`.
#[inline(always)]
pub fn compiled_in<W: Work>(work: W, other: impl Fn(u32, &[u8]) -> u32) -> W::Answer {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has the instructions that the function is compiled with.
        return unsafe { x86::compiled_in(work, other) };
    }
    work.run(other)
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
    use std::arch::x86_64::{
        _mm_clmulepi64_si128, _mm_crc32_u8, _mm_crc32_u32, _mm_crc32_u64, _mm_cvtsi64_si128,
        _mm_cvtsi128_si64,
    };

    /// So few bytes are taken one after the other where other frames are under way as well.
    const FEW_BYTES: usize = 512;

    #[target_feature(enable = "sse4.2")]
    pub fn compiled_in<W: super::Work>(work: W, other: impl Fn(u32, &[u8]) -> u32) -> W::Answer {
        work.run(
            #[inline(always)]
            |seed, bytes| match bytes.len() < FEW_BYTES {
                true => of_bytes(seed, bytes),
                false => other(seed, bytes),
            },
        )
    }

    #[inline]
    #[target_feature(enable = "sse4.2")]
    pub fn of_bytes(seed: u32, bytes: &[u8]) -> u32 {
        let (words, rest) = bytes.as_chunks::<8>();
        of_rest(add(u64::from(seed), words), rest)
    }

    /// As `of_bytes`. Each instruction waits three cycles for the one before it: so four parts are
    /// gone through side by side, and put together at the end. The last part is longer than the
    /// others, since it is not shifted to its place.
    #[inline]
    #[target_feature(enable = "sse4.2,pclmulqdq")]
    pub fn of_parts(seed: u32, bytes: &[u8]) -> u32 {
        let (words, rest) = bytes.as_chunks::<8>();
        let each = words.len().saturating_sub(SHIFTING_WORDS) / 4;
        let (first, behind) = words.split_at(each);
        let (second, behind) = behind.split_at(each);
        let (third, fourth) = behind.split_at(each);
        let (begun, left) = fourth.split_at(each);
        let mut parts = [u64::from(seed), 0, 0, 0];
        for (((a, b), c), d) in first.iter().zip(second).zip(third).zip(begun) {
            parts = [next(parts[0], a), next(parts[1], b), next(parts[2], c), next(parts[3], d)];
        }
        let [a, b, c, d] = parts;
        let (from_b, from_c) = (words.len() - each, words.len() - 2 * each);
        let shifted = shift(a, from_b) ^ shift(b, from_c) ^ shift(c, fourth.len());
        of_rest(add(d, left) ^ _mm_crc32_u64(0, shifted), rest)
    }

    /// As `of_parts`: two more parts are two more shifts, and a third less to go through.
    #[inline]
    #[target_feature(enable = "sse4.2,pclmulqdq")]
    pub fn of_six_parts(seed: u32, bytes: &[u8]) -> u32 {
        let (words, rest) = bytes.as_chunks::<8>();
        let each = words.len().saturating_sub(SHIFTING_WORDS) / 6;
        let (first, behind) = words.split_at(each);
        let (second, behind) = behind.split_at(each);
        let (third, behind) = behind.split_at(each);
        let (fourth, behind) = behind.split_at(each);
        let (fifth, sixth) = behind.split_at(each);
        let (begun, left) = sixth.split_at(each);
        let [mut a, mut b, mut c, mut d, mut e, mut f] = [u64::from(seed), 0, 0, 0, 0, 0];
        let halves = (first.iter().zip(second).zip(third), fourth.iter().zip(fifth).zip(begun));
        for (((u, v), w), ((x, y), z)) in halves.0.zip(halves.1) {
            [a, b, c] = [next(a, u), next(b, v), next(c, w)];
            [d, e, f] = [next(d, x), next(e, y), next(f, z)];
        }
        let behind = |part: usize| words.len() - part * each;
        let shifted = shift(a, behind(1))
            ^ shift(b, behind(2))
            ^ shift(c, behind(3))
            ^ shift(d, behind(4))
            ^ shift(e, sixth.len());
        of_rest(add(f, left) ^ _mm_crc32_u64(0, shifted), rest)
    }

    #[inline]
    #[target_feature(enable = "sse4.2")]
    fn next(register: u64, word: &[u8; 8]) -> u64 {
        _mm_crc32_u64(register, u64::from_le_bytes(*word))
    }

    #[inline]
    #[target_feature(enable = "sse4.2")]
    fn add(mut register: u64, words: &[[u8; 8]]) -> u64 {
        for word in words {
            register = next(register, word);
        }
        register
    }

    /// The end: fewer than eight bytes.
    #[inline]
    #[target_feature(enable = "sse4.2")]
    fn of_rest(register: u64, rest: &[u8]) -> u32 {
        let mut register = u32::try_from(register & u64::from(u32::MAX)).unwrap_or(0);
        let (halves, rest) = rest.as_chunks::<4>();
        if let Some(half) = halves.first() {
            register = _mm_crc32_u32(register, u32::from_le_bytes(*half));
        }
        !rest.iter().fold(register, |register, byte| _mm_crc32_u8(register, *byte))
    }

    /// What a register becomes by `words` zeros behind it, but for a last step of zeros.
    #[inline]
    #[target_feature(enable = "pclmulqdq")]
    fn shift(register: u64, words: usize) -> u64 {
        let by = POWERS.get(words).copied().unwrap_or_default();
        let product = _mm_clmulepi64_si128::<0>(
            _mm_cvtsi64_si128(register.cast_signed()),
            _mm_cvtsi64_si128(by.cast_signed()),
        );
        _mm_cvtsi128_si64(product).cast_unsigned()
    }

    /// About as long as the other parts take to be shifted.
    const SHIFTING_WORDS: usize = 3;

    /// For each number of words, x to the power of 33 less than its bits, modulo the polynomial:
    /// the last step of zeros multiplies by 32 bits, and a product of two reflected words is a bit
    /// short.
    static POWERS: [u64; super::MOST_WORDS + 1] = powers();

    #[allow(clippy::indexing_slicing, reason = "a constant: a wrong index would not compile")]
    const fn powers() -> [u64; super::MOST_WORDS + 1] {
        const POLYNOMIAL: u64 = 0x82F6_3B78;
        let mut powers = [0; super::MOST_WORDS + 1];
        let (mut power, mut words, mut bits) = (1 << 31, 1, 64 - 33);
        while words < powers.len() {
            while bits > 0 {
                power = (power >> 1) ^ (POLYNOMIAL * (power & 1));
                bits -= 1;
            }
            powers[words] = power;
            (words, bits) = (words + 1, 64);
        }
        powers
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
