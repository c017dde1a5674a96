//! `<id>.seg.mac`: what makes an encrypted segment tamper-evident. The segment itself stays as it
//! is.
//!
//! ```text
//! magic "BEATSMAC" | version u32 | 0 u32 | segment u64 | frames u64 | closing tag 32 | tag 32 …
//! tag i     = HMAC-SHA256(key, tag i-1 | segment | i | IV | the frame as it is on the disk)
//! closing   = HMAC-SHA256(key, "closed" | last tag | segment | frames)
//! ```
//!
//! The key is derived from the queue's. `frames` and the closing tag are zero while the segment is
//! open. An edited, moved, exchanged or missing frame breaks the chain from there on; a cut is
//! noticed by the closing tag.

use std::path::Path;

use hkdf::Hkdf;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use zeroize::Zeroizing;

use super::POSITION_BITS;
use super::cipher::KEY_BYTES;
use crate::bytes::word_offsets::word_offsets;
use crate::bytes::words;
use crate::files::region;
use crate::segment::Segment;
use crate::segment::walk::{Care, Walk};

const MAGIC: &[u8; 8] = b"BEATSMAC";
word_offsets! {
    /// Fields of the header.
    pub mod field {
        MAGIC = 0,
        VERSION = 8,
        SEGMENT = 16,
        FRAMES = 24,
        CLOSING = 32,
    }
}
const HEADER_BYTES: usize = 64;
const TAG_BYTES: usize = 32;

type Tag = [u8; TAG_BYTES];

/// The chain of one segment, up to some frame.
pub struct Chain {
    key: Zeroizing<Tag>,
    segment: u64,
    iv: [u8; KEY_BYTES],
    last: Tag,
    count: u64,
}

impl Chain {
    /// The beginning of a segment's chain.
    pub fn new(key: &[u8; KEY_BYTES], segment: u64, iv: [u8; KEY_BYTES]) -> Self {
        let mut derived = Zeroizing::new([0; TAG_BYTES]);
        // The output is as long as a hash: expanding can't fail.
        let _ = Hkdf::<Sha256>::new(None, key).expand(b"penstock beats seal 1", &mut *derived);
        Self { key: derived, segment, iv, last: [0; TAG_BYTES], count: 0 }
    }

    fn tag(&self, parts: &[&[u8]]) -> Tag {
        let Ok(mut mac) = <Hmac<Sha256> as KeyInit>::new_from_slice(&*self.key) else {
            return [0; TAG_BYTES];
        };
        parts.iter().for_each(|part| mac.update(part));
        mac.finalize().into_bytes().into()
    }

    /// The next frame's tag.
    pub fn next(&mut self, frame: &[u8]) -> Tag {
        let (segment, index) = (self.segment.to_le_bytes(), self.count.to_le_bytes());
        self.last = self.tag(&[&self.last, &segment, &index, &self.iv, frame]);
        self.count += 1;
        self.last
    }

    fn closing(&self) -> Tag {
        let (segment, count) = (self.segment.to_le_bytes(), self.count.to_le_bytes());
        self.tag(&[b"closed", &self.last, &segment, &count])
    }

    fn header(&self, is_closed: bool) -> Vec<u8> {
        let mut out = vec![0; HEADER_BYTES];
        words::put(&mut out, field::MAGIC, MAGIC);
        words::put_u32_le(&mut out, field::VERSION, 1);
        words::put_u64_le(&mut out, field::SEGMENT, self.segment);
        if is_closed {
            words::put_u64_le(&mut out, field::FRAMES, self.count);
            words::put(&mut out, field::CLOSING, &self.closing());
        }
        out
    }
}

/// Tags for the frames of `[first, end)`.
pub fn tags(chain: &mut Chain, segment: &Segment, first: u64, end: u64) -> Vec<u8> {
    let (mut walk, mut out) = (Walk::new(segment, first, end, Care::Sizes), Vec::new());
    while let Some(offset) = walk.next_frame() {
        out.extend_from_slice(&chain.next(segment.frame_bytes(offset, walk.view.size)));
    }
    out
}

/// Begins the file of a segment without frames.
pub fn begin(path: &Path, chain: &Chain) -> std::io::Result<std::fs::File> {
    let file = region::open_or_create(path)?;
    region::set_len(&file, 0)?;
    region::write_at(&file, 0, &chain.header(false))?;
    Ok(file)
}

fn stored(bytes: &[u8], index: u64) -> Option<&[u8]> {
    let at = HEADER_BYTES.checked_add(words::size(index).checked_mul(TAG_BYTES)?)?;
    bytes.get(at..at + TAG_BYTES)
}

/// Closes the file of a segment whose frames end at `end`: frames that a crash left without a tag
/// get theirs, and the closing tag is written.
pub fn close(path: &Path, mut chain: Chain, segment: &Segment, end: u64) -> std::io::Result<()> {
    let bytes = std::fs::read(path).unwrap_or_default();
    let mut walk = Walk::new(segment, segment.first(), end, Care::Sizes);
    let mut more = Vec::new();
    while let Some(offset) = walk.next_frame() {
        let tag = match stored(&bytes, chain.count) {
            // Zeros are a tag that a power cut kept from the disk.
            Some(tag) if more.is_empty() && tag.iter().any(|byte| *byte != 0) => {
                chain.last.copy_from_slice(tag); // A tag that is there stays as it is.
                chain.count += 1;
                continue;
            }
            _ => chain.next(segment.frame_bytes(offset, walk.view.size)),
        };
        more.extend_from_slice(&tag);
    }
    let file = region::open_or_create(path)?;
    let known = words::size(chain.count) * TAG_BYTES - more.len();
    region::write_at(&file, (HEADER_BYTES + known) as u64, &more)?;
    region::set_len(&file, (HEADER_BYTES + words::size(chain.count) * TAG_BYTES) as u64)?;
    region::write_at(&file, 0, &chain.header(true))?;
    region::sync(&file)
}

/// What the tags say about the frames of `[first, end)`: `(offset, found)` for each fault.
pub fn check(bytes: &[u8], mut chain: Chain, segment: &Segment, end: u64) -> Vec<(u64, String)> {
    let mut walk = Walk::new(segment, segment.first(), end, Care::Sizes);
    if bytes.get(..8) != Some(MAGIC.as_slice()) || words::u64_le(bytes, field::VERSION) != Some(1) {
        return vec![(walk.at, "no tags".into())];
    }
    while walk.at < end {
        let Some(offset) = walk.next_frame() else {
            return vec![(walk.at, "damage inside a tamper-evident segment".into())];
        };
        let index = chain.count;
        let tag = chain.next(segment.frame_bytes(offset, walk.view.size));
        match stored(bytes, index) {
            Some(known) if known == tag => {}
            Some(_) => return vec![(offset, format!("frame {index} that does not match its tag"))],
            None => {
                return vec![(offset, format!("frame {index} behind the last one that has a tag"))];
            }
        }
    }
    let count = words::u64_le(bytes, field::FRAMES).unwrap_or(0);
    let closing = bytes.get(field::CLOSING..HEADER_BYTES).unwrap_or_default();
    if stored(bytes, chain.count).is_some() || (count != 0 && count != chain.count) {
        return vec![(walk.at, format!("{} frames, fewer than the closing tag says", chain.count))];
    }
    if count != 0 && closing != chain.closing() {
        return vec![(walk.at, "a closing tag that is not ours".into())];
    }
    Vec::new()
}

/// The id of the segment that begins at `base`.
pub fn id(base: u64) -> u64 {
    base >> POSITION_BITS
}
