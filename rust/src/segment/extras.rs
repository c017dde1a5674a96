//! Key and due time of messages whose format has no place for them: one file per segment (or per
//! lap of a ring), append-only, in frames of our own format.
//!
//! ```text
//!  0 magic "PENSTEXT" | 8 version u32 | 12 generation u32 | 16 base u64 | 24 end u64
//! 32 next u64 | … 64, then frames: key and due time in their extension, the message's number and
//! timestamp in theirs, its offset u64 as body
//! ```
//! A record is stored (at `always`: synced) before its frame is published, so no reader meets the
//! frame without it. A record at or above the tail belongs to an append that never happened: the
//! next append takes it back, and one that survives anyway (the file was restored, a foreign
//! program wrote on) does not apply, because number and time are compared with the frame's.
//! `end` and `next` are hints: recovery reads the frames. See `penstock.sidecar.side_files`.

use std::io;
use std::path::Path;
use std::sync::RwLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::bytes::word_offsets::word_offsets;
use crate::bytes::words;
use crate::files::region;
use crate::segment::frame::{Draft, FrameView, Frames, NO_NUMBER, NO_TIME, Place, Span, Step};
use crate::segment::penstock_frame::PenstockFrames;
use crate::segment::side_file::{self, Opened};
use crate::sys::mapping::Growing;
use crate::sys::memory;

const FRAMES: PenstockFrames =
    PenstockFrames { cipher: None, is_encrypted: false, compress: false };
const MAGIC: &[u8; 8] = b"PENSTEXT";
word_offsets! {
    /// Words of the header.
    pub mod header {
        MAGIC = 0,
        VERSION = 8,
        GENERATION = 12,
        BASE = 16,
        END = 24,
        NEXT = 32,
    }
}
const HEADER_BYTES: usize = 64;
const GROW_BYTES: u64 = 64 << 10;
const MILLISECOND: i64 = 1_000_000;

/// Where each record is, as far as this process has read.
#[derive(Default)]
struct KnownRecords {
    generation: u32,
    read_end: usize,
    /// `(offset, byte)`, in order.
    records: Vec<(u64, u32)>,
}

/// The records of one segment.
pub struct Extras {
    map: Growing,
    allocated: AtomicU64,
    known: RwLock<KnownRecords>,
}

impl Extras {
    /// Opens the file at `path`; a missing one is made when `make` says so, else there is none.
    pub fn open(path: &Path, base: u64, writable: bool, make: bool) -> io::Result<Option<Self>> {
        let Some(Opened { map, allocated, is_ours }) =
            side_file::open_side(path, (MAGIC, base), writable, make)?
        else {
            return Ok(None);
        };
        if !is_ours {
            let found = "another header".to_owned();
            let expected = "a file with keys and due times, version 1";
            return Err(crate::errors::damaged(path, 0, found, expected));
        }
        Ok(Some(Self { map, allocated: allocated.into(), known: RwLock::default() }))
    }

    /// Bytes in use; 0 or 64: no record.
    #[inline]
    fn end(&self) -> usize {
        words::size(self.map.first().word64(header::END).load(Ordering::Acquire))
    }

    /// Whether there is nothing to look for.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.end() <= HEADER_BYTES
    }

    /// The mapped bytes that the file really has, up to `end`.
    fn bytes(&self, end: usize) -> &[u8] {
        if end as u64 > self.allocated.load(Ordering::Relaxed) {
            let len = self.map.file().and_then(region::len).unwrap_or(0);
            self.allocated.store(len, Ordering::Relaxed);
        }
        let len = end.min(words::size(self.allocated.load(Ordering::Relaxed)));
        self.map.get(0, len.min(Growing::MOST_BYTES)).unwrap_or_default()
    }

    fn read_on(&self, end: usize) {
        let mut known = self.known.write().unwrap_or_else(|e| e.into_inner());
        let generation = self.map.first().word32(header::GENERATION).load(Ordering::Acquire);
        if known.generation != generation || known.read_end < HEADER_BYTES {
            *known = KnownRecords { generation, read_end: HEADER_BYTES, records: Vec::new() };
        }
        let bytes = self.bytes(end);
        let mut at = known.read_end;
        while let Some((offset, view)) = record(bytes, at) {
            known.records.push((offset, words::small(at)));
            at += view.size;
        }
        known.read_end = at;
    }

    /// The record of `offset`: its byte in the file.
    fn find(&self, offset: u64) -> Option<usize> {
        let end = self.end();
        if end <= HEADER_BYTES {
            return None;
        }
        let generation = self.map.first().word32(header::GENERATION).load(Ordering::Acquire);
        let is_read =
            |known: &KnownRecords| known.generation == generation && known.read_end >= end;
        if !is_read(&self.known.read().unwrap_or_else(|e| e.into_inner())) {
            self.read_on(end);
        }
        let known = self.known.read().unwrap_or_else(|e| e.into_inner());
        let place = known.records.binary_search_by_key(&offset, |(offset, _)| *offset).ok()?;
        known.records.get(place).map(|(_, at)| *at as usize)
    }

    /// Gives `view`, found at `offset` in the bytes `frame`, what was noted for it.
    #[cold]
    pub fn apply(&self, offset: u64, frame: &[u8], view: &mut FrameView) {
        let Some(at) = self.find(offset) else { return };
        let bytes = self.bytes(self.end());
        let Some((_, found)) = record(bytes, at) else { return };
        let is_other = (view.number != NO_NUMBER && view.number != found.number)
            || (view.timestamp_ns != NO_TIME
                && view.timestamp_ns.div_euclid(MILLISECOND)
                    != found.timestamp_ns.div_euclid(MILLISECOND));
        if is_other {
            return;
        }
        (view.due_ns, view.noted_ns) = (found.due_ns, found.timestamp_ns);
        let key = found.key.of(bytes.get(at..).unwrap_or_default());
        if key.is_empty() {
            return;
        }
        // Spans are into the frame or into bytes of the view's own: the key goes behind those.
        let known = view.owned.as_deref().unwrap_or(frame);
        if !memory::has_room(known.len().saturating_mul(3)) {
            view.opaque = true; // A message without its key must not be handed out.
            return;
        }
        let mut owned = known.to_vec();
        view.key = Span::new(owned.len(), key.len());
        owned.extend_from_slice(key);
        view.owned = Some(owned.into());
    }

    /// Whether no record is of an append at or above `tail`, which never happened.
    #[inline]
    pub fn is_below(&self, tail: u64) -> bool {
        self.map.first().word64(header::NEXT).load(Ordering::Relaxed) <= tail
    }

    /// Notes key and due time of the drafts that have one; answers whether any had. Under the
    /// append lock.
    pub fn append<'a>(
        &self,
        tail: u64,
        drafts: impl Iterator<Item = (&'a Draft<'a>, Place)>,
    ) -> io::Result<bool> {
        if !self.is_below(tail) {
            self.rewind(tail);
        }
        let mut at = self.end().max(HEADER_BYTES);
        let start = at;
        let mut next = 0;
        for (draft, place) in drafts {
            if draft.key.is_empty() && draft.due_ns == 0 {
                continue;
            }
            let body = place.offset.to_le_bytes();
            let note = Draft {
                body: &body,
                key: draft.key,
                due_ns: draft.due_ns,
                timestamp_ns: draft.timestamp_ns,
                ..Draft::default()
            };
            let size = FRAMES.measure(&note).map_err(io::Error::other)?;
            self.ensure((at + size) as u64)?;
            let map = self.map.to(at + size)?;
            let filled = map.write_with(at, size, |out| FRAMES.encode(&note, place, false, out));
            let full = || Err("the segment's file of extras is full".into());
            filled.unwrap_or_else(full).map_err(io::Error::other)?;
            at += size;
            next = place.offset + 1;
        }
        if at == start {
            return Ok(false);
        }
        self.map.first().publish64(header::NEXT, next);
        self.map.first().publish64(header::END, at as u64);
        Ok(true)
    }

    fn ensure(&self, needed: u64) -> io::Result<()> {
        if needed <= self.allocated.load(Ordering::Relaxed) {
            return Ok(());
        }
        let target = needed.div_ceil(GROW_BYTES).saturating_mul(GROW_BYTES);
        let target = target.min(Growing::MOST_BYTES as u64);
        region::extend(self.map.file()?, target)?;
        self.allocated.store(target, Ordering::Relaxed);
        Ok(())
    }

    /// Takes back every record at or above `tail`, and what does not check. Under the append
    /// lock, or alone.
    pub fn rewind(&self, tail: u64) {
        let len = self.map.file().and_then(region::len).map_or(0, words::size);
        let bytes = self.bytes(len);
        let (mut at, mut next) = (HEADER_BYTES, 0);
        while let Some((offset, view)) = record(bytes, at).filter(|(offset, _)| *offset < tail) {
            next = offset + 1;
            at += view.size;
        }
        self.map.first().publish32(
            header::GENERATION,
            self.map.first().word32(header::GENERATION).load(Ordering::Relaxed).wrapping_add(1),
        );
        self.map.first().publish64(header::NEXT, next);
        self.map.first().publish64(header::END, at as u64);
        let cleared = 8.min(len.saturating_sub(at));
        if let Ok(map) = self.map.to(at + cleared) {
            map.write_with(at, cleared, |out| out.fill(0));
        }
    }

    /// The byte below `end` from which on the records do not check; none when they all do.
    pub fn fault(&self) -> Option<usize> {
        let end = self.end();
        let bytes = self.bytes(end);
        let mut at = HEADER_BYTES;
        while let Some((_, view)) = record(bytes, at) {
            at += view.size;
        }
        (at < end).then_some(at)
    }

    /// Syncs the file.
    pub fn sync(&self) -> io::Result<()> {
        region::sync(self.map.file()?)
    }
}

/// The record at `at`: the message's offset, and the frame that holds the rest.
fn record(bytes: &[u8], at: usize) -> Option<(u64, FrameView)> {
    let Step::Frame(view) = FRAMES.step(bytes, at, 0, true) else { return None };
    let frame = bytes.get(at..)?;
    let offset = words::u64_le(view.body.of(frame), 0).filter(|_| !view.opaque)?;
    Some((offset, view))
}
