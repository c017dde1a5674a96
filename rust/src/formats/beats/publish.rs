//! How appended frames become part of a Beats queue: they are whole when they are written, so
//! there is nothing more to publish, except in segments that are one compressed stream.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use zeroize::Zeroizing;

use super::POSITION_BITS;
use super::cipher::KEY_BYTES;
use super::lz4;
use super::macs::{self, Chain};
use crate::bytes::words;
use crate::files::region;
use crate::segment::Segment;
use crate::segment::publish::{Batch, Publish};
use crate::sys::descriptor::Descriptor;

struct Chained {
    base: u64,
    chain: Chain,
    file: Descriptor,
}

/// The file's length is the end. With `key`, every frame gets a tag beside the segment.
#[derive(Default)]
pub struct FileEnd {
    /// The queue's key, where every frame has a tag.
    pub key: Option<Zeroizing<[u8; KEY_BYTES]>>,
    chained: Mutex<Option<Chained>>,
}

impl FileEnd {
    /// With the queue's key, where every frame has a tag.
    pub fn new(key: Option<[u8; KEY_BYTES]>) -> Self {
        Self { key: key.map(Zeroizing::new), chained: Mutex::new(None) }
    }

    fn note(&self, key: &[u8; KEY_BYTES], segment: &Segment, batch: &Batch) -> io::Result<()> {
        let mut chained = self.chained.lock().unwrap_or_else(|e| e.into_inner());
        if chained.as_ref().is_none_or(|chained| chained.base != segment.base()) {
            // A segment is appended to by one opening only: this is its first frame.
            let mut iv = [0; KEY_BYTES];
            iv.copy_from_slice(segment.bytes().get(4..20).ok_or(io::ErrorKind::InvalidData)?);
            let chain = Chain::new(key, macs::id(segment.base()), iv);
            let mut path = segment.path().as_os_str().to_os_string();
            path.push(".mac");
            let file = Descriptor::new(macs::begin(Path::new(&path), &chain)?)?;
            *chained = Some(Chained { base: segment.base(), chain, file });
        }
        let Some(chained) = chained.as_mut() else { return Ok(()) };
        let tags = macs::tags(&mut chained.chain, segment, batch.first, batch.end);
        let file = chained.file.file()?;
        region::write_at(file, region::len(file)?, &tags)
    }
}

fn cut(segment: &Segment, end: u64) -> io::Result<()> {
    let Some(map) = segment.map() else { return Ok(()) };
    let position = segment.position(end) as u64;
    match region::len(map.file()?)? > position {
        true => region::set_len(map.file()?, position),
        false => Ok(()),
    }
}

impl Publish for FileEnd {
    fn publish(&self, segment: &Segment, batch: &Batch) -> io::Result<()> {
        self.key.as_ref().map_or(Ok(()), |key| self.note(key, segment, batch))
    }

    fn is_first_word(&self) -> bool {
        true
    }

    fn drop_above(&self, segment: &Segment, batch: &Batch, _reserved: u64) -> io::Result<bool> {
        cut(segment, batch.end).map(|()| false)
    }
}

struct Open {
    base: u64,
    file: Descriptor,
    /// Where the stream ends.
    end: u64,
    /// How long the file is.
    len: u64,
    frames: u32,
}

/// Where the header of a stream has the number of its frames.
const COUNT_AT: u64 = 4;
/// A file is made longer by so much at once.
const HOLE_BYTES: u64 = 64 << 10;

/// Frames are appended to a plain copy beside the queue, which all processes map; every batch is
/// also added as a block to the segment's own file.
///
/// A Beat that starts after a kill must find a segment that it reads, or it begins its own under
/// the same name: so the header always has the count, and the file is as long as its frames are
/// unpacked, which is what Beats take its length for. The rest of it is a hole.
pub struct StreamEnd {
    folder: PathBuf,
    copies: PathBuf,
    header_bytes: u64,
    open: Mutex<Option<Open>>,
}

impl StreamEnd {
    /// For the queue in `folder`, with its plain copies in `copies`; their frames begin at
    /// `header_bytes`.
    pub fn new(folder: PathBuf, copies: PathBuf, header_bytes: u64) -> Self {
        Self { folder, copies, header_bytes, open: Mutex::new(None) }
    }

    fn open(&self, base: u64) -> io::Result<Open> {
        let name = format!("{}.seg", base >> POSITION_BITS);
        let file = region::open(&self.folder.join(name), true)?;
        let end = region::len(&file)?;
        Ok(Open { base, file: Descriptor::new(file)?, end, len: end, frames: 0 })
    }
}

/// How many frames stand in `plain`, one behind the other.
fn count(plain: &[u8]) -> u32 {
    let (mut at, mut found) = (0, 0);
    while let Some(size) = words::u32_le(plain, at).filter(|size| *size > 0) {
        at += size as usize;
        found += 1;
    }
    found
}

impl Publish for StreamEnd {
    fn publish(&self, segment: &Segment, batch: &Batch) -> io::Result<()> {
        let mut open = self.open.lock().unwrap_or_else(|e| e.into_inner());
        if open.as_ref().is_none_or(|open| open.base != segment.base()) {
            *open = Some(self.open(segment.base())?);
        }
        let Some(open) = open.as_mut() else { return Ok(()) };
        let len = words::size(batch.end.saturating_sub(batch.first));
        let plain = segment.frame_bytes(batch.first, len);
        let block = lz4::carry_on(plain, open.frames > 0);
        let file = open.file.file()?;
        region::write_at(file, open.end, &block)?;
        open.end += block.len() as u64;
        open.frames = open.frames.saturating_add(count(plain));
        open.len = open.len.max(open.end);
        let logical = batch.end & ((1 << POSITION_BITS) - 1);
        if logical > open.len {
            open.len = logical.next_multiple_of(HOLE_BYTES);
            region::set_len(file, open.len)?;
        }
        region::write_at(file, COUNT_AT, &open.frames.to_le_bytes())
    }

    fn is_first_word(&self) -> bool {
        true
    }

    fn drop_above(&self, segment: &Segment, batch: &Batch, _reserved: u64) -> io::Result<bool> {
        cut(segment, batch.end).map(|()| false)
    }

    /// Makes the plain copy, empty: if it was made later, it could hide a segment that was filled
    /// and closed by then. One that is there already was left by a process that died before the
    /// segment had its name.
    fn begin(&self, _: &Segment, _: &Batch, base: u64) -> io::Result<bool> {
        let copy = self.copies.join(format!("{}.plain", base >> POSITION_BITS));
        region::set_len(&region::open_or_create(&copy)?, self.header_bytes).map(|()| false)
    }
}
