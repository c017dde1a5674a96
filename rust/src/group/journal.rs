//! The journal of a group: what happened to its messages, in frames of our own format.
//!
//! Append-only, mapped. When it has grown enough, what is still outstanding is written to a new
//! file, synced and renamed: the checkpoint is simply how the next journal begins. After a crash
//! the newest journal is read up to its first frame that does not check.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::frame::{Draft, Frames, Place, Step};
use crate::frames::penstock::PenstockFrames;
use crate::group::table::{Entry, State};
use crate::region;
use crate::sys::mapping::Mapping;
use crate::words;

const FRAMES: PenstockFrames = PenstockFrames { cipher: None, compress: false };
const RESERVED_BYTES: usize = 1 << 30;
const GROW_BYTES: u64 = 256 << 10;
/// A journal smaller than this is never rewritten.
pub const SMALL_BYTES: u64 = 4 << 20;
const RECORD_BYTES: usize = 72;
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
pub struct Record {
    /// What happened.
    pub kind: Kind,
    /// To which message, and what it is now.
    pub entry: Entry,
    /// Where reading goes on.
    pub next: u64,
}

impl Record {
    fn encode(&self) -> [u8; RECORD_BYTES] {
        let mut out = [0u8; RECORD_BYTES];
        let entry = &self.entry;
        out[0] = self.kind as u8;
        out[1] = u8::try_from(entry.state as u32).unwrap_or(0);
        words::put_u32_le(&mut out, 4, entry.owner);
        words::put_u64_le(&mut out, 8, entry.offset);
        words::put_u64_le(&mut out, 16, self.next);
        words::put_u64_le(&mut out, 24, entry.frame);
        words::put_i64_le(&mut out, 32, entry.deadline);
        words::put_i64_le(&mut out, 40, entry.timeout);
        words::put_u64_le(&mut out, 48, entry.token);
        words::put_u64_le(&mut out, 56, entry.key);
        words::put_u32_le(&mut out, 64, entry.receives);
        out
    }

    /// Bytes that matter: an ack needs no deadlines.
    fn len(&self) -> usize {
        match self.kind {
            Kind::Done | Kind::Ready => 24,
            _ => RECORD_BYTES,
        }
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let kind = match bytes.first()? {
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
        let entry = Entry {
            offset: words::u64_le(bytes, 8)?,
            frame: wide(24),
            deadline: wide(32).cast_signed(),
            timeout: wide(40).cast_signed(),
            token: wide(48),
            key: wide(56),
            state: State::of(u32::from(*bytes.get(1)?)),
            receives: words::u32_le(bytes, 64).unwrap_or(0),
            owner: words::u32_le(bytes, 4)?,
        };
        Some(Self { kind, entry, next: words::u64_le(bytes, 16)? })
    }
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
    fn apply(&mut self, record: &Record, wall_ns: i64) {
        let Record { kind, entry, next } = record;
        self.token = self.token.max(entry.token);
        match kind {
            Kind::Enter => drop(self.outstanding.insert(entry.offset, (*entry, wall_ns))),
            Kind::Done => drop(self.outstanding.remove(&entry.offset)),
            Kind::Seek => self.outstanding.clear(),
            Kind::Lease | Kind::Ready | Kind::Delay | Kind::Extend => {
                if let Some((known, wall)) = self.outstanding.get_mut(&entry.offset) {
                    known.state = entry.state;
                    if *kind != Kind::Ready {
                        (known.deadline, known.timeout) = (entry.deadline, entry.timeout);
                        *wall = wall_ns;
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
        found.extend(number);
    }
    Ok(found)
}

/// The newest journal in the folder.
pub fn newest(folder: &Path) -> std::io::Result<Option<u64>> {
    Ok(all(folder)?.into_iter().max())
}

impl Journal {
    /// Opens journal `name`.
    pub fn open(folder: &Path, name: u64) -> std::io::Result<Self> {
        let file = region::open(&path(folder, name), true)?;
        let allocated = file.metadata()?.len().into();
        Ok(Self { map: Mapping::new(file, RESERVED_BYTES, true)?, name, allocated })
    }

    /// Its number.
    pub fn name(&self) -> u64 {
        self.name
    }

    /// Reads everything up to the first frame that does not check.
    pub fn replay(&self) -> std::io::Result<Replay> {
        let mut replay = Replay { outstanding: BTreeMap::new(), next: 0, end: 0, token: 0 };
        let len = words::size(self.map.file().metadata()?.len()).min(self.map.len());
        let bytes = self.map.get(0, len).unwrap_or_default();
        let mut at = 0usize;
        while let Step::Frame(view) = FRAMES.step(bytes, at, 0, true) {
            let frame = bytes.get(at..at + view.size).unwrap_or_default();
            let Some(record) = Record::decode(view.body.of(frame)) else { break };
            // A recycled file still has the records of an older journal behind ours.
            if view.number != i64::try_from(self.name).unwrap_or(-1) {
                break;
            }
            replay.apply(&record, view.timestamp_ns);
            at += view.size;
        }
        replay.end = at as u64;
        Ok(replay)
    }

    /// Appends a record at `end`; answers the new end. Under the group's lock.
    #[inline]
    pub fn append(&self, end: u64, record: &Record, wall_ns: i64) -> std::io::Result<u64> {
        let body = record.encode();
        let draft = Draft {
            body: body.get(..record.len()).unwrap_or_default(),
            timestamp_ns: wall_ns,
            ..Draft::default()
        };
        let size = FRAMES.measure(&draft).map_err(std::io::Error::other)?;
        let at = words::size(end);
        let needed = (at + size + 8) as u64;
        if needed > self.allocated.load(Ordering::Relaxed) {
            self.grow(needed)?;
        }
        let filled = self.map.write_with(at, size + 8, |out| {
            let (frame, after) = out.split_at_mut(size);
            after.fill(0);
            FRAMES.encode(&draft, Place { offset: 0, number: self.name }, true, frame)
        });
        let word = filled
            .unwrap_or_else(|| Err("the journal is full".into()))
            .map_err(std::io::Error::other)?;
        // The frame counts from this store on: a reader of the file sees it whole or not at all.
        self.map.publish32(at, word);
        Ok(end + size as u64)
    }

    #[cold]
    fn grow(&self, needed: u64) -> std::io::Result<()> {
        if needed > self.map.len() as u64 {
            return Err(std::io::Error::other("the group's journal is full"));
        }
        let target = needed.div_ceil(GROW_BYTES) * GROW_BYTES;
        region::allocate(self.map.file(), target)?;
        self.allocated.store(target, Ordering::Relaxed);
        Ok(())
    }

    /// Clears what a dead writer left behind the last whole record.
    pub fn clear_after(&self, end: u64) -> std::io::Result<()> {
        let len = words::size(self.map.file().metadata()?.len()).min(self.map.len());
        let at = words::size(end);
        self.map.write_with(at, (len.saturating_sub(at)).min(4 * RECORD_BYTES), |out| out.fill(0));
        Ok(())
    }

    /// Another handle of its file, to sync it without holding anything up.
    pub fn file(&self) -> std::io::Result<File> {
        self.map.file().try_clone()
    }

    /// Writes `records`, each with its wall time, as the start of journal `name`, synced and
    /// renamed in; answers it with
    /// its end. `before` is the journal before the last one, whose file this one takes over.
    pub fn begin(
        folder: &Path,
        name: u64,
        records: &[(Record, i64)],
        before: Option<Self>,
    ) -> std::io::Result<(Self, u64)> {
        let mut bytes = Vec::new();
        for (record, wall_ns) in records {
            let body = record.encode();
            let body = body.get(..record.len()).unwrap_or_default();
            let draft = Draft { body, timestamp_ns: *wall_ns, ..Draft::default() };
            let size = FRAMES.measure(&draft).map_err(std::io::Error::other)?;
            let at = bytes.len();
            bytes.resize(at + size, 0);
            let out = bytes.get_mut(at..).unwrap_or_default();
            let place = Place { offset: 0, number: name };
            FRAMES.encode(&draft, place, false, out).map_err(std::io::Error::other)?;
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
        let kept = before.filter(|old| region::inode(old.map.file()).is_ok_and(|i| i == inode));
        let journal = match kept {
            Some(old) => Self { name, ..old },
            None => Self::open(folder, name)?,
        };
        Ok((journal, end))
    }
}

/// Removes journals before `name`, whose own name is on the disk first.
pub fn drop_older(folder: &Path, name: u64) -> std::io::Result<()> {
    let older: Vec<u64> = all(folder)?.into_iter().filter(|number| *number < name).collect();
    if !older.is_empty() {
        region::sync_folder(folder)?;
    }
    older.into_iter().try_for_each(|number| region::unlink(&path(folder, number)))
}

/// The old journal becomes the file of the next one: its pages are there already, and records
/// carry their journal's number, so what is left in it says nothing.
pub fn retire(folder: &Path, name: u64) -> std::io::Result<()> {
    region::rename(&path(folder, name), &folder.join(SPARE))
}
