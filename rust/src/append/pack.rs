//! The bytes of a batch: frame by frame, or several messages in one compressed frame.

use crate::segment::Segment;
use crate::segment::frame::{Draft, Place};

/// Plain bytes of one compressed frame, about.
const PACK_BYTES: usize = 64 << 10;

/// The drafts as compressed frames, with the first one's size word, where the format packs.
pub fn pack(
    segment: &Segment,
    drafts: &[Draft<'_>],
    sizes: &[usize],
    first: Place,
) -> Option<(Vec<u8>, u32)> {
    if !segment.frames().is_packing() {
        return None;
    }
    let mut out: Vec<u8> = Vec::new();
    let (mut from, mut bytes) = (0usize, 0usize);
    let mut place = first;
    for (index, size) in sizes.iter().enumerate() {
        bytes += size;
        if bytes < PACK_BYTES && index + 1 < sizes.len() {
            continue;
        }
        let part = drafts.get(from..=index)?;
        place.has_more = index + 1 < sizes.len();
        let frame = segment.frames().pack(part, place)?;
        place = Place {
            offset: place.offset + frame.len() as u64,
            number: place.number + part.len() as u64,
            has_more: false,
        };
        out.extend_from_slice(&frame);
        (from, bytes) = (index + 1, 0);
    }
    let word = crate::bytes::words::u32_le(&out, 0)?;
    Some((out, word))
}

/// Puts packed frames into place, the first size word still zero.
pub fn copy_packed(bytes: &[u8], word: u32, out: &mut [u8]) -> Result<u32, String> {
    let (frames, rest) = out.split_at_mut_checked(bytes.len()).ok_or("the batch does not fit")?;
    frames.copy_from_slice(bytes);
    rest.fill(0);
    crate::bytes::words::put_u32_le(frames, 0, 0);
    Ok(word)
}

/// All frames one after the other; the first one's size word is held back and answered.
#[inline]
pub fn encode_all(
    segment: &Segment,
    drafts: &[Draft<'_>],
    sizes: &[usize],
    first: Place,
    out: &mut [u8],
) -> Result<u32, String> {
    let mut place = first;
    let mut rest = out;
    let mut first_word = 0;
    for (index, (draft, size)) in drafts.iter().zip(sizes).enumerate() {
        place.has_more = index + 1 < sizes.len();
        let (frame, later) = rest.split_at_mut_checked(*size).ok_or("the batch does not fit")?;
        let held = place.number == first.number;
        let word = segment.frames().encode(draft, place, held, frame)?;
        if held {
            first_word = word;
        }
        place.offset += *size as u64;
        place.number += 1;
        rest = later;
    }
    rest.fill(0);
    Ok(first_word)
}
