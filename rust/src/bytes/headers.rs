//! Headers on the wire: `key_len u16 | value_len u32 | key | value`, repeated, little-endian.

use crate::bytes::words;

/// Appends one header.
pub fn push(out: &mut Vec<u8>, key: &[u8], value: &[u8]) -> Option<()> {
    out.extend_from_slice(&u16::try_from(key.len()).ok()?.to_le_bytes());
    out.extend_from_slice(&u32::try_from(value.len()).ok()?.to_le_bytes());
    out.extend_from_slice(key);
    out.extend_from_slice(value);
    Some(())
}

/// Walks the headers; ends at the first that does not fit.
pub fn iterate(bytes: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut at = 0usize;
    std::iter::from_fn(move || {
        let key_len = usize::from(words::u16_le(bytes, at)?);
        let value_len = words::u32_le(bytes, at + 2)? as usize;
        let key_at = at + 6;
        let key = bytes.get(key_at..key_at + key_len)?;
        let value_at = key_at + key_len;
        let value = bytes.get(value_at..value_at.checked_add(value_len)?)?;
        at = value_at + value_len;
        Some((key, value))
    })
}
