//! How frames get into the file, through memory or by a write call, and what may be in the way.

use std::borrow::Borrow;
use std::path::PathBuf;

use crate::append::pack::Pieces;
use crate::files::region;
use crate::segment::Segment;
use crate::segment::frame::{Draft, Encoded};
use crate::segment::ring::Ring;
use crate::sys::mapping::Mapping;
use crate::sys::memory;

/// A list of this many bytes goes into a ring by a write call.
const RING_WRITE_BYTES: usize = 64 << 10;
/// A list of this many bytes goes into any segment by a write call: pages that it fills are not
/// zeroed first, and nobody waits for them one by one.
const WRITE_BYTES: usize = 256 << 10;
/// A longer list goes by several write calls. A single call would need as much memory again as the
/// list takes; through memory, each page would be zeroed before it is filled.
const MOST_WRITE_BYTES: usize = 4 << 20;
/// About so many bytes go by each of these calls.
const PIECE_BYTES: usize = 1 << 20;
/// The first word of a frame, which readers look at before they know where the queue ends.
const FIRST_WORD_BYTES: usize = 4;

/// What comes of an append. The obstacle is boxed, so that the result fits into registers. Through
/// memory it would be loaded wider than it was stored, and such a load waits until every frame
/// before it has left the processor's store buffer.
pub(crate) type Outcome<T> = Result<T, Box<Obstacle>>;

/// Why an append did not happen.
pub(crate) enum Obstacle {
    /// Another process or thread has begun another segment: open that one.
    Moved(u64),
    /// The frames do not fit into what is left of the segment.
    SegmentFull(u64, usize),
    /// The queue has as many bytes as it may.
    QueueFull(usize),
    /// The format has no room for it; Python says what to do.
    Unfit(String),
    Refused(String),
    Poisoned,
    /// The control block has this tail, which can't be true; it must be this, or more.
    Impossible(u64, u64),
    /// This file was cut short under its mapping.
    Vanished(PathBuf),
    Io(std::io::Error),
}

#[cold]
fn read_only() -> Box<Obstacle> {
    Obstacle::Refused("the segment is read-only".into()).into()
}

/// What decides between a store through memory and a write call.
pub(crate) struct Way {
    /// Every append is synced before it returns.
    pub is_always: bool,
    /// Frames are encrypted: no byte may be written twice.
    pub is_encrypting: bool,
    /// The first word of the batch is written by the one who publishes it.
    pub is_held_back: bool,
}

impl Way {
    /// Puts the frames where they belong: through memory, or by one write of the whole batch
    /// where the level or the format asks for it.
    #[inline(always)]
    pub(crate) fn place(
        &self,
        segment: &Segment,
        scratch: &mut Vec<u8>,
        position: usize,
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> Encoded,
    ) -> Outcome<u32> {
        let Some(map) = segment.map() else {
            return Err(read_only());
        };
        let ring = segment.ring();
        let straight = ring.map_or(len, |ring| ring.straight(position, len));
        let is_stored = self.is_stored(segment, len);
        if is_stored && straight == len {
            // The word is taken out of the result right here to stay in a register, see `Outcome`.
            let (mut word, mut refused) = (0, None);
            let filled = map.write_with(position, len, |out| match fill(out) {
                Ok(first) => word = first,
                Err(why) => refused = Some(why),
            });
            return match (filled, refused) {
                (Some(()), None) => Ok(word),
                (_, Some(why)) => Err(Obstacle::Refused(why).into()),
                (None, None) => Err(read_only()),
            };
        }
        scratch.clear();
        if !memory::reserve(scratch, len) {
            return Err(Obstacle::Refused(format!("no memory is left for {len} bytes")).into());
        }
        scratch.resize(len, 0);
        let mut word = fill(scratch).map_err(Obstacle::Refused)?;
        let is_long = !is_stored && !self.is_always && !segment.is_by_write() && ring.is_none();
        let mut held_back = [0; FIRST_WORD_BYTES];
        if let Some(first) = scratch.first_chunk_mut().filter(|_| is_long || self.is_held_back) {
            std::mem::swap(first, &mut held_back);
        }
        if self.is_held_back {
            word = u32::from_le_bytes(held_back); // As it is in the file, where it may be encrypted.
        }
        let (before, behind) = scratch.split_at(straight);
        for (at, part) in [(position, before), (ring.map_or(0, Ring::start), behind)] {
            if is_stored {
                map.store(at, part);
            } else if !part.is_empty() {
                self.write(segment, map, at, part)?;
            }
        }
        if is_long {
            map.store(position, &held_back);
        }
        Ok(word)
    }

    /// Whether `len` bytes of frames go into `segment` by several write calls.
    pub(crate) fn is_in_pieces(&self, segment: &Segment, len: usize) -> bool {
        len > MOST_WRITE_BYTES && segment.ring().is_none() && !self.is_stored(segment, len)
    }

    /// Puts a long batch where it belongs, piece by piece; answers its first word.
    pub(crate) fn place_pieces<'a, I: Iterator<Item: Borrow<Draft<'a>>>>(
        &self,
        segment: &Segment,
        piece: &mut Vec<u8>,
        position: usize,
        mut pieces: Pieces<'a, I>,
    ) -> Outcome<u32> {
        let Some(map) = segment.map() else {
            return Err(read_only());
        };
        let (mut at, mut held_back) = (position, [0; FIRST_WORD_BYTES]);
        let is_long = !self.is_always && !segment.is_by_write();
        while pieces.next(piece, PIECE_BYTES).map_err(Obstacle::Refused)? {
            let is_first = at == position && (is_long || self.is_held_back);
            if let Some(first) = piece.first_chunk_mut().filter(|_| is_first) {
                std::mem::swap(first, &mut held_back);
            }
            self.write(segment, map, at, piece)?;
            at += piece.len();
        }
        piece.truncate(PIECE_BYTES);
        piece.shrink_to(PIECE_BYTES); // One frame may have been much longer.
        if is_long {
            map.store(position, &held_back);
        }
        Ok(if self.is_held_back { u32::from_le_bytes(held_back) } else { pieces.first_word() })
    }

    /// One write call.
    fn write(&self, segment: &Segment, map: &Mapping, at: usize, bytes: &[u8]) -> Outcome<()> {
        let written = map.file().and_then(|file| region::write_at(file, at as u64, bytes));
        written.map_err(|error| {
            if self.is_encrypting {
                segment.spoil();
            }
            Obstacle::Io(error).into()
        })
    }

    /// Whether `len` bytes of frames go into `segment` through memory.
    pub(crate) fn is_stored(&self, segment: &Segment, len: usize) -> bool {
        let is_long = match segment.ring() {
            // Its pages were synced a lap ago and fault at the first store.
            Some(_) => len >= RING_WRITE_BYTES,
            None => len >= WRITE_BYTES,
        };
        !self.is_always && !segment.is_by_write() && !is_long
    }
}
