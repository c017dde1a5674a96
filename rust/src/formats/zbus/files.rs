//! The files of a zbus queue that are not data: its index, and a reader and a NAK file per group.
//! Where each field is comes from Python (`penstock.formats.zbus.structs`); this stores and finds.

use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use pyo3::prelude::*;

use crate::bytes::words;
use crate::errors;
use crate::files::region;
use crate::formats::mirror::{Change, Mirror, PyMirror};
use crate::segment::Segment;
use crate::segment::publish::PyPublish;
use crate::segment::publish::{Batch, Publish};
use crate::shared::control::Shared;
use crate::sys::descriptor::Descriptor;
use crate::sys::mapping::Mapping;

const BLOCK_COUNT_AT: usize = 4;
const BLOCK_START_AT: usize = 8;
const ENTRIES_AT: usize = 1024;
const ENTRY_BYTES: usize = 28;
const SLOTS: u64 = 10240;
const INDEX_BYTES: usize = ENTRIES_AT + 10240 * ENTRY_BYTES;
const NS_PER_MS: i64 = 1_000_000;
const NAKS: usize = 1000;
/// The id in a frame, and in a NAK record that has one.
const ID_AT: u64 = 16;
const ID_BYTES: usize = 40;
const NAK_ID_AT: usize = 9;

/// Where the fields are that differ between layouts.
struct IndexFields {
    base_at: usize,
    end_at: usize,
    created_at: usize,
    updated_at: usize,
    count_at: usize,
    first_number: u64,
}

/// The mapped index.
struct Index {
    map: Mapping,
    fields: IndexFields,
}

fn found(len: u64) -> String {
    format!("a file of {len} bytes")
}

fn wrong(text: String) -> io::Error {
    io::Error::other(text)
}

impl Index {
    /// The oldest block and how many there are. A trim changes both by one write, which may be met
    /// half-way: what is read twice in a row is whole.
    fn blocks(&self) -> (u64, u64) {
        let mut seen = (self.block_start(), self.block_count());
        loop {
            let again = (self.block_start(), self.block_count());
            if again == seen {
                return seen;
            }
            seen = again;
        }
    }

    fn block_count(&self) -> u64 {
        let word = self.map.word32(BLOCK_COUNT_AT).load(Ordering::Acquire);
        u64::from(u32::from_be_bytes(word.to_le_bytes())).min(SLOTS)
    }

    fn block_start(&self) -> u64 {
        let word = self.map.word64(BLOCK_START_AT).load(Ordering::Acquire);
        u64::from_be_bytes(word.to_le_bytes())
    }

    fn set_block_count(&self, count: u64) {
        let count = u32::try_from(count).unwrap_or(0);
        self.map.publish32(BLOCK_COUNT_AT, u32::from_le_bytes(count.to_be_bytes()));
    }

    fn entry_at(block: u64) -> usize {
        ENTRIES_AT + words::size(block % SLOTS) * ENTRY_BYTES
    }

    fn base(&self, block: u64) -> u64 {
        let at = Self::entry_at(block) + self.fields.base_at;
        self.map.get(at, 8).and_then(|raw| words::u64_be(raw, 0)).unwrap_or(0)
    }

    fn end(&self, block: u64) -> u64 {
        let word = self.map.word32(Self::entry_at(block) + self.fields.end_at);
        u64::from(u32::from_be_bytes(word.load(Ordering::Acquire).to_le_bytes()))
    }

    /// The last block, which must be the one that begins at `base`.
    fn last(&self, base: u64) -> io::Result<u64> {
        let (start, count) = self.blocks();
        let last = start.saturating_add(count.saturating_sub(1));
        if count == 0 || self.base(last) != base {
            return Err(wrong(format!(
                "the index says that block {last} begins at {}, the queue appends at {base}: \
                 another program has written to it; close the queue and open it again",
                self.base(last)
            )));
        }
        Ok(last)
    }

    /// The end word is stored last but one and the count last: by then what they speak of is in
    /// place.
    fn set_end(&self, block: u64, end: u64, batch: &Batch) -> io::Result<()> {
        let too_far = || wrong(format!("a block can't end at {end}: 2^31-1 is the most"));
        let end = i32::try_from(end).map_err(|_| too_far())?;
        let at = Self::entry_at(block);
        self.map.publish32(at + self.fields.end_at, u32::from_le_bytes(end.to_be_bytes()));
        let updated_at = at + self.fields.updated_at;
        let before = self.map.get(updated_at, 8).and_then(|raw| words::i64_be(raw, 0));
        let now_ms = batch.now_ns.div_euclid(NS_PER_MS);
        if before.is_none_or(|before| before < now_ms) {
            self.map.store(updated_at, &now_ms.to_be_bytes());
        }
        let count = batch.next_number.saturating_sub(self.fields.first_number);
        self.map.store(self.fields.count_at, &count.to_be_bytes());
        Ok(())
    }

    /// The block that `offset` is in and its position there. The end of everything that
    /// is written is named in the block that was written, as the original does.
    fn locate(&self, offset: u64) -> (u64, u64) {
        let (start, count) = self.blocks();
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.base(start.saturating_add(middle)) <= offset {
                low = middle + 1
            } else {
                high = middle
            }
        }
        let mut block = start.saturating_add(low.saturating_sub(1));
        if block > start && offset == self.base(block) && self.end(block) == 0 {
            block -= 1;
        }
        (block, offset.saturating_sub(self.base(block)))
    }
}

/// The end of a zbus queue: a word in the index, and the count of messages.
struct EndWord(Arc<Index>);

impl Publish for EndWord {
    fn publish(&self, segment: &Segment, batch: &Batch) -> io::Result<()> {
        let block = self.0.last(segment.base())?;
        self.0.set_end(block, batch.end - segment.base(), batch)
    }

    fn publish_behind(&self, segment: &Segment, batch: &Batch) -> io::Result<bool> {
        let (index, end) = (&self.0, batch.end.saturating_sub(segment.base()));
        match index.last(segment.base()) {
            Ok(block) if index.end(block) < end => index.set_end(block, end, batch).map(|()| true),
            _ => Ok(false), // The process that began the next block has ended this one.
        }
    }

    fn is_word(&self) -> bool {
        true
    }

    fn sync(&self) -> io::Result<()> {
        region::sync(self.0.map.file()?)
    }

    fn drop_above(&self, segment: &Segment, batch: &Batch, _reserved: u64) -> io::Result<bool> {
        let index = &self.0;
        let (start, count) = index.blocks();
        // The holder may have died after it had entered the next block, before it told the others.
        if count > 1
            && index.base(start + count - 1) == batch.end
            && index.base(start + count - 2) == segment.base()
        {
            index.set_block_count(count - 1);
        }
        let block = index.last(segment.base())?;
        index.set_end(block, batch.end - segment.base(), batch).map(|()| true)
    }

    fn begin(&self, old: &Segment, batch: &Batch, base: u64) -> io::Result<bool> {
        let index = &self.0;
        let block = index.last(old.base())?;
        // Ending it is no write: its time stays that of its last message.
        index.set_end(block, batch.end - old.base(), &Batch { now_ns: 0, ..*batch })?;
        let count = index.block_count();
        if count >= SLOTS {
            return Err(wrong("the index has no slot for another block: trim the queue".into()));
        }
        let now_ms = batch.now_ns.div_euclid(NS_PER_MS).to_be_bytes();
        let mut entry = [0u8; ENTRY_BYTES];
        words::put(&mut entry, index.fields.base_at, &base.to_be_bytes());
        words::put(&mut entry, index.fields.created_at, &now_ms);
        words::put(&mut entry, index.fields.updated_at, &now_ms);
        // The entry before the count: a count that is ahead would show a block of zeros.
        index.map.store(Index::entry_at(block + 1), &entry);
        index.set_block_count(count + 1);
        Ok(true)
    }
}

/// The blocks, for ids that NAK records repeat: the file that was looked into last stays open.
struct Blocks {
    folder: PathBuf,
    open: Mutex<Option<(u64, Descriptor)>>,
}

impl Blocks {
    /// The id of the message at `offset`, as its frame has it; zeros when it can't be read.
    fn id(&self, index: &Index, offset: u64) -> [u8; ID_BYTES] {
        let mut id = [0; ID_BYTES];
        let (block, position) = index.locate(offset);
        let base = index.base(block);
        let mut open = self.open.lock().unwrap_or_else(|e| e.into_inner());
        if open.as_ref().is_none_or(|(known, _)| *known != base) {
            let path = self.folder.join(format!("{base:020}.zbus"));
            let file = region::open(&path, false).and_then(Descriptor::new);
            *open = file.ok().map(|file| (base, file));
        }
        if let Some(Ok(file)) = open.as_ref().map(|(_, file)| file.file()) {
            let _ = file.read_exact_at(&mut id, position + ID_AT);
        }
        id
    }
}

/// A group's own files.
struct ReaderFile {
    index: Arc<Index>,
    rdx: Mapping,
    /// The NAK file and the bytes of one record, where the group keeps its leases in it.
    nak: Option<(Mapping, usize)>,
    /// Where records have the message's id too.
    blocks: Option<Blocks>,
}

impl ReaderFile {
    fn record(nak: &Mapping, bytes: usize, index: usize) -> Option<(usize, u8, u64)> {
        let at = 1024 + index * bytes;
        let raw = nak.get(at, 9)?;
        Some((at, *raw.first()?, words::u64_be(raw, 1)?))
    }
}

impl Mirror for ReaderFile {
    fn store(&self, cursor: u64, next: u64) -> io::Result<()> {
        let offset = if self.nak.is_some() { next } else { cursor };
        let (block, position) = self.index.locate(offset);
        let mut bookmark = [0u8; 12];
        words::put_u64_be(&mut bookmark, 0, block);
        words::put_i32_be(&mut bookmark, 8, i32::try_from(position).unwrap_or(i32::MAX));
        // The file is read each time: another process may have stored there since.
        if self.rdx.get(0, bookmark.len()) != Some(&bookmark[..]) {
            self.rdx.store(0, &bookmark);
        }
        Ok(())
    }

    fn note(&self, change: Change) {
        let Some((nak, bytes)) = &self.nak else { return };
        let mut records = (0..NAKS).filter_map(|index| Self::record(nak, *bytes, index));
        match change {
            Change::Moved => {
                for (at, ..) in records.filter(|(_, status, _)| *status == 1) {
                    nak.store(at, &[0]);
                }
            }
            Change::Done(done) => {
                let found = records.find(|(_, status, at)| *status == 1 && *at == done);
                if let Some((at, ..)) = found {
                    nak.store(at, &[0]);
                }
            }
            Change::Open { offset, receives, wall_ns } => {
                let mut free = None;
                let known = records.find(|(at, status, known)| {
                    if *status == 0 && free.is_none() {
                        free = Some(*at);
                    }
                    *status == 1 && *known == offset
                });
                let Some(at) = known.map(|(at, ..)| at).or(free) else { return };
                let mut record = vec![0u8; *bytes];
                words::put_u64_be(&mut record, 1, offset);
                if let Some(blocks) = &self.blocks {
                    words::put(&mut record, NAK_ID_AT, &blocks.id(&self.index, offset));
                }
                let retries = i32::try_from(receives).unwrap_or(i32::MAX);
                words::put_i32_be(&mut record, bytes - 12, retries);
                words::put_i64_be(&mut record, bytes - 8, wall_ns.div_euclid(NS_PER_MS));
                nak.store(at, &record);
                nak.store(at, &[1]);
            }
        }
    }
}

/// The index of a zbus queue, mapped. Where the fields are is the layout's.
#[pyclass(frozen, module = "penstock._core")]
pub struct ZbusIndex(Arc<Index>);

#[pymethods]
impl ZbusIndex {
    #[new]
    #[pyo3(signature = (path, *, base_at, end_at, created_at, updated_at, count_at, first_number))]
    fn new(
        path: PathBuf,
        base_at: usize,
        end_at: usize,
        created_at: usize,
        updated_at: usize,
        count_at: usize,
        first_number: u64,
    ) -> PyResult<Self> {
        let fits = [base_at, created_at, updated_at].iter().all(|at| at + 8 <= ENTRY_BYTES)
            && end_at + 4 <= ENTRY_BYTES
            && end_at.is_multiple_of(4)
            && count_at + 8 <= ENTRIES_AT;
        if !fits {
            return Err(pyo3::exceptions::PyValueError::new_err("no such index layout"));
        }
        let file = region::open(&path, true)?;
        let len = region::len(&file)?;
        if len < INDEX_BYTES as u64 {
            return Err(errors::damaged(&path, words::size(len), found(len), "an index").into());
        }
        let map = Mapping::new(file, INDEX_BYTES, true)?;
        let fields =
            IndexFields { base_at, end_at, created_at, updated_at, count_at, first_number };
        Ok(Self(Arc::new(Index { map, fields })))
    }

    /// How the queue's end becomes visible.
    fn publish(&self) -> PyPublish {
        PyPublish(Arc::new(EndWord(Arc::clone(&self.0))))
    }

    /// Where a group's progress is kept: its reader file, and its NAK file with records of
    /// `record_bytes`. With the folder of the blocks, records have ids.
    #[pyo3(signature = (reader, nak=None, record_bytes=21, blocks=None))]
    fn mirror(
        &self,
        reader: PathBuf,
        nak: Option<PathBuf>,
        record_bytes: usize,
        blocks: Option<PathBuf>,
    ) -> PyResult<PyMirror> {
        let open = |path: &PathBuf, least: usize| -> io::Result<Mapping> {
            let file = region::open(path, true)?;
            let len = region::len(&file)?;
            if len < least as u64 {
                let expected = format!("{least} bytes");
                return Err(errors::damaged(path, words::size(len), found(len), &expected));
            }
            Mapping::new(file, least, true)
        };
        let nak = match nak {
            Some(path) => Some((open(&path, 1024 + NAKS * record_bytes.max(21))?, record_bytes)),
            None => None,
        };
        let reader = ReaderFile {
            index: Arc::clone(&self.0),
            rdx: open(&reader, 256)?,
            nak,
            blocks: blocks.map(|folder| Blocks { folder, open: Mutex::new(None) }),
        };
        Ok(PyMirror(Arc::new(reader)))
    }

    /// How many blocks there are.
    #[getter]
    fn block_count(&self) -> u64 {
        self.0.block_count()
    }

    /// How many bytes of the block that begins at `base` are used; none when there is no such block.
    fn end_of(&self, base: u64) -> Option<u64> {
        let (start, count) = self.0.blocks();
        // The newest come first: a roll asks for one of them.
        let mut blocks = (0..count).rev().map(|block| start.saturating_add(block));
        let block = blocks.find(|block| self.0.base(*block) == base)?;
        Some(self.0.end(block))
    }

    /// The block that `offset` is in, and its position there.
    fn locate(&self, offset: u64) -> (u64, u64) {
        self.0.locate(offset)
    }

    /// The blocks before the one that begins at `base` are gone: their count and the first one's
    /// number change by one write, while nobody appends. False: they were gone already.
    fn trim(&self, py: Python<'_>, shared: &Shared, base: u64) -> PyResult<bool> {
        let _held = shared.control.hold(py)?;
        let (start, count) = self.0.blocks();
        let gone = (0..count).find(|block| self.0.base(start.saturating_add(*block)) == base);
        let Some(gone) = gone.filter(|gone| *gone > 0) else { return Ok(false) };
        let mut range = [0; BLOCK_START_AT + 8 - BLOCK_COUNT_AT];
        words::put(&mut range, 0, &u32::try_from(count - gone).unwrap_or(0).to_be_bytes());
        let first = BLOCK_START_AT - BLOCK_COUNT_AT;
        words::put(&mut range, first, &start.saturating_add(gone).to_be_bytes());
        region::write_at(self.0.map.file()?, BLOCK_COUNT_AT as u64, &range)?;
        Ok(true)
    }
}
