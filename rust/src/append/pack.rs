//! The bytes of a batch: frame by frame, or several messages in one compressed frame.

use std::borrow::Borrow;

use crate::segment::Segment;
use crate::segment::frame::{Draft, Drafts, Encoded, Place};
use crate::sys::memory;

/// Plain bytes of one compressed frame, about.
const PACK_BYTES: usize = 64 << 10;

/// The drafts as compressed frames, with the first one's size word, where the format packs.
pub fn pack<D: Drafts + ?Sized>(
    segment: &Segment,
    drafts: &D,
    sizes: &[usize],
    first: Place,
) -> Option<(Vec<u8>, u32)> {
    if !segment.frames().is_packing() {
        return None;
    }
    let (mut out, mut part): (Vec<u8>, Vec<Draft<'_>>) = (Vec::new(), Vec::new());
    let (mut drafts, mut bytes) = (drafts.each(), 0usize);
    let mut place = first;
    for (index, size) in sizes.iter().enumerate() {
        part.push(*drafts.next()?.borrow());
        bytes += size;
        if bytes < PACK_BYTES && index + 1 < sizes.len() {
            continue;
        }
        place.has_more = index + 1 < sizes.len();
        let frame = segment.frames().pack(&part, place)?;
        place = Place {
            offset: place.offset + frame.len() as u64,
            number: place.number + part.len() as u64,
            has_more: false,
        };
        out.extend_from_slice(&frame);
        part.clear();
        bytes = 0;
    }
    let word = crate::bytes::words::u32_le(&out, 0)?;
    Some((out, word))
}

/// Puts packed frames into place, the first size word still zero.
pub fn copy_packed(bytes: &[u8], word: u32, out: &mut [u8]) -> Encoded {
    let (frames, rest) = out.split_at_mut_checked(bytes.len()).ok_or("the batch does not fit")?;
    frames.copy_from_slice(bytes);
    rest.fill(0);
    crate::bytes::words::put_u32_le(frames, 0, 0);
    Ok(word)
}

/// All frames one after the other; the first one's size word is held back and answered.
#[inline]
pub fn encode_all<D: Drafts + ?Sized>(
    segment: &Segment,
    drafts: &D,
    sizes: &[usize],
    first: Place,
    out: &mut [u8],
) -> Encoded {
    let mut place = first;
    let mut rest = out;
    let mut first_word = 0;
    for (index, (draft, size)) in drafts.each().zip(sizes).enumerate() {
        place.has_more = index + 1 < sizes.len();
        let (frame, later) = rest.split_at_mut_checked(*size).ok_or("the batch does not fit")?;
        let held = place.number == first.number;
        let word = segment.frames().encode(draft.borrow(), place, held, frame)?;
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

/// The bytes of a batch that is too long to be held whole, a few frames at a time.
pub struct Pieces<'a, I> {
    segment: &'a Segment,
    drafts: I,
    sizes: std::slice::Iter<'a, usize>,
    packed: &'a [u8],
    place: Place,
    first_word: Option<u32>,
    is_over: bool,
}

impl<'a, I: Iterator<Item: Borrow<Draft<'a>>>> Pieces<'a, I> {
    /// The frames of `packed` where there are any, else those of the drafts.
    pub fn of(
        segment: &'a Segment,
        drafts: I,
        sizes: &'a [usize],
        first: Place,
        packed: Option<&'a [u8]>,
    ) -> Self {
        let sizes = if packed.is_some() { &[] } else { sizes };
        let (packed, sizes) = (packed.unwrap_or_default(), sizes.iter());
        Self { segment, drafts, sizes, packed, place: first, first_word: None, is_over: false }
    }

    /// The first frame's size word, which was held back.
    pub fn first_word(&self) -> u32 {
        self.first_word.unwrap_or(0)
    }

    /// Puts the next frames into `out`, about `most` bytes of them, and behind the last one what
    /// ends them. False when there are no more.
    pub fn next(&mut self, out: &mut Vec<u8>, most: usize) -> Result<bool, String> {
        out.clear();
        if self.is_over {
            return Ok(false);
        }
        let (now, later) = self.packed.split_at(self.packed.len().min(most));
        self.packed = later;
        out.extend_from_slice(now);
        if let (None, Some(word)) = (self.first_word, crate::bytes::words::u32_le(out, 0)) {
            self.first_word = Some(word);
            crate::bytes::words::put_u32_le(out, 0, 0);
        }
        while out.len() < most && self.encode(out)? {}
        if self.packed.is_empty() && self.sizes.len() == 0 {
            self.is_over = true;
            out.resize(out.len() + self.segment.frames().trailing_zeros(), 0);
        }
        Ok(true)
    }

    /// Adds one frame; false when there are no more.
    fn encode(&mut self, out: &mut Vec<u8>) -> Result<bool, String> {
        let Some(size) = self.sizes.next() else { return Ok(false) };
        let draft = self.drafts.next().ok_or("there are fewer messages than were measured")?;
        let at = out.len();
        // With room for what ends the frames: the vector would otherwise double its bytes for it.
        if !memory::reserve(out, *size + self.segment.frames().trailing_zeros()) {
            return Err(format!("no memory is left for {size} bytes"));
        }
        out.resize(at + size, 0);
        let frame = out.get_mut(at..).unwrap_or_default();
        self.place.has_more = self.sizes.len() > 0;
        let is_first = self.first_word.is_none();
        let word = self.segment.frames().encode(draft.borrow(), self.place, is_first, frame)?;
        self.first_word.get_or_insert(word);
        self.place.offset += *size as u64;
        self.place.number += 1;
        Ok(true)
    }
}
