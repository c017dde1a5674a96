//! The journal of a group: what happened to its messages.
//!
//! Append-only, mapped. A record begins with a CRC-32C of the rest of it, stored last and begun
//! with the journal's number in its register, so that nothing that an older journal left in the
//! same file is taken for a record. When it has grown enough, what is still outstanding is written
//! to a new file, synced and renamed: the checkpoint is simply how the next journal begins. After a
//! crash the newest journal is read up to its first record that does not check.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::prelude::*;

use crate::bytes::checksum::{crc32c_seeded, crc32c_words};
use crate::bytes::word_offsets::word_offsets;
use crate::bytes::words;
use crate::errors::located;
use crate::files::region;
use crate::group::table::{Entry, EntryState, NONE};
use crate::sys::mapping::Mapping;

/// Mapped at first: room for what is written until the journal is rewritten. A longer one is mapped
/// anew, twice as long.
const MAPPED_BYTES: usize = 16 << 20;
const MAX_BYTES: usize = 1 << 30;
const GROW_BYTES: u64 = 256 << 10;
/// A journal smaller than this is never rewritten.
pub const SMALL_BYTES: u64 = 8 << 20;
/// A record has one of three lengths.
const SHORT_BYTES: usize = 24;
const USUAL_BYTES: usize = 64;
const LONG_BYTES: usize = 80;
word_offsets! {
    /// Fields of a record. Shorter ones end after `NEXT` or `RECEIVES`.
    pub mod field {
        CHECK = 0,
        KIND = 4,
        STATE = 5,
        SIZE = 6,
        OFFSET = 8,
        NEXT = 16,
        TOKEN = 24,
        WALL_NS = 32,
        DEADLINE = 40,
        TIMEOUT = 48,
        OWNER = 56,
        RECEIVES = 60,
        FRAME = 64,
        KEY = 72,
    }
}
/// No journal gets as high a number: one journal a nanosecond would take years to get there.
const MAX_NAME: u64 = 1 << 60;
const SPARE: &str = "spare";

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// A message was read and entered, in some state.
    Enter = 1,
    /// It was handed out again.
    Lease = 2,
    /// It may be handed out again.
    Ready = 3,
    /// It may be handed out later.
    Delay = 4,
    /// Its lease was made longer.
    Extend = 5,
    /// It is done.
    Done = 6,
    /// Everything is forgotten; reading goes on at `next`.
    Seek = 7,
}

/// One record.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// What happened.
    pub kind: Kind,
    /// To which message, and what it is now.
    pub entry: &'a Entry,
    /// Where reading goes on.
    pub next: u64,
}

impl Record<'_> {
    /// The bytes of the record that say something: an ack has no deadline, and few messages have a
    /// key.
    #[inline]
    fn len(&self) -> usize {
        let entry = &self.entry;
        match self.kind {
            Kind::Done | Kind::Ready => SHORT_BYTES,
            _ if entry.key == 0 && entry.frame == entry.offset => USUAL_BYTES,
            _ => LONG_BYTES,
        }
    }

    /// The record as words, all but the check, which is the low half of the first. Those behind
    /// `len` are not written.
    #[inline(always)]
    fn words(&self, wall_ns: i64) -> [u64; LONG_BYTES / 8] {
        let entry = self.entry;
        let about = [self.kind as u64, u64::from(entry.state as u32), self.len() as u64];
        let [kind, state, size] = about;
        [
            kind << 32 | state << 40 | size << 48,
            entry.offset,
            self.next,
            entry.token,
            wall_ns.cast_unsigned(),
            entry.deadline.cast_unsigned(),
            entry.timeout.cast_unsigned(),
            u64::from(entry.owner) | u64::from(entry.receives) << 32,
            entry.frame,
            entry.key,
        ]
    }
}

/// A record that was read.
struct Read {
    kind: Kind,
    entry: Entry,
    next: u64,
    wall_ns: i64,
    size: usize,
}

impl Read {
    /// The record at the start of `bytes`.
    fn decode(journal: u64, bytes: &[u8]) -> Option<Self> {
        let size = usize::from(words::u16_le(bytes, field::SIZE)?);
        if ![SHORT_BYTES, USUAL_BYTES, LONG_BYTES].contains(&size) {
            return None;
        }
        let bytes = bytes.get(..size)?;
        if words::u32_le(bytes, field::CHECK)? != check(journal, bytes) {
            return None;
        }
        let kind = match bytes.get(field::KIND)? {
            1 => Kind::Enter,
            2 => Kind::Lease,
            3 => Kind::Ready,
            4 => Kind::Delay,
            5 => Kind::Extend,
            6 => Kind::Done,
            7 => Kind::Seek,
            _ => return None,
        };
        let wide = |at| words::u64_le(bytes, at).unwrap_or(0);
        let offset = wide(field::OFFSET);
        let entry = Entry {
            offset,
            frame: words::u64_le(bytes, field::FRAME).unwrap_or(offset),
            deadline: wide(field::DEADLINE).cast_signed(),
            timeout: wide(field::TIMEOUT).cast_signed(),
            token: wide(field::TOKEN),
            key: wide(field::KEY),
            state: EntryState::of(u32::from(*bytes.get(field::STATE)?)),
            receives: words::u32_le(bytes, field::RECEIVES).unwrap_or(0),
            owner: words::u32_le(bytes, field::OWNER).unwrap_or(NONE),
        };
        Some(Self {
            kind,
            entry,
            next: wide(field::NEXT),
            wall_ns: wide(field::WALL_NS).cast_signed(),
            size,
        })
    }
}

/// What the register of a check begins with in journal number `journal`.
#[inline]
fn seed(journal: u64) -> u32 {
    u32::try_from(journal & u64::from(u32::MAX)).unwrap_or(0)
}

/// The check of a record of journal number `journal`; never 0, as unwritten bytes are.
fn check(journal: u64, record: &[u8]) -> u32 {
    crc32c_seeded(seed(journal), record.get(4..).unwrap_or_default()).max(1)
}

/// The check of a record that is still in words. A checksum over bytes that were stored just now
/// waits for the stores, and the journal's next bytes are in no cache.
#[inline]
fn check_words(journal: u64, record: &[u64]) -> u32 {
    crc32c_words(seed(journal), record).max(1)
}

/// What a journal says when it is read from the start.
pub struct Replay {
    /// Messages that are not done, by offset, and the wall time at which each deadline was set.
    pub outstanding: BTreeMap<u64, (Entry, i64)>,
    /// Where reading goes on.
    pub next: u64,
    /// Bytes that hold whole records.
    pub end: u64,
    /// Largest token ever given.
    pub token: u64,
}

impl Replay {
    fn apply(&mut self, record: &Read) {
        let Read { kind, entry, next, wall_ns, .. } = record;
        self.token = self.token.max(entry.token);
        match kind {
            Kind::Enter => drop(self.outstanding.insert(entry.offset, (*entry, *wall_ns))),
            Kind::Done => drop(self.outstanding.remove(&entry.offset)),
            Kind::Seek => self.outstanding.clear(),
            Kind::Lease | Kind::Ready | Kind::Delay | Kind::Extend => {
                if let Some((known, wall)) = self.outstanding.get_mut(&entry.offset) {
                    known.state = entry.state;
                    if *kind != Kind::Ready {
                        (known.deadline, known.timeout) = (entry.deadline, entry.timeout);
                        *wall = *wall_ns;
                    }
                    if *kind == Kind::Lease {
                        (known.token, known.owner, known.receives) =
                            (entry.token, entry.owner, entry.receives);
                    }
                }
            }
        }
        self.next = *next;
    }
}

/// What the bytes of journal `name` say.
fn replay(name: u64, bytes: &[u8]) -> Replay {
    let mut replay = Replay { outstanding: BTreeMap::new(), next: 0, end: 0, token: 0 };
    let mut at = 0usize;
    while let Some(record) = bytes.get(at..).and_then(|rest| Read::decode(name, rest)) {
        replay.apply(&record);
        at += record.size;
    }
    replay.end = at as u64;
    replay
}

/// Where reading goes on, what is not done with its state (see `EntryState`), and how many of the
/// bytes of journal `name` are records.
#[pyfunction]
pub fn replay_journal(name: u64, data: &[u8]) -> (u64, BTreeMap<u64, u32>, u64) {
    let replay = replay(name, data);
    let states = replay.outstanding.iter().map(|(at, (entry, _))| (*at, entry.state as u32));
    (replay.next, states.collect(), replay.end)
}

/// The open journal.
pub struct Journal {
    map: Mapping,
    name: u64,
    /// Bytes the file is known to have; it only ever grows.
    allocated: AtomicU64,
}

/// The file of journal `name`.
pub fn path(folder: &Path, name: u64) -> PathBuf {
    folder.join(format!("journal-{name:06}"))
}

/// The numbers of all journals in the folder.
fn all(folder: &Path) -> std::io::Result<Vec<u64>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let file_name = entry?.file_name();
        let number =
            file_name.to_str().and_then(|text| text.strip_prefix("journal-")?.parse::<u64>().ok());
        let number = number.filter(|number| *number < MAX_NAME);
        found.extend(number);
    }
    Ok(found)
}

/// The newest journal in the folder.
pub fn newest(folder: &Path) -> std::io::Result<Option<u64>> {
    Ok(all(folder)?.into_iter().max())
}

impl Journal {
    /// Opens the newest one; none when there is none. Without the group's lock someone may begin
    /// the next one between the look and the opening: that one is then newer.
    pub fn open_newest(folder: &Path) -> std::io::Result<Option<Self>> {
        let mut tried = None;
        loop {
            let Some(name) = newest(folder)? else { return Ok(None) };
            match Self::open(folder, name) {
                Err(error)
                    if error.kind() == std::io::ErrorKind::NotFound && tried != Some(name) =>
                {
                    tried = Some(name);
                }
                opened => return opened.map(Some),
            }
        }
    }

    /// Opens journal `name`.
    pub fn open(folder: &Path, name: u64) -> std::io::Result<Self> {
        let file = region::open(&path(folder, name), true)?;
        let len = region::len(&file)?;
        let map = Mapping::new(file, mapped_for(len)?, true)?;
        Ok(Self { map, name, allocated: len.into() })
    }

    /// Its number.
    pub fn name(&self) -> u64 {
        self.name
    }

    /// Reads everything up to the first record that does not check.
    pub fn replay(&self) -> std::io::Result<Replay> {
        let len = words::size(region::len(self.map.file()?)?).min(self.map.len());
        Ok(replay(self.name, self.map.get(0, len).unwrap_or_default()))
    }

    /// Appends a record at `end`; answers the new end. Under the group's lock.
    #[inline(always)]
    pub fn append(&mut self, end: u64, record: &Record<'_>, wall_ns: i64) -> std::io::Result<u64> {
        let (at, size) = (words::size(end), record.len());
        let needed = end + size as u64;
        if needed > self.allocated.load(Ordering::Relaxed) {
            self.grow(needed)?;
        }
        let all = record.words(wall_ns);
        match size {
            SHORT_BYTES => self.put::<{ SHORT_BYTES / 8 }>(at, &all),
            USUAL_BYTES => self.put::<{ USUAL_BYTES / 8 }>(at, &all),
            _ => self.put::<{ LONG_BYTES / 8 }>(at, &all),
        }
        if self.map.is_cut() { Err(self.vanished()) } else { Ok(needed) }
    }

    /// The file was cut short under the mapping: what is stored behind its end is lost.
    #[cold]
    fn vanished(&self) -> std::io::Error {
        located(std::io::Error::from_raw_os_error(libc::ENODATA), &self.map.path())
    }

    /// Stores the first `N` of the words of a record. How many is known to the compiler: words
    /// that were just put together then go from registers to the journal, without a copy that
    /// would wait for them.
    #[inline(always)]
    fn put<const N: usize>(&self, at: usize, all: &[u64]) {
        let Some(words) = all.first_chunk::<N>() else { return };
        self.map.store_words(at, words);
        // The record counts from this store on: a reader of the file sees it whole or not at all.
        self.map.publish32(at, check_words(self.name, words));
    }

    #[cold]
    fn grow(&mut self, needed: u64) -> std::io::Result<()> {
        let target = needed.div_ceil(GROW_BYTES) * GROW_BYTES;
        if target > self.map.len() as u64 {
            self.map = Mapping::new(self.map.file()?.try_clone()?, mapped_for(target)?, true)?;
        }
        region::extend(self.map.file()?, target)?;
        self.allocated.store(target, Ordering::Relaxed);
        Ok(())
    }

    /// Clears what a dead writer left behind the last whole record. True: more stands there than
    /// one writer leaves in the middle of a record, so something in between was damaged.
    pub fn clear_after(&self, end: u64) -> std::io::Result<bool> {
        let len = words::size(region::len(self.map.file()?)?).min(self.map.len());
        let at = words::size(end).min(len);
        let rest = self.map.get(at, len - at).unwrap_or_default();
        let is_torn = has_record(self.name, rest);
        self.map.write_with(at, (len - at).min(4 * LONG_BYTES), |out| out.fill(0));
        Ok(is_torn)
    }

    /// Another handle of its file, to sync it without holding anything up.
    pub fn file(&self) -> std::io::Result<File> {
        self.map.file()?.try_clone()
    }

    /// Writes `records`, each with its wall time, as the start of journal `name`, synced and
    /// renamed in; answers it with
    /// its end. `before` is the journal before the last one, whose file this one takes over.
    pub fn begin(
        folder: &Path,
        name: u64,
        records: &[(Record<'_>, i64)],
        before: Option<Self>,
    ) -> std::io::Result<(Self, u64)> {
        let mut bytes = Vec::new();
        for (record, wall_ns) in records {
            let (at, words) = (bytes.len(), record.words(*wall_ns));
            let words = words.get(..record.len() / 8).unwrap_or_default();
            bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
            let out = bytes.get_mut(at..).unwrap_or_default();
            words::put_u32_le(out, 0, check_words(name, words));
        }
        let end = bytes.len() as u64;
        bytes.resize(bytes.len() + 8, 0);
        let path = path(folder, name);
        let spare = folder.join(SPARE);
        if !spare.exists() {
            region::create(&spare)?;
        }
        let file = region::open(&spare, true)?;
        region::write_at(&file, 0, &bytes)?;
        region::sync(&file)?;
        region::rename(&spare, &path)?;
        region::sync_folder(folder)?;
        // Our own mapping of the same file saves a page fault per page.
        let inode = region::inode(&file)?;
        let kept = before.filter(|old| old.map.inode() == inode);
        let journal = match kept {
            Some(old) => {
                // It was synced just now: what the next store to it would cost stands there.
                old.map.forget(0, words::size(old.allocated.load(Ordering::Relaxed)));
                Self { name, ..old }
            }
            None => Self::open(folder, name)?,
        };
        Ok((journal, end))
    }
}

/// How much of a journal of `len` bytes is mapped.
fn mapped_for(len: u64) -> std::io::Result<usize> {
    let full = || std::io::Error::other("the group's journal is full");
    let len = usize::try_from(len).ok().filter(|len| *len <= MAX_BYTES).ok_or_else(full)?;
    Ok(len.next_power_of_two().max(MAPPED_BYTES))
}

/// Whether a whole record of journal `name` begins anywhere in `bytes`. Records lie on words; most
/// of it was never written, and is passed over page by page.
fn has_record(name: u64, bytes: &[u8]) -> bool {
    const PAGE: usize = 4096;
    let is_written = |at: &usize| {
        let page = bytes.get(*at..bytes.len().min(at + PAGE)).unwrap_or_default();
        page != [0; PAGE].get(..page.len()).unwrap_or_default()
    };
    let pages = (0..bytes.len()).step_by(PAGE).filter(is_written);
    let mut words = pages.flat_map(|at| (at..bytes.len().min(at + PAGE)).step_by(8));
    words.any(|at| bytes.get(at..).and_then(|rest| Read::decode(name, rest)).is_some())
}

/// Removes journals before `name`, whose own name is on the disk first.
pub fn drop_older(folder: &Path, name: u64) -> std::io::Result<()> {
    let older: Vec<u64> = all(folder)?.into_iter().filter(|number| *number < name).collect();
    if !older.is_empty() {
        region::sync_folder(folder)?;
    }
    older.into_iter().try_for_each(|number| region::unlink(&path(folder, number)))
}

/// The file of the old journal is used for the next one, since its pages are there already. Records
/// carry the number of their journal, so old ones do not count.
pub fn retire(folder: &Path, name: u64) -> std::io::Result<()> {
    region::rename(&path(folder, name), &folder.join(SPARE))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(offset: u64, key: u64) -> Entry {
        let (state, token) = (EntryState::Leased, offset + 1);
        Entry { state, token, key, deadline: 5, timeout: 3, ..Entry::read(offset, offset, 7) }
    }

    /// A journal in a folder of its own with three messages, the first of which is done.
    fn journal(name: &str) -> (PathBuf, Journal, u64) {
        let folder = std::env::temp_dir().join(format!("penstock-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let first = Record { kind: Kind::Seek, entry: &Entry::NONE, next: 10 };
        let (mut journal, mut end) =
            Journal::begin(&folder, 4, &[(first, 1)], None).expect("a journal");
        for (offset, key) in [(10, 0), (20, 9), (30, 9)] {
            let entry = entry(offset, key);
            let record = Record { kind: Kind::Enter, entry: &entry, next: offset + 10 };
            end = journal.append(end, &record, 100).expect("room");
        }
        let done = Entry::read(10, 10, NONE);
        let record = Record { kind: Kind::Done, entry: &done, next: 40 };
        end = journal.append(end, &record, 100).expect("room");
        (folder, journal, end)
    }

    #[test]
    fn what_was_appended_is_read_again() {
        let (folder, journal, end) = journal("replay");
        let replay = journal.replay().expect("bytes");
        assert_eq!((replay.next, replay.end, replay.token), (40, end, 31));
        assert_eq!(replay.outstanding.keys().copied().collect::<Vec<_>>(), [20, 30]);
        let (found, set_at) = replay.outstanding.get(&20).expect("a message");
        assert_eq!((found.key, found.owner, found.timeout, *set_at), (9, 7, 3, 100));
        assert!(!journal.clear_after(end).expect("bytes"));
        std::fs::remove_dir_all(folder).expect("ours");
    }

    #[test]
    fn a_flipped_bit_ends_the_reading_at_its_record() {
        let (folder, journal, end) = journal("flipped");
        let bytes = journal.map.get(0, words::size(end)).expect("bytes").to_vec();
        let whole = replay(4, &bytes);
        let mut starts = vec![0];
        let mut at = 0;
        while let Some(read) = Read::decode(4, bytes.get(at..).expect("inside")) {
            at += read.size;
            starts.push(at as u64);
        }
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            if let Some(byte) = changed.get_mut(bit / 8) {
                *byte ^= 1 << (bit % 8);
            }
            let found = replay(4, &changed);
            let begin = starts.iter().rfind(|start| **start <= (bit / 8) as u64).expect("0");
            assert_eq!(found.end, *begin, "bit {bit}");
            assert!(found.next <= whole.next);
        }
        assert_eq!(replay(5, &bytes).end, 0, "another journal's records are none");
        std::fs::remove_dir_all(folder).expect("ours");
    }

    #[test]
    fn records_behind_damage_are_noticed() {
        let (folder, journal, end) = journal("torn");
        journal.map.write_with(90, 1, |out| out.fill(0xff)).expect("inside");
        let replay = journal.replay().expect("bytes");
        assert!(replay.end < end);
        assert!(journal.clear_after(replay.end).expect("bytes"));
        std::fs::remove_dir_all(folder).expect("ours");
    }

    #[test]
    fn a_long_journal_is_mapped_anew() {
        let (folder, mut journal, _) = journal("long");
        let entry = entry(50, 0);
        let record = Record { kind: Kind::Enter, entry: &entry, next: 60 };
        let far = MAPPED_BYTES as u64 - 16;
        let end = journal.append(far, &record, 0).expect("room");
        assert!(journal.map.len() as u64 >= end);
        assert!(journal.append(MAX_BYTES as u64, &record, 0).is_err());
        std::fs::remove_dir_all(folder).expect("ours");
    }
}
