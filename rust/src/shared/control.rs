//! The control block: the words that all openers of a queue share (`.penstock/control`).
//!
//! Everything in it is a cache of this boot except `durable`, which only ever moves after a sync
//! and so is a safe lower bound whatever the disk kept. The frames are the truth.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use pyo3::prelude::*;

use crate::bytes::word_offsets::word_offsets;
use crate::errors;
use crate::files::region;
use crate::shared::lock::{self, Held, Hindrance, Life, OWNERS_AT};
use crate::shared::opening_lock::{LockTimes, OpeningLock};
use crate::shared::protocol::{self, Heard, TailWord, TailWords};
use crate::shared::turns::SyncTurns;
use crate::sys::files;
use crate::sys::mapping::Mapping;

/// Size of the file.
pub const CONTROL_BYTES: usize = 5 * 4096;
const MAGIC: u64 = u64::from_le_bytes(*b"PENSTCTL");

/// Reserved while a new segment is named: until that is done nothing may be appended to the old.
pub const ROLLING: u64 = u64::MAX;

word_offsets! {
    /// Where each word is.
    pub mod at {
        MAGIC = 0,
        BOOT = 8,
        LOCK = 16,
        SYNC_LOCK = 20,
        POISON = 24,
        CLEAN = 28,
        RESERVED_END = 32,
        RESERVED_NUMBER = 40,
        TAIL = 64,
        NEXT_NUMBER = 72,
        SEGMENT_BASE = 80,
        HEAD = 88,
        HEAD_NUMBER = 96,
        TAIL_CHECK = 104,
        PUBLISHING = 112,
        PUBLISHED = 120,
        WAITERS = 128,
        EVENT = 132,
        DIRTY = 136,
        SYNC_ASKED = 140,
        ROOM_WANTED = 144,
        SYNCS_ENDED = 152,
        DURABLE = 192,
        NAMED_BASE = 200,
        GENERATION = 208,
        OPENINGS = 216,
        DURABLE_AT = 224,
        STEADY_SKEW = 256,
        STEADY_AT = 264,
        STEADY_BOOT = 272,
        USER = 1024,
    }
}

/// Another part of the opener: a group.
pub trait Part: Send + Sync {
    /// Its lock words, which are held in the opener's name.
    fn words(&self) -> [&AtomicU32; 2];

    /// The name of its folder.
    fn name(&self) -> Option<&OsStr>;

    /// Makes its progress durable, if that is not so.
    fn sync_progress(&self) -> std::io::Result<()>;
}

/// The mapped block and this opener's life.
pub struct Control {
    map: Arc<Mapping>,
    life: Life,
    path: PathBuf,
    /// The groups that this opener has open.
    parts: Mutex<Vec<Weak<dyn Part>>>,
    /// How many of those who wait are this opener's.
    pub(crate) waiting: Mutex<u32>,
}

impl Control {
    #[inline(always)]
    pub(crate) fn word(&self, at: usize) -> &AtomicU64 {
        self.map.word64(at)
    }

    /// Offset of the next append.
    #[inline]
    pub fn tail(&self) -> u64 {
        self.word(at::TAIL).load(Ordering::Acquire)
    }

    /// Everything below has been synced.
    #[inline]
    pub fn durable(&self) -> u64 {
        self.word(at::DURABLE).load(Ordering::Acquire)
    }

    /// Oldest kept offset.
    #[inline]
    pub fn head(&self) -> u64 {
        self.word(at::HEAD).load(Ordering::Acquire)
    }

    /// Base of the segment that is appended to.
    #[inline]
    pub fn segment_base(&self) -> u64 {
        self.word(at::SEGMENT_BASE).load(Ordering::Acquire)
    }

    /// Number of the next message.
    #[inline]
    pub fn next_number(&self) -> u64 {
        self.word(at::NEXT_NUMBER).load(Ordering::Relaxed)
    }

    /// Whether a sync has failed.
    #[inline]
    pub fn is_poisoned(&self) -> bool {
        self.map.word32(at::POISON).load(Ordering::Relaxed) != 0
    }

    /// The append lock's word.
    #[inline]
    pub fn lock_word(&self) -> &AtomicU32 {
        self.map.word32(at::LOCK)
    }

    /// Turns at a sync of the queue.
    pub fn sync_turns(&self) -> SyncTurns<'_> {
        let [lock, ended] = [at::SYNC_LOCK, at::SYNCS_ENDED].map(|word| self.map.word32(word));
        SyncTurns { life: &self.life, lock, ended }
    }

    /// This opener's life.
    pub fn life(&self) -> &Life {
        &self.life
    }

    /// The folder of the block.
    pub fn folder(&self) -> &Path {
        &self.path
    }

    /// An error if someone has deleted the block, and most likely the queue.
    pub fn check_named(&self) -> std::io::Result<()> {
        region::check_named(self.map.file()?)
    }

    /// Nothing more is accepted: why, and what to do.
    pub fn poisoned(&self, py: Python<'_>) -> PyErr {
        errors::poisoned(py, &self.path, self.check_named())
    }

    /// An error if the block was cut short under its mapping: then no word of it is true.
    pub fn check_file(&self, py: Python<'_>) -> PyResult<()> {
        self.cut_file().map_or(Ok(()), |path| Err(errors::vanished(py, &path)))
    }

    /// The block's file, if it was cut short.
    pub fn cut_file(&self) -> Option<PathBuf> {
        self.map.is_cut().then(|| self.file_path())
    }

    /// The block's file.
    pub fn file_path(&self) -> PathBuf {
        self.path.join("control")
    }

    /// Which run of the machine the words are of, as the first opener has said. Others may see
    /// another id, from inside a container: that they share the block proves the same kernel.
    pub fn boot(&self) -> u64 {
        self.word(at::BOOT).load(Ordering::Acquire)
    }

    /// The append lock, under the interpreter lock. Give it back before that is let go.
    pub fn hold(&self, py: Python<'_>) -> PyResult<Held<'_>> {
        let word = self.lock_word();
        while self.life.take_soon(py, word).is_none() {
            py.check_signals()?;
        }
        let held = Held::new(&self.life, word);
        if self.life.is_over() { Err(self.closed(py)) } else { Ok(held) }
    }

    /// The error for a use after the end.
    pub fn closed(&self, py: Python<'_>) -> PyErr {
        self.life.closed(py)
    }

    /// `part` has lock words too: this opener ends when they are given back.
    pub fn note_part(&self, part: Weak<dyn Part>) {
        let mut known = self.parts.lock().unwrap_or_else(|e| e.into_inner());
        known.retain(|one| one.strong_count() > 0);
        known.push(part);
    }

    /// Whether this opener has groups open.
    pub fn has_parts(&self) -> bool {
        let known = self.parts.lock().unwrap_or_else(|e| e.into_inner());
        known.iter().any(|part| part.strong_count() > 0)
    }

    /// The groups that this opener has open.
    pub fn parts(&self) -> Vec<Arc<dyn Part>> {
        let known = self.parts.lock().unwrap_or_else(|e| e.into_inner());
        known.iter().filter_map(Weak::upgrade).collect()
    }

    /// Whether a thread of this opener is in the middle of something.
    fn is_busy(&self) -> bool {
        let mine = [self.lock_word(), self.sync_turns().lock];
        let has = |word: &&AtomicU32| self.life.has(word);
        mine.iter().any(has) || self.parts().iter().any(|part| part.words().iter().any(has))
    }

    /// This opener takes no further part. Its slot goes when the last of its threads is done with
    /// what it does under a lock, or with its last handle.
    fn end(&self, py: Python<'_>) -> PyResult<()> {
        if self.life.is_forked() {
            return Ok(()); // It is the parent's, and goes on.
        }
        self.life.end();
        self.forget_waiters();
        let nap = Duration::from_nanos(self.life.door().times().closing_nap_ns);
        while self.is_busy() {
            py.detach(|| std::thread::sleep(nap));
            py.check_signals()?;
        }
        Ok(self.life.give_slot()?)
    }

    /// The mapping, for words that have no accessor.
    pub fn map(&self) -> &Mapping {
        &self.map
    }

    /// Does `publish`, which stores that the queue ends at `end` in a file of the format's own, and
    /// says whether it did. The end that stands there is one of two words, whenever we die: any
    /// other one is another program's. With the append lock held.
    #[inline]
    pub fn publish_end(
        &self,
        end: u64,
        publish: impl FnOnce() -> std::io::Result<bool>,
    ) -> std::io::Result<()> {
        self.map.publish64(at::PUBLISHING, end);
        match publish()? {
            true => self.map.publish64(at::PUBLISHED, end),
            false => {
                self.map.publish64(at::PUBLISHING, self.word(at::PUBLISHED).load(Ordering::Relaxed))
            }
        }
        Ok(())
    }

    /// Whether the tail is one that a process has stored. One that died between the tail and its
    /// check had announced the tail, or a roll.
    pub fn is_tail_whole(&self) -> bool {
        let (tail, reserved) = (self.tail(), self.unfinished().0);
        self.word(at::TAIL_CHECK).load(Ordering::Relaxed) == !tail
            || reserved == tail
            || reserved == ROLLING
    }

    /// Something was appended that must be synced soon. Only the first one since the last sync
    /// began tells the maintenance threads. Under the append lock, like `begin_sync`: an append is
    /// either in what that sync covers, or asks anew.
    #[inline]
    pub fn ask_for_sync(&self) {
        protocol::ask(self.map.word32(at::SYNC_ASKED), || self.announce_unsynced());
    }

    /// Whether someone has asked since the last sync began.
    pub fn is_sync_asked(&self) -> bool {
        protocol::is_asked(self.map.word32(at::SYNC_ASKED).load(Ordering::Relaxed))
    }

    /// What is appended from now on is not in the sync that begins. Under the append lock.
    pub fn begin_sync(&self) {
        protocol::begin_sync(self.map.word32(at::SYNC_ASKED));
    }

    /// The word on which the maintenance threads sleep.
    pub fn dirty_word(&self) -> &AtomicU32 {
        self.map.word32(at::DIRTY)
    }

    /// There is something that the maintenance threads must sync within the interval.
    #[cold]
    pub fn announce_unsynced(&self) {
        protocol::announce(&self.life, self.dirty_word());
    }

    /// Wakes the maintenance threads, whatever they sleep for.
    #[cold]
    pub fn wake_maintenance(&self) {
        protocol::raise(&self.life, self.dirty_word());
    }

    /// Hears whether something must be synced: see `protocol::Heard`.
    pub fn listen(&self, heard: &mut Heard) -> bool {
        let words = (self.dirty_word(), self.map.word32(at::SYNC_ASKED));
        heard.listen(words, || self.tail(), self.durable())
    }

    /// All that was asked for is durable: the next request is said again. Else nobody would hear of
    /// it, where everything was made durable by other ways than a sync.
    pub fn forget_request(&self) -> std::io::Result<()> {
        let _held = self.life.hold(self.lock_word())?;
        if self.durable() >= self.tail() {
            self.begin_sync();
        }
        Ok(())
    }

    /// What the clean word holds after an orderly close: the other words cannot change unseen.
    fn clean_check(&self) -> u32 {
        let words =
            [at::TAIL, at::NEXT_NUMBER, at::SEGMENT_BASE, at::HEAD, at::HEAD_NUMBER, at::DURABLE];
        let bytes: Vec<u8> = words
            .iter()
            .flat_map(|word| self.word(*word).load(Ordering::Acquire).to_le_bytes())
            .collect();
        crate::bytes::checksum::crc32c(&bytes).max(1)
    }

    /// Records that everything below `offset` is on the disk. It never moves back: a process that
    /// was taken for dead in the middle of a sync may come late.
    pub fn set_durable(&self, offset: u64) {
        if offset > self.durable() {
            self.map.publish64(at::DURABLE, offset);
        }
    }

    /// Records when a sync that has ended began: what was put before that is on the disk, and
    /// nobody need sync for an interval from then on.
    pub fn set_durable_at(&self, begun_ns: i64) {
        self.word(at::DURABLE_AT).store(begun_ns.cast_unsigned(), Ordering::Release);
    }

    /// When the last sync began that has ended, by the boot clock; nothing that is later than `now`
    /// counts.
    pub fn durable_at(&self, now: i64) -> i64 {
        let begun = self.word(at::DURABLE_AT).load(Ordering::Acquire).cast_signed();
        if begun > now { 0 } else { begun.max(0) }
    }

    /// From now on every put raises, in every process, also after a restart.
    pub fn poison(&self) {
        self.map.publish32(at::POISON, 1);
        protocol::raise(&self.life, self.sync_turns().ended); // No sync will come any more.
    }

    /// Syncs what puts or acks were promised. A sync that fails has poisoned the queue by itself;
    /// so does anything else that keeps it from being done.
    pub fn sync(&self, sync: impl FnOnce() -> std::io::Result<()>) -> std::io::Result<()> {
        sync().inspect_err(|error| {
            if Hindrance::of(error).is_none() {
                self.poison();
            }
        })
    }

    /// Syncs the name of the segment that begins at `base`, unless that was done: a synced segment
    /// that no folder names is lost all the same. Under the sync lock.
    pub fn sync_name(&self, base: u64, path: &Path) -> std::io::Result<()> {
        let named = self.map.word64(at::NAMED_BASE).load(Ordering::Acquire);
        if base > named || named > self.segment_base() {
            if let Some(folder) = path.parent() {
                region::sync_folder(folder)?;
            }
            self.map.publish64(at::NAMED_BASE, base);
        }
        Ok(())
    }

    /// The last segment has another file since: the next sync is of its name, too.
    pub fn forget_name(&self) {
        self.map.publish64(at::NAMED_BASE, u64::MAX);
    }
}

impl TailWords for Control {
    #[inline(always)]
    fn load(&self, word: TailWord) -> u64 {
        self.word(position(word)).load(Ordering::Acquire)
    }

    #[inline(always)]
    fn store(&self, word: TailWord, value: u64) {
        match word {
            // Recovery uses the number only with the end that it belongs to, and that is recorded.
            TailWord::ReservedNumber => self.word(position(word)).store(value, Ordering::Release),
            _ => self.map.publish64(position(word), value),
        }
    }
}

const fn position(word: TailWord) -> usize {
    match word {
        TailWord::Tail => at::TAIL,
        TailWord::TailCheck => at::TAIL_CHECK,
        TailWord::NextNumber => at::NEXT_NUMBER,
        TailWord::ReservedEnd => at::RESERVED_END,
        TailWord::ReservedNumber => at::RESERVED_NUMBER,
    }
}

impl region::Poisoned for Control {
    fn sync_failed(&self, path: &Path) {
        let block = self.map.path();
        if block.parent().is_some_and(|sidecar| is_of_queue(sidecar, path)) {
            self.poison();
        }
    }
}

/// Whether `path` is a file or folder of the queue with this sidecar, or the folder that has the
/// queue's own name.
fn is_of_queue(sidecar: &Path, path: &Path) -> bool {
    let Some(beside) = sidecar.parent() else { return false };
    let is_folder = sidecar.file_name().is_some_and(|name| name == ".penstock");
    let queue = sidecar.with_extension(""); // Only a queue that is one file has this name.
    match is_folder {
        true => path.starts_with(beside) || beside.parent() == Some(path),
        false => path.starts_with(sidecar) || path == queue || path == beside,
    }
}

/// Opening and the shared words, for Python.
#[pyclass(frozen, module = "penstock._core")]
pub struct Shared {
    /// The control block.
    pub control: std::sync::Arc<Control>,
    is_first: bool,
    is_new: bool,
}

/// The block, and whether it says nothing: it was just made, or is not whole.
fn open_control(path: &Path, is_alone: bool) -> PyResult<(Mapping, bool)> {
    let os = |error| errors::os(error, path);
    let file = region::open_or_create(path).map_err(os)?;
    let is_short = file.metadata().map_err(os)?.len() < CONTROL_BYTES as u64;
    if is_short && !is_alone {
        return Err(broken(path));
    }
    region::allocate(&file, CONTROL_BYTES as u64).map_err(os)?;
    let map = Mapping::new(file, CONTROL_BYTES, true).map_err(os)?;
    let is_fresh = is_short || map.word64(at::MAGIC).load(Ordering::Acquire) != MAGIC;
    if is_fresh && !is_alone {
        return Err(broken(path));
    }
    Ok((map, is_fresh))
}

/// The processes that have the queue open go by another block, or by one that is damaged.
fn broken(path: &Path) -> PyErr {
    let text = "missing, cut short or damaged while other processes have the queue open; \
                close it in all of them, then open it again";
    Python::attach(|py| errors::error(py, "StorageError", (path.to_path_buf(), text)))
}

impl Shared {
    /// Opens the block in `folder`, with the opening lock held.
    ///
    /// Another opener that is alive runs on this kernel, whatever its boot id says: then the words
    /// are of now, and stay as they are. Only an opener that is alone may set them anew.
    fn found(folder: &Path, door: &Arc<OpeningLock>) -> PyResult<Self> {
        let os = |error| errors::os(error, folder);
        let is_alone = !door.owned().file().and_then(lock::anyone_else).map_err(os)?;
        let path = folder.join("control");
        let (map, fresh) = open_control(&path, is_alone)?;
        if is_alone {
            for word in [at::LOCK, at::SYNC_LOCK, at::WAITERS, at::SYNC_ASKED] {
                map.word32(word).store(0, Ordering::SeqCst);
            }
        }
        let opening = map.word32(at::OPENINGS).fetch_add(1, Ordering::AcqRel);
        if is_alone {
            lock::bury_all(&map);
        }
        let map = Arc::new(map);
        let life = Life::new(door, Arc::clone(&map), opening).map_err(os)?;
        let (path, parts, waiting) = (folder.to_path_buf(), Mutex::default(), Mutex::new(0));
        let control = Arc::new(Control { map, life, path, parts, waiting });
        let weak: Weak<Control> = Arc::downgrade(&control);
        region::tell_of_failed_syncs(weak);
        Ok(Self { control, is_first: is_alone, is_new: fresh })
    }
}

#[pymethods]
impl Shared {
    /// Opens the block in `folder` and calls `work` with it, while nobody else opens or closes.
    /// `times` says how long to wait for others.
    #[staticmethod]
    fn open(
        py: Python<'_>,
        folder: PathBuf,
        times: LockTimes,
        work: &Bound<'_, PyAny>,
    ) -> PyResult<Py<Self>> {
        let door = OpeningLock::open(&folder.join("lock"), times)?;
        let _inside = door.enter(py)?;
        let shared = Py::new(py, Self::found(&folder, &door)?)?;
        if let Err(error) = work.call1((&shared,)) {
            let _ = shared.get().control.end(py);
            return Err(error);
        }
        Ok(shared)
    }

    /// The same for someone who leaves at once; answers what `work` does.
    #[staticmethod]
    fn visit(
        py: Python<'_>,
        folder: PathBuf,
        times: LockTimes,
        work: &Bound<'_, PyAny>,
    ) -> PyResult<Py<PyAny>> {
        let door = OpeningLock::open(&folder.join("lock"), times)?;
        let _inside = door.enter(py)?;
        let shared = Py::new(py, Self::found(&folder, &door)?)?;
        let answer = work.call1((&shared,));
        let ended = shared.get().control.end(py);
        let answer = answer?.unbind();
        ended.map(|()| answer)
    }

    /// Calls `work` while nobody else opens, closes, or changes groups; answers what it does. It
    /// may come here again.
    fn alone(&self, py: Python<'_>, work: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        if self.control.life.is_over() {
            return Err(self.control.closed(py));
        }
        let _inside = self.control.life.door().enter(py)?;
        work.call0().map(Bound::unbind)
    }

    /// Takes no further part: whatever this opener had leased may go to others. Before that, `work`
    /// is called while nobody else opens or closes. However that ends, this opener has ended.
    #[pyo3(signature = (work=None))]
    fn close(&self, py: Python<'_>, work: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let inside = self.control.life.door().enter(py);
        let done = match (&inside, work) {
            (Ok(_), Some(work)) => work.call0().map(drop),
            _ => Ok(()),
        };
        let ended = self.control.end(py);
        inside?;
        done.and(ended)
    }

    /// Leaves everything as a killed process does.
    fn abandon(&self) {
        self.control.life.door().owned().detach();
    }

    /// Which run the words of the block in `folder` would be of if they were written now: of this
    /// boot, this mounting of the file system and this very file. A disk that went back to what
    /// was synced while the machine stayed up has words of another run. Not 0.
    #[staticmethod]
    fn run_id(folder: PathBuf, boot: u64) -> PyResult<u64> {
        let path = folder.join("control");
        let words = match files::identity(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => [0; 5],
            found => found.map_err(|error| errors::os(error, &path))?,
        };
        // FNV-1a over whole words, and a last mixing.
        let mixed = words.iter().fold(boot ^ 0xcbf2_9ce4_8422_2325, |hash, word| {
            let hash = (hash ^ word).wrapping_mul(0x0000_0100_0000_01b3);
            hash ^ hash >> 29
        });
        Ok(mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15).max(1))
    }

    /// Whether anyone has the queue in `folder` open, seen without opening it.
    #[staticmethod]
    fn is_open(folder: PathBuf) -> PyResult<bool> {
        let path = folder.join("lock");
        let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
        match OpenOptions::new().read(true).custom_flags(flags).open(&path) {
            Ok(file) => lock::anyone_else(&file).map_err(|error| errors::os(error, &path)),
            Err(_) => Ok(false), // The queue was never opened, or its lock file is gone.
        }
    }

    /// Which run of the machine the words are of.
    #[getter]
    fn boot(&self) -> u64 {
        self.control.boot()
    }

    /// This opener's name in lease tables.
    #[getter]
    fn owner(&self) -> u32 {
        self.control.life().name()
    }

    /// Whether nobody else has the queue open: the opener must recover it.
    #[getter]
    fn is_first(&self) -> bool {
        self.is_first
    }

    /// Whether there was no valid block.
    #[getter]
    fn is_new(&self) -> bool {
        self.is_new
    }

    /// Whether nobody else has it open now. Only inside `alone` or `close`.
    fn is_alone(&self) -> PyResult<bool> {
        Ok(self.control.life.is_alone()?)
    }

    /// The folder of the block.
    #[getter]
    fn folder(&self) -> PathBuf {
        self.control.path.clone()
    }

    /// Sets every word; the opener does it before anyone else may look.
    #[pyo3(signature = (*, boot, tail, next_number, segment_base, head, head_number, durable))]
    #[allow(clippy::too_many_arguments)]
    fn reset(
        &self,
        boot: u64,
        tail: u64,
        next_number: u64,
        segment_base: u64,
        head: u64,
        head_number: u64,
        durable: u64,
    ) {
        let map = &self.control.map;
        map.publish32(at::CLEAN, 0); // It comes first, since it tells that the words below count.
        for (word, value) in [
            (at::DURABLE, durable),
            (at::RESERVED_END, tail),
            (at::RESERVED_NUMBER, next_number),
            (at::TAIL, tail),
            (at::TAIL_CHECK, !tail),
            (at::NEXT_NUMBER, next_number),
            (at::SEGMENT_BASE, segment_base),
            (at::HEAD, head),
            (at::HEAD_NUMBER, head_number),
            (at::PUBLISHING, tail),
            (at::PUBLISHED, tail),
            // What was not synced may be in a file whose name was not synced either.
            (at::NAMED_BASE, if durable < tail { 0 } else { segment_base }),
            (at::DURABLE_AT, 0),
            (at::BOOT, boot),
            (at::MAGIC, MAGIC),
        ] {
            map.publish64(word, value);
        }
        map.publish32(at::POISON, 0);
    }

    /// A sync has failed: every later put raises, in every process, until the queue is opened anew.
    fn poison(&self) {
        self.control.poison();
    }

    /// Syncs a file of the queue, or the names in a folder of it; a failure poisons the queue.
    fn sync_file(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        let synced = py.detach(|| {
            self.control.sync(|| match path.is_dir() {
                true => region::sync_folder(&path),
                false => region::sync(&region::open(&path, true)?),
            })
        });
        synced.map_err(|error| errors::os(error, &path))
    }

    /// Offset of the next append.
    #[getter]
    fn tail(&self) -> u64 {
        self.control.tail()
    }

    /// Everything below it has been synced.
    #[getter]
    fn durable(&self) -> u64 {
        self.control.durable()
    }

    /// Oldest kept offset.
    #[getter]
    fn head(&self) -> u64 {
        self.control.head()
    }

    /// Base of the segment that is appended to.
    #[getter]
    fn segment_base(&self) -> u64 {
        self.control.segment_base()
    }

    /// Number of the next message, also when an appender died before it was stored.
    #[getter]
    fn next_number(&self) -> u64 {
        self.control.end_and_number().1
    }

    /// Number of the oldest kept message.
    #[getter]
    fn head_number(&self) -> u64 {
        self.control.map.word64(at::HEAD_NUMBER).load(Ordering::Acquire)
    }

    /// Whether a sync has failed.
    #[getter]
    fn is_poisoned(&self) -> bool {
        self.control.is_poisoned()
    }

    /// Counts what everyone must look at again (resized file, moved head).
    #[getter]
    fn generation(&self) -> u64 {
        self.control.map.word64(at::GENERATION).load(Ordering::Acquire)
    }

    /// Raises the count.
    fn bump_generation(&self) -> u64 {
        self.control.map.word64(at::GENERATION).fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Said by the last closer, after its sync; taken back by the next opener.
    fn set_clean(&self, clean: bool) {
        let word = if clean { self.control.clean_check() } else { 0 };
        self.control.map.publish32(at::CLEAN, word);
    }

    /// Another program has appended: the tail is now `tail`, in the segment at `segment_base`.
    /// False: it was a put of ours, or someone else has said so. The segment first: a reader never
    /// goes past the old one's end.
    fn follow(&self, py: Python<'_>, tail: u64, segment_base: u64) -> PyResult<bool> {
        let control = &*self.control;
        let held = control.hold(py)?;
        let is_foreign = control.tail() < tail;
        if is_foreign {
            control.reserve(tail, control.next_number());
            control.map.publish64(at::SEGMENT_BASE, segment_base);
            control.advance(tail, control.next_number());
            control.announce_unsynced();
        }
        drop(held);
        control.wake();
        Ok(is_foreign)
    }

    /// Moves the head: everything below is gone. Never back: another process may have trimmed
    /// further meanwhile.
    fn set_head(&self, py: Python<'_>, head: u64, number: u64) -> PyResult<()> {
        let held = self.control.hold(py)?;
        if head > self.control.head() {
            self.control.map.publish64(at::HEAD_NUMBER, number);
            self.control.map.publish64(at::HEAD, head);
        }
        drop(held);
        self.control.signal();
        Ok(())
    }

    /// Stores a word of the format's own, in the second half of the block.
    fn set_user_word(&self, index: usize, value: u64) -> PyResult<()> {
        self.control.map.publish64(user_at(index)?, value);
        Ok(())
    }
}

fn user_at(index: usize) -> PyResult<usize> {
    let at = at::USER + index.saturating_mul(8);
    if at + 8 > OWNERS_AT {
        return Err(pyo3::exceptions::PyIndexError::new_err("no such word in the control block"));
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::{Path, is_of_queue};

    fn of(sidecar: &str, path: &str) -> bool {
        is_of_queue(Path::new(sidecar), Path::new(path))
    }

    #[test]
    fn a_file_of_a_queue_is_told_from_its_neighbours_files() {
        for path in ["/a/q/log/0.seg", "/a/q/.penstock/extras", "/a/q", "/a"] {
            assert!(of("/a/q/.penstock", path), "{path}");
        }
        for path in ["/a/q2/log/0.seg", "/a/q.dead/log/0.seg", "/", "/b/q/log/0.seg"] {
            assert!(!of("/a/q/.penstock", path), "{path}");
        }
        for path in ["/a/q.bin", "/a/q.bin.penstock/control", "/a"] {
            assert!(of("/a/q.bin.penstock", path), "{path}");
        }
        for path in ["/a/q", "/a/q.bin2", "/a/q.bin.dead.penstock/control", "/a/q.bin.dead"] {
            assert!(!of("/a/q.bin.penstock", path), "{path}");
        }
    }
}
