//! Checksums beside formats that have none of their own: one file per segment (or per lap of a
//! ring) with an entry per frame, in order. What no entry covers is unchecked, not corrupt.
//!
//! ```text
//!  0 magic "PENSTCRC" | 8 version u32 | 12 reserved u32 | 16 base u64 | 24 count u64 | … 64
//!  then per frame: offset u64 | size u32 | CRC-32C of the frame u32
//! ```
//! Entries are stored under the append lock before the frame is published; `count` makes them
//! valid. Entries at or above the tail belong to an append that never happened and are taken back
//! by the next one. The same tables are declared in `penstock.sidecar.side_files`.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::bytes::checksum::crc32c;
use crate::bytes::word_offsets::word_offsets;
use crate::bytes::words;
use crate::files::region;
use crate::segment::frame::Fault;
use crate::segment::side_file::{self, Opened};
use crate::sys::mapping::Growing;

const MAGIC: &[u8; 8] = b"PENSTCRC";
word_offsets! {
    /// Words of the header.
    pub mod header {
        MAGIC = 0,
        VERSION = 8,
        BASE = 16,
        COUNT = 24,
    }
}
word_offsets! {
    /// Words of an entry.
    pub mod field {
        OFFSET = 0,
        FRAME_BYTES = 8,
        CRC = 12,
    }
}
const HEADER_BYTES: usize = 64;
const ENTRY_BYTES: usize = 16;
const GROW_BYTES: u64 = 64 << 10;
/// At `always` the entries are synced this rarely: a lost one makes its frame unchecked.
const LAZY_ENTRIES: u64 = 1024;

/// The checksum of one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checked {
    /// The frame's offset.
    pub offset: u64,
    /// Its bytes.
    pub size: u32,
    /// Their CRC-32C.
    pub crc: u32,
}

impl Checked {
    /// The entry of a frame.
    pub fn of(offset: u64, frame: &[u8]) -> Self {
        Self { offset, size: words::small(frame.len()), crc: crc32c(frame) }
    }

    fn end(&self) -> u64 {
        self.offset.saturating_add(u64::from(self.size))
    }
}

/// What the entries say about an offset.
pub enum Cover {
    /// Nothing.
    None,
    /// A frame begins here.
    Frame(Checked),
    /// A frame begins before it and ends behind it.
    Inside(Checked),
}

/// The entries of one segment.
pub struct Integrity {
    map: Growing,
    allocated: AtomicU64,
    synced: AtomicU64,
    /// The last entry found: the next lookup is most often its successor.
    hint: AtomicUsize,
    /// Entries there were at the last look: a reader need not fetch the count from the writer for
    /// every frame.
    counted: AtomicUsize,
}

impl Integrity {
    /// Opens the file at `path`; a missing one is made when `make` says so, else there is none.
    pub fn open(path: &Path, base: u64, writable: bool, make: bool) -> io::Result<Option<Self>> {
        let Some(Opened { map, allocated, is_ours }) =
            side_file::open_side(path, (MAGIC, base), writable, make)?
        else {
            return Ok(None);
        };
        if !is_ours {
            return Ok(None); // The file is not ours, or of a later release: it covers nothing here.
        }
        Ok(Some(Self {
            map,
            allocated: allocated.into(),
            synced: 0.into(),
            hint: 0.into(),
            counted: 0.into(),
        }))
    }

    /// Entries there are, as far as the file holds them.
    #[inline]
    fn count(&self) -> usize {
        let count = words::size(self.map.first().word64(header::COUNT).load(Ordering::Acquire));
        let needed = count.saturating_mul(ENTRY_BYTES).saturating_add(HEADER_BYTES);
        if needed as u64 <= self.allocated.load(Ordering::Relaxed) {
            return count;
        }
        self.look_again()
    }

    #[cold]
    fn look_again(&self) -> usize {
        let len = self.map.file().and_then(region::len).unwrap_or(0);
        self.allocated.store(len, Ordering::Relaxed);
        let fits = words::size(len).saturating_sub(HEADER_BYTES) / ENTRY_BYTES;
        words::size(self.map.first().word64(header::COUNT).load(Ordering::Acquire)).min(fits)
    }

    #[inline]
    fn entry(&self, index: usize) -> Option<Checked> {
        let at = index.checked_mul(ENTRY_BYTES)?.checked_add(HEADER_BYTES)?;
        let raw = self.map.get(at, ENTRY_BYTES)?;
        Some(Checked {
            offset: words::u64_le(raw, field::OFFSET)?,
            size: words::u32_le(raw, field::FRAME_BYTES)?,
            crc: words::u32_le(raw, field::CRC)?,
        })
    }

    /// Index of the first of `count` entries whose offset is at or above `offset`.
    fn lower_bound(&self, count: usize, offset: u64) -> usize {
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.entry(middle) {
                Some(entry) if entry.offset < offset => low = middle + 1,
                _ => high = middle,
            }
        }
        low
    }

    /// What is known about `offset`.
    #[inline]
    pub fn cover(&self, offset: u64) -> Cover {
        let count = self.count();
        self.counted.store(count, Ordering::Relaxed);
        let hint = self.hint.load(Ordering::Relaxed);
        for index in [hint.wrapping_add(1), hint] {
            if let Some(entry) = self.frame_entry(index, count, offset) {
                return Cover::Frame(entry);
            }
        }
        self.search(count, offset)
    }

    #[inline]
    fn frame_entry(&self, index: usize, count: usize, offset: u64) -> Option<Checked> {
        let entry = self.entry(index).filter(|entry| index < count && entry.offset == offset)?;
        self.hint.store(index, Ordering::Relaxed);
        Some(entry)
    }

    fn search(&self, count: usize, offset: u64) -> Cover {
        let index = self.lower_bound(count, offset);
        if let Some(entry) = self.frame_entry(index, count, offset) {
            return Cover::Frame(entry);
        }
        let before = index.checked_sub(1).and_then(|before| self.entry(before));
        match before.filter(|entry| entry.end() > offset) {
            Some(entry) => Cover::Inside(entry),
            None => Cover::None,
        }
    }

    /// Where the next covered frame after `offset` begins.
    pub fn next_after(&self, offset: u64) -> Option<u64> {
        let count = self.count();
        let index = self.lower_bound(count, offset.checked_add(1)?);
        (index < count).then(|| self.entry(index).map(|entry| entry.offset)).flatten()
    }

    /// Whether the frame that was found at `offset` is the one that was written. `at` is its
    /// byte in the file.
    #[inline]
    pub fn check(&self, offset: u64, at: usize, frame: &[u8]) -> Result<(), Fault> {
        // By the count of the last look: an entry that fits its frame is the frame's, whatever
        // has been taken back meanwhile.
        let next = self.hint.load(Ordering::Relaxed).wrapping_add(1);
        let counted = self.counted.load(Ordering::Relaxed);
        if let Some(entry) = self.frame_entry(next, counted, offset)
            && entry.size as usize == frame.len()
            && entry.crc == crc32c(frame)
        {
            return Ok(());
        }
        self.check_closely(offset, at, frame)
    }

    fn check_closely(&self, offset: u64, at: usize, frame: &[u8]) -> Result<(), Fault> {
        match self.cover(offset) {
            Cover::None => Ok(()),
            Cover::Frame(entry) if entry.size as usize != frame.len() => Err(Fault::new(
                at,
                format!("a frame of {} bytes", frame.len()),
                format!("{} bytes, as when it was written", entry.size),
            )),
            Cover::Frame(entry) => {
                let crc = crc32c(frame);
                if crc == entry.crc {
                    return Ok(());
                }
                let expected = format!("{:08x}, as when it was written", entry.crc);
                Err(Fault::new(at, format!("frame checksum {crc:08x}"), expected))
            }
            Cover::Inside(entry) => Err(Fault::new(
                at,
                "a frame",
                format!("the inside of the one that was written at offset {}", entry.offset),
            )),
        }
    }

    /// Takes back what an append that never happened had noted.
    pub fn rewind(&self, tail: u64) {
        let mut count = self.count();
        while count > 0 && self.entry(count - 1).is_some_and(|last| last.offset >= tail) {
            count -= 1;
        }
        self.set_count(count);
    }

    fn set_count(&self, count: usize) {
        self.map.first().publish64(header::COUNT, count as u64);
    }

    /// Adds entries for frames that begin at or behind `tail`. Under the append lock.
    pub fn append(
        &self,
        tail: u64,
        entries: impl ExactSizeIterator<Item = Checked>,
    ) -> io::Result<()> {
        let mut count = self.count();
        if count > 0 && self.entry(count - 1).is_some_and(|last| last.offset >= tail) {
            self.rewind(tail);
            count = self.count();
        }
        let (first, len) = (HEADER_BYTES + count * ENTRY_BYTES, entries.len() * ENTRY_BYTES);
        if first + len > Growing::MOST_BYTES {
            return Ok(()); // The file is full: later frames are unchecked.
        }
        self.ensure((first + len) as u64)?;
        let added = entries.len();
        self.map.to(first + len)?.write_with(first, len, |out| {
            for (slot, entry) in out.chunks_exact_mut(ENTRY_BYTES).zip(entries) {
                words::put_u64_le(slot, field::OFFSET, entry.offset);
                words::put_u32_le(slot, field::FRAME_BYTES, entry.size);
                words::put_u32_le(slot, field::CRC, entry.crc);
            }
        });
        self.set_count(count + added);
        Ok(())
    }

    fn ensure(&self, needed: u64) -> io::Result<()> {
        if needed <= self.allocated.load(Ordering::Relaxed) {
            return Ok(());
        }
        let target = needed.div_ceil(GROW_BYTES).saturating_mul(GROW_BYTES);
        region::extend(self.map.file()?, target)?;
        self.allocated.store(target, Ordering::Relaxed);
        Ok(())
    }

    /// After an unclean end: keeps the longest run of entries that can be, below `tail`.
    pub fn recover(&self, tail: u64) {
        let count = self.count();
        let mut kept = 0;
        let mut end = 0;
        while kept < count {
            match self.entry(kept) {
                Some(entry) if entry.size != 0 && entry.offset >= end && entry.end() <= tail => {
                    end = entry.end();
                    kept += 1;
                }
                _ => break,
            }
        }
        self.set_count(kept);
    }

    /// Offset after the last covered frame; none when there is none.
    pub fn end(&self) -> Option<u64> {
        self.count().checked_sub(1).and_then(|last| self.entry(last)).map(|last| last.end())
    }

    /// Syncs the file if entries came; with `lazily` only when many did.
    pub fn sync(&self, lazily: bool) -> io::Result<()> {
        let count = self.count() as u64;
        let fresh = count.wrapping_sub(self.synced.load(Ordering::Relaxed));
        if fresh == 0 || (lazily && fresh < LAZY_ENTRIES) {
            return Ok(());
        }
        region::sync(self.map.file()?)?;
        self.synced.store(count, Ordering::Relaxed);
        Ok(())
    }
}
