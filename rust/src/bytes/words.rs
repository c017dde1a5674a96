//! Reading and writing little- and big-endian numbers inside byte slices, bounds checked.

macro_rules! accessors {
    ($($read:ident $write:ident $kind:ty, $from:ident, $to:ident;)*) => {$(
        /// The number at `at`, or none when the slice ends before it does.
        #[inline]
        pub fn $read(bytes: &[u8], at: usize) -> Option<$kind> {
            let raw = bytes.get(at..)?.first_chunk::<{ size_of::<$kind>() }>()?;
            Some(<$kind>::$from(*raw))
        }

        /// Stores the number at `at`; outside the slice nothing happens and the answer is none.
        #[inline]
        pub fn $write(bytes: &mut [u8], at: usize, value: $kind) -> Option<()> {
            let raw = bytes.get_mut(at..)?.first_chunk_mut::<{ size_of::<$kind>() }>()?;
            *raw = value.$to();
            Some(())
        }
    )*};
}

accessors! {
    u16_le put_u16_le u16, from_le_bytes, to_le_bytes;
    u32_le put_u32_le u32, from_le_bytes, to_le_bytes;
    u64_le put_u64_le u64, from_le_bytes, to_le_bytes;
    i64_le put_i64_le i64, from_le_bytes, to_le_bytes;
    i32_be put_i32_be i32, from_be_bytes, to_be_bytes;
    u64_be put_u64_be u64, from_be_bytes, to_be_bytes;
    i64_be put_i64_be i64, from_be_bytes, to_be_bytes;
}

/// Copies `from` to `at`; outside the slice nothing happens and the answer is none.
#[inline]
pub fn put(bytes: &mut [u8], at: usize, from: &[u8]) -> Option<()> {
    bytes.get_mut(at..at.checked_add(from.len())?)?.copy_from_slice(from);
    Some(())
}

/// `value` as a `usize`; on the 64-bit machines we run on nothing is ever cut.
#[inline]
pub fn size(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// `value` as a `u32`, at most the largest one.
#[inline]
pub fn small(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// The next multiple of 8.
#[inline]
pub fn align8(value: usize) -> usize {
    value.saturating_add(7) & !7
}
