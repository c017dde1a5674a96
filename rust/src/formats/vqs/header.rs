//! The end of a VQS ring: capacity left, count, read and write offset in the file's header.
//!
//! The four words follow from the control block (head, tail, numbers), so a process that inherits a
//! lock writes them anew. After a power loss neither counts: the extent record in the sidecar does,
//! which is written and synced after the frames and before anyone relies on them, and before ring
//! space that it gives up is used again. Two slots, written in turn, each with its checksum
//! (`penstock.formats.vqs.structs` declares the table).
//!
//! The original pops from where the header says. So, where one group is all there is, the header
//! follows its acks at once, though the space is given back later, by a maintenance thread: the
//! head that the header shows is then ahead of the head. Both slots of it stand in the control
//! block, so that the next opener after a kill knows what we may have stored there.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use pyo3::prelude::*;

use crate::bytes::checksum::crc32c;
use crate::bytes::word_offsets::word_offsets;
use crate::bytes::words;
use crate::errors;
use crate::files::region;
use crate::formats::mirror::{Mirror, PyMirror};
use crate::segment::publish::PyPublish;
use crate::segment::publish::{Batch, Publish};
use crate::segment::walk::{Care, Walk};
use crate::segment::{PySegment, Segment};
use crate::shared::control::{Control, Shared, at};
use crate::shared::lock::{Held, patiently};
use crate::shared::protocol::TailWords;
use crate::sys::mapping::Mapping;

word_offsets! {
    /// Fields of the record of an extent; its file has two.
    pub mod field {
        MAGIC = 0,
        SEQUENCE = 8,
        HEAD = 16,
        TAIL = 24,
        HEAD_NUMBER = 32,
        NEXT_NUMBER = 40,
        CAPACITY_LEFT = 48,
        COUNT = 52,
        READ_OFFSET = 56,
        WRITE_OFFSET = 60,
        FILE_BYTES = 64,
        EXACT = 72,
        CRC = 76,
    }
}
/// Capacity, count, read and write offset, in the header of every stage.
const WORDS_AT: usize = 4;
const EXTENT_FILE_BYTES: usize = 8192;
const SLOT_BYTES: usize = 4096;
const RECORD_BYTES: usize = 80;
const MAGIC: &[u8; 8] = b"VQSINTNT";
/// So much of a ring is copied by one write.
const COPY_BYTES: u64 = 1 << 20;
/// How far ahead of the tail pages are made ready at a time.
const READY_BYTES: usize = 2 << 20;
/// Words of the format's own in the control block: a head that is being moved.
const MOVING: usize = at::USER;
const MOVING_HEAD: usize = at::USER + 8;
const MOVING_NUMBER: usize = at::USER + 16;
/// The head that the header shows: which of two slots counts, and the slots, offset and number.
pub const SHOWN: usize = at::USER + 24;
/// The first of the two.
pub const SHOWN_SLOTS: usize = at::USER + 32;
/// 1: one group is all there is, and its acks are shown.
const SHOWS: usize = at::USER + 64;
/// So many messages at most are shown as done at a time, with the append lock held.
const SHOWN_AT_ONCE: usize = 1024;

/// Where a ring begins and ends.
#[derive(Clone, Copy)]
struct Extent {
    head: u64,
    tail: u64,
    head_number: u64,
    next_number: u64,
}

/// What one slot of the extent file says.
struct Noted {
    sequence: u64,
    slot: usize,
    extent: Extent,
    /// Nothing above the extent's tail counts.
    is_exact: bool,
}

impl Extent {
    /// The four words of the header.
    fn words(&self, segment: &Segment) -> Option<[u8; 16]> {
        let ring = segment.ring()?;
        self.words_in(ring.len(), ring.start() as u64)
    }

    /// The same for a ring of `len` bytes that begins at byte `start` of its file.
    fn words_in(&self, len: u64, start: u64) -> Option<[u8; 16]> {
        let small = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        let position = |offset: u64| small(start + offset.checked_rem(len).unwrap_or_default());
        let mut out = [0; 16];
        words::put_u32_le(&mut out, 0, small(len.saturating_sub(self.tail - self.head)))?;
        words::put_u32_le(&mut out, 4, small(self.next_number.saturating_sub(self.head_number)))?;
        words::put_u32_le(&mut out, 8, position(self.head))?;
        words::put_u32_le(&mut out, 12, position(self.tail))?;
        Some(out)
    }
}

/// Publishes the end of a ring and gives its space back.
pub struct RingHeader {
    control: Arc<Control>,
    /// The file with the header, where that is not the segment itself.
    meta: Option<Mapping>,
    extent_file: Mapping,
    is_always: bool,
    /// The ring, for acks.
    ring: Mutex<Option<Arc<Segment>>>,
    /// Pages before this offset were made ready for the tail to come; of this process alone.
    ready: AtomicU64,
}

fn folder_of(segment: &Segment) -> &Path {
    segment.path().parent().unwrap_or(Path::new("."))
}

fn missing() -> io::Error {
    io::Error::other("the segment is no ring that is open for writing")
}

impl RingHeader {
    fn word(&self, at: usize) -> u64 {
        self.control.map().word64(at).load(Ordering::Acquire)
    }

    /// The caller holds the append or the sync lock. So a head that is being moved then belongs to
    /// a process that died, which held both.
    fn extent(&self, tail: u64, next_number: u64) -> Extent {
        if self.word(MOVING) != 0 {
            self.move_head(self.word(MOVING_HEAD), self.word(MOVING_NUMBER));
        }
        let (head, head_number) = (self.control.head(), self.word(at::HEAD_NUMBER));
        Extent { head: head.min(tail), tail, head_number, next_number }
    }

    /// Takes the append lock; a dead holder's work is put right first.
    fn lock(&self, segment: &Segment) -> io::Result<Held<'_>> {
        let control = &*self.control;
        let held = control.life().hold(control.lock_word())?;
        self.clear_unfinished(segment)?;
        Ok(held)
    }

    /// Puts a dead holder's work right. With the append lock held.
    fn clear_unfinished(&self, segment: &Segment) -> io::Result<()> {
        let control = &*self.control;
        if control.is_unfinished() {
            let (tail, number) = control.end_and_number();
            control.advance(tail, number);
            control.publish_end(tail, || self.put_right(segment, tail, number))?;
            control.reserve_nothing(tail, number);
        }
        Ok(())
    }

    /// Under the append lock, after its holder died.
    fn put_right(&self, segment: &Segment, tail: u64, number: u64) -> io::Result<bool> {
        let map = segment.map().ok_or_else(missing)?;
        if map.inode() != region::inode(&region::open(segment.path(), false)?)? {
            // The holder died after it had renamed a resized file, before it told the others. What
            // comes next is durable only once that name is on the disk: the next sync sees to that.
            self.control.forget_name();
            self.control.map().word64(at::GENERATION).fetch_add(1, Ordering::AcqRel);
            return Ok(false);
        }
        self.store(segment, &self.extent(tail, number)).map(|()| true)
    }

    fn store(&self, segment: &Segment, extent: &Extent) -> io::Result<()> {
        let mut shown = *extent;
        let (head, head_number) = self.shown();
        if (extent.head..=extent.tail).contains(&head) {
            (shown.head, shown.head_number) = (head, head_number);
        }
        self.store_words(segment, &shown.words(segment).ok_or_else(missing)?)
    }

    fn header<'a>(&'a self, segment: &'a Segment) -> io::Result<&'a Mapping> {
        self.meta.as_ref().or(segment.map()).ok_or_else(missing)
    }

    fn store_words(&self, segment: &Segment, raw: &[u8; 16]) -> io::Result<()> {
        self.header(segment)?.store(WORDS_AT, raw).ok_or_else(missing)
    }

    /// Offset and number of the oldest message that the header shows. With the append lock held.
    fn shown(&self) -> (u64, u64) {
        let slot = SHOWN_SLOTS + (self.word(SHOWN) & 1) as usize * 16;
        let (head, number) = (self.control.head(), self.word(at::HEAD_NUMBER));
        match self.word(slot) {
            offset if offset >= head => (offset, self.word(slot + 8)),
            _ => (head, number),
        }
    }

    /// Lets the header show that everything before `head` is done; the end that it shows stays.
    /// With the append lock held.
    fn show(&self, segment: &Segment, head: u64) -> io::Result<()> {
        let control = &*self.control;
        if control.is_unfinished() || self.word(MOVING) != 0 || segment.is_stale() {
            return Ok(()); // The next holder puts that right, and stores the header anew.
        }
        let ring = segment.ring().ok_or_else(missing)?.len();
        let mut raw: [u8; 16] = self
            .header(segment)?
            .get(WORDS_AT, 16)
            .and_then(|raw| raw.try_into().ok())
            .ok_or_else(missing)?;
        let word = |at| words::u32_le(&raw, at).map(u64::from).ok_or_else(missing);
        let (before, number_before) = self.shown();
        let (end, count) = (before + ring.saturating_sub(word(0)?), word(4)?);
        if words::small(segment.position(before)) != words::u32_le(&raw, 8).unwrap_or_default() {
            return Ok(());
        }
        let (mut at, mut number) = match head < before {
            true => (control.head(), self.word(at::HEAD_NUMBER)),
            false => (before, number_before),
        };
        for _ in 0..SHOWN_AT_ONCE {
            let Some(size) = segment.size_at(at, end).filter(|_| at < head.min(end)) else { break };
            (at, number) = (at + size as u64, number + 1);
        }
        if at == before || at > head.min(end) {
            return Ok(());
        }
        let small = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        words::put_u32_le(&mut raw, 0, small(ring.saturating_sub(end - at)));
        words::put_u32_le(&mut raw, 4, small((count + number_before).saturating_sub(number)));
        words::put_u32_le(&mut raw, 8, words::small(segment.position(at)));
        let map = control.map();
        let next = (self.word(SHOWN) & 1) ^ 1;
        map.publish64(SHOWN_SLOTS + words::size(next) * 16, at);
        map.publish64(SHOWN_SLOTS + words::size(next) * 16 + 8, number);
        self.store_words(segment, &raw)?;
        map.publish64(SHOWN, next);
        Ok(())
    }

    /// Both words of the head, so that a successor can finish what was begun.
    fn move_head(&self, head: u64, number: u64) {
        let map = self.control.map();
        map.publish64(MOVING_HEAD, head);
        map.publish64(MOVING_NUMBER, number);
        map.publish64(MOVING, 1);
        map.publish64(at::HEAD_NUMBER, number);
        map.publish64(at::HEAD, head);
        map.publish64(MOVING, 0);
    }

    /// What a slot of the extent file says. None: it is not whole.
    fn noted(&self, slot: usize) -> Option<Noted> {
        let raw = self.extent_file.get(slot, RECORD_BYTES)?;
        if words::u32_le(raw, field::CRC) != raw.get(..field::CRC).map(crc32c) {
            return None;
        }
        let wide = |at| words::u64_le(raw, at);
        let extent = Extent {
            head: wide(field::HEAD)?,
            tail: wide(field::TAIL)?,
            head_number: wide(field::HEAD_NUMBER)?,
            next_number: wide(field::NEXT_NUMBER)?,
        };
        let is_exact = words::u32_le(raw, field::EXACT)? != 0;
        Some(Noted { sequence: wide(field::SEQUENCE)?, slot, extent, is_exact })
    }

    /// The newest whole slot.
    fn newest(&self) -> Option<Noted> {
        let slots = [self.noted(0), self.noted(SLOT_BYTES)];
        slots.into_iter().flatten().max_by_key(|noted| noted.sequence)
    }

    /// From now on nothing counts after a power loss that was not synced: a list of this opening,
    /// which is at `always`, would be there by halves.
    fn be_exact(&self) -> io::Result<()> {
        let Some(newest) = self.newest().filter(|newest| !newest.is_exact) else { return Ok(()) };
        let raw =
            self.extent_file.get(newest.slot, RECORD_BYTES).and_then(|raw| raw.try_into().ok());
        self.write_slot(Some(&newest), raw.ok_or_else(missing)?)
    }

    /// Writes the extent into the slot that is not the newest. Under the sync lock.
    fn note(&self, segment: &Segment, extent: &Extent) -> io::Result<()> {
        let mut raw = [0; RECORD_BYTES];
        let file_bytes = segment.ring().map_or(0, |ring| ring.len() + ring.start() as u64);
        words::put(&mut raw, field::MAGIC, MAGIC);
        words::put_u64_le(&mut raw, field::HEAD, extent.head);
        words::put_u64_le(&mut raw, field::TAIL, extent.tail);
        words::put_u64_le(&mut raw, field::HEAD_NUMBER, extent.head_number);
        words::put_u64_le(&mut raw, field::NEXT_NUMBER, extent.next_number);
        words::put(&mut raw, field::CAPACITY_LEFT, &extent.words(segment).ok_or_else(missing)?);
        words::put_u64_le(&mut raw, field::FILE_BYTES, file_bytes);
        self.write_slot(self.newest().as_ref(), raw)
    }

    /// Writes a record behind the newest one. If a writer at `always` has made the extent exact, it
    /// stays so.
    fn write_slot(&self, newest: Option<&Noted>, mut raw: [u8; RECORD_BYTES]) -> io::Result<()> {
        let (sequence, slot) =
            newest.map_or((1, 0), |newest| (newest.sequence + 1, SLOT_BYTES - newest.slot));
        let is_exact = self.is_always || newest.is_some_and(|newest| newest.is_exact);
        words::put_u64_le(&mut raw, field::SEQUENCE, sequence);
        words::put_u32_le(&mut raw, field::EXACT, u32::from(is_exact));
        let crc = crc32c(raw.get(..field::CRC).unwrap_or_default());
        words::put_u32_le(&mut raw, field::CRC, crc);
        self.extent_file.store(slot, &raw).ok_or_else(missing)?;
        region::sync(self.extent_file.file()?)
    }

    /// What the newest extent on the disk claims from `head` on, if it claims anything before it:
    /// that space must not be used again as long as a power loss would bring the claim back.
    fn claimed(&self, head: u64, number: u64) -> Option<Extent> {
        let claim = self.newest()?.extent;
        if claim.head == claim.tail || head <= claim.head {
            return None;
        }
        let is_over = head >= claim.tail;
        let (tail, next_number) =
            if is_over { (head, number) } else { (claim.tail, claim.next_number) };
        Some(Extent { head, tail, head_number: number, next_number })
    }

    /// Moves the head to `head`, which every group has passed; answers how many messages went.
    fn free(
        &self,
        segment: &Segment,
        head: u64,
        since: Option<u64>,
        is_synced: bool,
    ) -> io::Result<u64> {
        let control = &*self.control;
        let _syncing = self.control.sync_turns().hold()?;
        let (old, old_number) = (control.head(), self.word(at::HEAD_NUMBER));
        if head <= old || head > control.tail() || segment.is_stale() {
            return Ok(0);
        }
        if since.is_some_and(|since| since != old) {
            return Ok(0); // What `head` was read from may have been overwritten meanwhile.
        }
        let freed = count(segment, old, head);
        let number = old_number + freed;
        if is_synced {
            // Space may be used again only when a power loss can't bring its messages back.
            let held = self.lock(segment)?;
            let (tail, next_number) = (control.tail(), control.next_number());
            control.begin_sync(); // Acks that come from now on ask the maintenance threads again.
            drop(held);
            let extent = Extent { head, tail, head_number: number, next_number };
            control.sync(|| {
                segment.sync(false)?;
                control.sync_name(segment.base(), segment.path())?;
                self.note(segment, &extent)
            })?;
            control.set_durable(tail);
        } else if let Some(left) = self.claimed(head, number) {
            control.sync(|| self.note(segment, &left))?;
        }
        let held = self.lock(segment)?;
        self.move_head(head, number);
        let extent = self.extent(control.tail(), control.next_number());
        control.publish_end(extent.tail, || self.store(segment, &extent).map(|()| true))?;
        drop(held);
        control.signal();
        Ok(freed)
    }

    /// With both locks held: what came since `copied`, the words, and the new file's name.
    fn replace(
        &self,
        segment: &Segment,
        fresh: &Path,
        file: &File,
        ring: u64,
        copied: u64,
    ) -> io::Result<(bool, u64)> {
        let control = &*self.control;
        self.clear_unfinished(segment)?;
        let (tail, number) = control.end_and_number();
        let mut extent = self.extent(tail, number);
        let used = tail - extent.head;
        if segment.is_stale() || used > ring {
            return Ok((false, used));
        }
        copy(segment, file, ring, copied, tail)?;
        let (head, head_number) = self.shown();
        if (extent.head..=tail).contains(&head) {
            (extent.head, extent.head_number) = (head, head_number);
        }
        let start = segment.ring().ok_or_else(missing)?.start() as u64;
        let raw = extent.words_in(ring, start).ok_or_else(missing)?;
        if self.meta.is_none() {
            region::write_at(file, WORDS_AT as u64, &raw)?;
        }
        // If we die here, the next appender sees that the file is another one.
        control.reserve(tail + 1, number);
        // A process that looks before the rename finds the old file, and looks once more after it.
        let generation = control.map().word64(at::GENERATION);
        generation.fetch_add(1, Ordering::AcqRel);
        let renamed = region::rename(fresh, segment.path());
        if renamed.is_ok() && self.meta.is_some() {
            self.store_words(segment, &raw)?;
        }
        generation.fetch_add(1, Ordering::AcqRel);
        control.reserve_nothing(tail, number);
        renamed.map(|()| (true, used))
    }
}

/// Copies `[first, last)` to where it belongs in a ring of `len` bytes in `file`.
fn copy(segment: &Segment, file: &File, len: u64, mut first: u64, last: u64) -> io::Result<()> {
    let start = segment.ring().ok_or_else(missing)?.start() as u64;
    while first < last {
        let at = first.checked_rem(len).ok_or_else(missing)?;
        let piece = (last - first).min(len - at).min(COPY_BYTES);
        let bytes = segment.frame_bytes(first, words::size(piece));
        region::write_at(file, start + at, bytes)?;
        first += piece;
    }
    Ok(())
}

/// Messages in `[first, last)`; damage that every group has passed over counts for none.
fn count(segment: &Segment, first: u64, last: u64) -> u64 {
    Walk::new(segment, first, last, Care::Sizes).count_past_damage()
}

impl RingHeader {
    /// The tail comes to pages that were synced a lap ago: forgotten ahead of it, they are mapped
    /// again with far fewer faults.
    #[inline]
    fn make_ready(&self, segment: &Segment, end: u64) {
        if end < self.ready.load(Ordering::Relaxed) {
            return;
        }
        let (Some(map), Some(ring)) = (segment.map(), segment.ring()) else { return };
        let at = segment.position(end);
        let len = ring.straight(at, READY_BYTES);
        if end >= ring.len() && self.control.durable() > end - ring.len() {
            map.forget(at, len);
        }
        self.ready.store(end + len as u64, Ordering::Relaxed);
    }
}

impl Mirror for RingHeader {
    /// If others append just now this is left to the next ack, or to a maintenance thread.
    fn store(&self, cursor: u64, _next: u64) -> io::Result<()> {
        let control = &*self.control;
        let ring = self.ring.lock().unwrap_or_else(|e| e.into_inner()).clone();
        let Some(segment) = ring.filter(|_| self.word(SHOWS) != 0) else { return Ok(()) };
        match control.life().hold_briefly(control.lock_word()) {
            Some(_held) if self.word(SHOWS) != 0 => self.show(&segment, cursor),
            _ => Ok(()),
        }
    }
}

impl Publish for RingHeader {
    fn publish(&self, segment: &Segment, batch: &Batch) -> io::Result<()> {
        self.make_ready(segment, batch.end);
        self.store(segment, &self.extent(batch.end, batch.next_number))
    }

    fn is_word(&self) -> bool {
        true
    }

    fn synced(&self, segment: &Segment, batch: &Batch) -> io::Result<()> {
        let own = segment.map().filter(|_| self.is_always);
        if let Some(map) = self.meta.as_ref().or(own) {
            region::sync(map.file()?)?;
        }
        self.note(segment, &self.extent(batch.end, batch.next_number))
    }

    fn drop_above(&self, segment: &Segment, batch: &Batch, _reserved: u64) -> io::Result<bool> {
        self.put_right(segment, batch.end, batch.next_number)
    }
}

/// The header of a VQS queue that is open for writing.
#[pyclass(frozen, module = "penstock._core", name = "VqsHeader")]
pub struct PyRingHeader(Arc<RingHeader>);

#[pymethods]
impl PyRingHeader {
    /// `extent_file` is the file of the extent record; `meta` the one with the header, where that
    /// is not the segment itself.
    #[new]
    #[pyo3(signature = (shared, extent_file, *, always, meta=None))]
    fn new(
        py: Python<'_>,
        shared: &Shared,
        extent_file: PathBuf,
        always: bool,
        meta: Option<PathBuf>,
    ) -> PyResult<Self> {
        let path = extent_file;
        let file = region::open_or_create(&path)?;
        region::allocate(&file, EXTENT_FILE_BYTES as u64)?;
        let extent_file = Mapping::new(file, EXTENT_FILE_BYTES, true)?;
        let meta = match meta {
            None => None,
            Some(path) => Some(Mapping::new(region::open(&path, true)?, SLOT_BYTES, true)?),
        };
        let control = Arc::clone(&shared.control);
        let header = RingHeader {
            control,
            meta,
            extent_file,
            is_always: always,
            ring: Mutex::new(None),
            ready: AtomicU64::new(0),
        };
        if always {
            let be_exact = || {
                let _syncing = header.control.sync_turns().hold()?;
                header.control.sync(|| header.be_exact())
            };
            let is_exact = patiently(py, header.control.life(), be_exact)?;
            is_exact.map_err(|error| errors::os(error, &path))?;
        }
        Ok(Self(Arc::new(header)))
    }

    /// How the end becomes visible.
    fn publish(&self) -> PyPublish {
        PyPublish(Arc::clone(&self.0) as Arc<dyn Publish>)
    }

    /// Where a group's acks are shown.
    fn mirror(&self) -> PyMirror {
        PyMirror(Arc::clone(&self.0) as Arc<dyn Mirror>)
    }

    /// The ring as it is now: acks are shown in its header if `shows`, else none is.
    fn follow(&self, py: Python<'_>, segment: &PySegment, shows: bool) -> PyResult<()> {
        let (header, segment) = (&self.0, &segment.0);
        *header.ring.lock().unwrap_or_else(|e| e.into_inner()) = Some(Arc::clone(segment));
        let follow = || {
            let _held = header.lock(segment)?;
            header.control.map().publish64(SHOWS, u64::from(shows));
            if shows { Ok(()) } else { header.show(segment, header.control.head()) }
        };
        let followed = patiently(py, header.control.life(), follow)?;
        followed.map_err(|error| errors::os(error, segment.path()))
    }

    /// Gives everything before `head` back; answers how many messages that were. With `synced`
    /// this survives a power loss before the space is used again. Nothing when the head is not
    /// `since` any more, if that is given.
    #[pyo3(signature = (segment, head, synced, since=None))]
    fn free(
        &self,
        py: Python<'_>,
        segment: &PySegment,
        head: u64,
        synced: bool,
        since: Option<u64>,
    ) -> PyResult<u64> {
        let (header, segment) = (&self.0, &segment.0);
        let free = || header.free(segment, head, since, synced);
        let freed = patiently(py, header.control.life(), free)?;
        freed.map_err(|error| errors::os(error, segment.path()))
    }

    /// Puts the ring in the file `fresh` in the place of this one: `ring` bytes long, with
    /// everything up to `copied` in it, synced. Answers whether it did, and how many bytes are in
    /// use: it does not when these are more, or when the file was replaced meanwhile.
    ///
    /// No put is reported as durable before the new name is there: the sync lock is held until
    /// then. So what was synced is below the tail that is copied up to here, and on the disk before
    /// the name can be. The append lock is held for what came since `copied`, and for the rename;
    /// no sync is in it.
    fn replace(
        &self,
        py: Python<'_>,
        segment: &PySegment,
        fresh: PathBuf,
        ring: u64,
        copied: u64,
    ) -> PyResult<(bool, u64)> {
        let (header, segment) = (&self.0, &segment.0);
        let os = |error| errors::os(error, segment.path());
        let file = region::open(&fresh, true).map_err(os)?;
        let turns = header.control.sync_turns();
        let _syncing = patiently(py, turns.life, || turns.hold())?.map_err(os)?;
        let soon = header.control.tail();
        let copy_more = || {
            copy(segment, &file, ring, copied, soon)?;
            header.control.sync(|| region::sync(&file))
        };
        py.detach(copy_more).map_err(os)?;
        let held = header.control.hold(py)?;
        let answer =
            py.detach(|| header.replace(segment, &fresh, &file, ring, soon)).map_err(os)?;
        drop(held);
        header.control.signal();
        if answer.0 {
            let sync = || {
                region::sync(&file)?;
                header.meta.as_ref().map_or(Ok(()), |meta| region::sync(meta.file()?))?;
                region::sync_folder(folder_of(segment))
            };
            py.detach(|| header.control.sync(sync)).map_err(os)?;
        }
        Ok(answer)
    }
}
