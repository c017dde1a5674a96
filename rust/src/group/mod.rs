//! A group: consumers that share progress, in any number of threads and processes.
//!
//! Every change is journaled before the table shows it; both happen under the group's lock, which
//! survives its holder's death like the append lock. A group that acks by getting moves one word
//! and needs neither, as long as no message is delayed, keyed or inside an opaque frame.

mod claim;
mod cutting;
mod idle;
pub mod journal;
mod kept;
#[cfg(all(test, feature = "models"))]
mod models;
mod opening;
pub mod orphans;
mod python;
mod returning;
pub mod settings;
mod settling;
mod syncing;
pub mod table;

use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use pyo3::prelude::*;

pub use python::PyGroup;

use crate::clock::Clock;
use crate::errors;
use crate::files::region;
use crate::formats::mirror::{Change, Mirror};
use crate::read::reader::Reader;
use crate::segment::publish::Publish;
use crate::shared::control::{Control, Part};
use crate::shared::lock::Got;
use crate::shared::pace::Pace;
use crate::shared::protocol;
use crate::sys::futex;
use crate::sys::guarded::{Guard, Guarded};
use journal::{Journal, Kind, Record, Replay};
use settings::{Settings, WaitTimes};
use table::{Entry, EntryState, NEVER, NONE, Table, at};

const MAGIC: u64 = u64::from_le_bytes(*b"PENSTGR2");
/// Tables of builds before the release, which have `delivered` and `cursor` in each other's place.
const OLD_MAGIC: u64 = u64::from_le_bytes(*b"PENSTGRP");
/// The group is paused: it hands nothing out. The value has many bits: a single one that flips must
/// not stop all consumers.
pub const PAUSED: u32 = 0xA5A5;
/// The group was deleted or renamed: every handle on it is done.
pub const GONE: u32 = 0xA5A5 << 16;
/// The offset in a journal record that is about no message: only its `next` counts.
const NO_OFFSET: u64 = u64::MAX;
/// A table is damaged if it says that so many leases more were given than the journal has.
const MAX_UNSEEN_TOKENS: u64 = 1 << 32;

/// One open group.
pub struct Group {
    control: Arc<Control>,
    table: Table,
    folder: PathBuf,
    journal: Mutex<Journal>,
    journal_name: AtomicU64,
    /// The process that opened it.
    process: u32,
    /// Where reading went on by the journal, when the table was last made from it here.
    replayed_next: AtomicU64,
    /// The journal and the byte of it from which on it could not be read.
    torn: Mutex<Option<(PathBuf, u64)>>,
    /// The journal before, whose file the next one takes over.
    spare: Mutex<Option<Journal>>,
    reader: Guarded<Reader>,
    clock: Py<Clock>,
    host: Py<PyAny>,
    wait_times: WaitTimes,
    mirror: Option<Arc<dyn Mirror>>,
    /// Where the queue ends by the format's own file, which other programs may write.
    publish: Option<Arc<dyn Publish>>,
    settings: Settings,
    is_lease: bool,
    is_always: bool,
    pace: Pace,
    owner: u32,
    is_closed: AtomicBool,
    /// An error that the next call raises, and whether there is one.
    owed: Mutex<Option<PyErr>>,
    owes: AtomicBool,
    codec: OnceLock<Py<PyAny>>,
}

/// The group's lock, held.
struct HeldGroup<'a>(&'a Group);

impl Drop for HeldGroup<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.control.life().give(self.0.table.map().word32(at::LOCK));
    }
}

impl Part for Group {
    fn words(&self) -> [&AtomicU32; 2] {
        [at::LOCK, at::SYNC_LOCK].map(|word| self.table.map().word32(word))
    }

    fn name(&self) -> Option<&OsStr> {
        // What is closed here belongs to the next one who looks at it.
        self.folder.file_name().filter(|_| !self.is_closed.load(Ordering::Relaxed))
    }

    fn sync_progress(&self) -> std::io::Result<()> {
        if !self.is_lease {
            // Also where nothing is left: a sync may be quicker than who asks for it without the
            // lock.
            protocol::begin_sync(self.table.map().word32(at::SYNC_ASKED));
        }
        if self.is_closed.load(Ordering::Relaxed) { Ok(()) } else { self.sync_dirty() }
    }
}

impl Group {
    #[inline(always)]
    fn clock(&self) -> &Clock {
        self.clock.get()
    }

    #[inline(always)]
    fn reader<'a>(&'a self, py: Python<'a>) -> Guard<'a, Reader> {
        self.reader.lock(py)
    }

    /// The journal. Written to only under the group's lock, so nobody waits here for long.
    #[inline(always)]
    fn journal(&self) -> MutexGuard<'_, Journal> {
        self.journal.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn use_journal(&self, journal: Journal) -> Journal {
        self.journal_name.store(journal.name(), Ordering::Relaxed);
        std::mem::replace(&mut *self.journal(), journal)
    }

    /// Takes the lock.
    #[inline]
    fn take<'a>(&'a self, py: Python<'_>) -> PyResult<HeldGroup<'a>> {
        loop {
            if let Some(held) = self.take_soon(py)? {
                return Ok(held);
            }
            py.check_signals()?;
        }
    }

    /// An error once this opener has ended, and in a forked child, where the locks of this process
    /// may be with threads of the parent for ever.
    #[inline(always)]
    fn ensure_open(&self, py: Python<'_>) -> PyResult<()> {
        if self.control.life().is_over() { Err(self.control.closed(py)) } else { Ok(()) }
    }

    /// The reader and the lock. Signals are looked at while neither is held: a handler may get.
    #[inline]
    fn take_both<'a>(&'a self, py: Python<'a>) -> PyResult<(Guard<'a, Reader>, HeldGroup<'a>)> {
        loop {
            self.ensure_open(py)?;
            let reader = self.reader(py);
            if let Some(held) = self.take_soon(py)? {
                return Ok((reader, held));
            }
            drop(reader);
            py.check_signals()?;
        }
    }

    /// Takes the lock if it can be had soon. If a dead process had it, or the table is distrusted,
    /// the table is made anew first.
    #[inline(always)]
    fn take_soon<'a>(&'a self, py: Python<'_>) -> PyResult<Option<HeldGroup<'a>>> {
        let (life, word) = (self.control.life(), self.table.map().word32(at::LOCK));
        if life.try_take(word).is_some() {
            let held = HeldGroup(self);
            if life.is_over() {
                // It has ended, and gives the lock back at once.
                return Err(self.control.closed(py));
            }
            if !self.is_table_whole() {
                self.mend()?;
            }
            return Ok(Some(held));
        }
        self.take_slowly(py)
    }

    /// Whether neither the table nor the journal has changed behind our back.
    #[inline(always)]
    fn is_table_whole(&self) -> bool {
        self.table.small(at::BROKEN) == 0
            && self.journal_name.load(Ordering::Relaxed) == self.table.wide(at::JOURNAL_NAME)
    }

    #[cold]
    fn take_slowly<'a>(&'a self, py: Python<'_>) -> PyResult<Option<HeldGroup<'a>>> {
        let (life, word) = (self.control.life(), self.table.map().word32(at::LOCK));
        let Some(got) = life.take_soon(py, word) else { return Ok(None) };
        let held = HeldGroup(self);
        if got == Got::Inherited {
            self.table.distrust(); // The next holder must know, also if we give the lock back now.
        }
        if life.is_over() {
            return Err(self.control.closed(py)); // It ended while we waited.
        }
        self.mend()?;
        Ok(Some(held))
    }

    /// Makes the table anew if it can't be trusted, and opens the journal that it belongs to.
    #[cold]
    fn mend(&self) -> PyResult<()> {
        if self.table.map().is_cut() {
            // The table reads as zeros from now on: nobody has stored those.
            let path = self.folder.join("table");
            return Err(Python::attach(|py| errors::vanished(py, &path)));
        }
        if self.is_gone() {
            return Ok(()); // In its folder there may be another group by now.
        }
        if self.table.small(at::BROKEN) != 0 {
            // Distrusted until it is whole: this may fail, and the lock is given back.
            self.rebuild(true).map_err(|error| errors::os(error, &self.folder))?;
            self.table.set_small(at::BROKEN, 0);
        }
        if self.journal_name.load(Ordering::Relaxed) != self.table.wide(at::JOURNAL_NAME) {
            let path = journal::path(&self.folder, self.table.wide(at::JOURNAL_NAME));
            self.reopen_journal().map_err(|error| errors::os(error, &path))?;
        }
        Ok(())
    }

    fn reopen_journal(&self) -> std::io::Result<()> {
        let journal = Journal::open(&self.folder, self.table.wide(at::JOURNAL_NAME))?;
        self.use_journal(journal);
        Ok(())
    }

    /// Makes the table anew from the journal. In the same boot deadlines and owners hold; after a
    /// restart of the machine every owner is gone and the wall clock tells what is left.
    fn rebuild(&self, same_boot: bool) -> std::io::Result<()> {
        let name = journal::newest(&self.folder)?.unwrap_or(0);
        let journal = Journal::open(&self.folder, name)?;
        let replay = journal.replay()?;
        let is_torn = journal.clear_after(replay.end)?;
        // A process that died in a checkpoint may have left the name of the new journal unsynced,
        // and the old journal beside it. That is cleared up before anyone could take a sync of the
        // one for a sync of the other.
        journal::drop_older(&self.folder, name)?;
        let idle_ns = Some(self.idle_then()).filter(|_| self.is_as_seen());
        self.enter_all(&replay, same_boot)?;
        let token = self.table.wide(at::TOKEN);
        let is_token = token.wrapping_sub(replay.token) < MAX_UNSEEN_TOKENS;
        self.table.set_wide(at::TOKEN, if is_token { token } else { replay.token });
        self.table.set_wide(at::JOURNAL_NAME, name);
        self.table.set_wide(at::JOURNAL_END, replay.end);
        self.table.set_wide(at::JOURNAL_SYNCED, 0);
        self.table.set_wide(at::JOURNALED_NEXT, replay.next);
        if let Some(idle_ns) = idle_ns {
            let seen_at = self.table.wide(at::IDLE_AT).cast_signed();
            let now = if same_boot { seen_at } else { self.clock().boot() };
            self.note_idle(idle_ns, now, true);
        }
        self.use_journal(journal);
        self.replayed_next.store(replay.next, Ordering::Relaxed);
        if is_torn {
            // What stands behind the last record that checks must never follow the next one.
            let at = journal::path(&self.folder, name);
            *self.torn.lock().unwrap_or_else(|e| e.into_inner()) = Some((at, replay.end));
            self.checkpoint()?;
        }
        Ok(())
    }

    /// Everything that is not done, as the journal says.
    fn enter_all(&self, replay: &Replay, same_boot: bool) -> std::io::Result<()> {
        let (boot, wall) = (self.clock().boot(), self.clock().wall());
        match self.is_lease {
            true => self.table.set_wide(at::NEXT, replay.next),
            // A group that acks by getting moves its word without the journal, and without the
            // lock: others may be moving it right now. The first opener looks whether a message
            // begins there.
            false => {
                self.table.map().word64(at::NEXT).fetch_max(replay.next, Ordering::AcqRel);
            }
        }
        // Where each part of it is depends on a word of the table itself.
        self.table.forget();
        self.table.clear();
        for (entry, set_at) in replay.outstanding.values() {
            let mut entry = *entry;
            if !same_boot {
                let left = set_at
                    .saturating_add(entry.timeout)
                    .saturating_sub(wall)
                    .clamp(0, entry.timeout.max(0));
                entry.deadline = boot.saturating_add(left);
                if entry.state == EntryState::Leased && entry.owner != NONE {
                    entry.state = EntryState::Ready;
                }
            }
            if entry.state == EntryState::Blocked && !self.table.is_key_busy(entry.key) {
                entry.state =
                    if entry.deadline > boot { EntryState::Delayed } else { EntryState::Ready };
            }
            self.table.enter(&entry)?;
        }
        self.table.move_cursor();
        Ok(())
    }

    /// Where reading goes on by the journal, if that was read here.
    fn replayed_next(&self) -> Option<u64> {
        Some(self.replayed_next.load(Ordering::Relaxed)).filter(|next| *next != u64::MAX)
    }

    /// Journals how far reading has got, where no message says so: what a filter rejects and what
    /// a get acks leave no record. Under the lock.
    fn journal_next(&self) -> std::io::Result<()> {
        let next = self.table.wide(at::NEXT);
        if next == self.table.wide(at::JOURNALED_NEXT) || self.is_gone() {
            return Ok(());
        }
        let entry = Entry::read(NO_OFFSET, NO_OFFSET, NONE);
        let record = Record { kind: Kind::Done, entry: &entry, next };
        let before = self.table.wide(at::JOURNAL_END);
        let end = self.journal().append(before, &record, self.clock().wall())?;
        self.table.set_wide(at::JOURNAL_END, end);
        self.table.set_wide(at::JOURNALED_NEXT, next);
        self.checkpoint_if_long()
    }

    /// Journals what is about to happen. Under the lock, before the table changes.
    fn write(&self, kind: Kind, entry: &Entry, now_boot: i64) -> std::io::Result<()> {
        self.write_next(kind, entry, self.table.wide(at::NEXT), now_boot)
    }

    /// The same, and reading goes on at `next`.
    #[inline(always)]
    fn write_next(&self, kind: Kind, entry: &Entry, next: u64, now: i64) -> std::io::Result<()> {
        let wall = self.wall_at(now);
        let record = Record { kind, entry, next };
        let before = self.table.wide(at::JOURNAL_END);
        let end =
            self.journal().append(before, &record, wall).inspect_err(|_| self.table.distrust())?;
        self.table.set_wide(at::JOURNAL_END, end);
        self.table.set_wide(at::JOURNALED_NEXT, next);
        self.ask_for_sync();
        if let Some(mirror) = &self.mirror {
            let (offset, receives) = (entry.offset, entry.receives);
            mirror.note(match kind {
                Kind::Seek => Change::Moved,
                Kind::Done => Change::Done(offset),
                _ => Change::Open { offset, receives, wall_ns: wall },
            });
        }
        Ok(())
    }

    /// The wall time that belongs to a boot time that was just read. It saves a reading of the
    /// clock.
    #[inline(always)]
    fn wall_at(&self, now_boot: i64) -> i64 {
        match self.clock().is_manual() {
            true => self.clock().wall(),
            false => now_boot.saturating_add(self.table.wide(at::SKEW).cast_signed()),
        }
    }

    /// Notes how far the wall clock is from the boot clock.
    fn measure_skew(&self) {
        let skew = self.clock().wall().saturating_sub(self.clock().boot());
        self.table.set_wide(at::SKEW, skew.cast_unsigned());
    }

    /// Rewrites the journal when most of it is history. Under the lock.
    #[inline(always)]
    fn checkpoint_if_long(&self) -> std::io::Result<()> {
        let end = self.table.wide(at::JOURNAL_END);
        let live = self.table.span() * 112;
        if end > journal::SMALL_BYTES.max(live * 4) { self.checkpoint() } else { Ok(()) }
    }

    /// Begins a new journal. If that fails, it is unknown which of the two counts: openers take the
    /// newest.
    fn checkpoint(&self) -> std::io::Result<()> {
        if self.is_gone() {
            return Ok(());
        }
        self.begin_journal().inspect_err(|_| self.table.distrust())
    }

    fn begin_journal(&self) -> std::io::Result<()> {
        // A group of another queue may have the folder's name by now, and would take over ours.
        if !region::is_at(self.table.map().file()?, &self.folder.join("table"))? {
            let error = std::io::Error::other("the folder was replaced while it was open");
            return Err(errors::located(error, &self.folder));
        }
        let next = self.table.wide(at::NEXT);
        let nothing = Entry { token: self.table.wide(at::TOKEN), ..Entry::NONE };
        let (wall, boot) = (self.clock().wall(), self.clock().boot());
        let mut records = vec![(Record { kind: Kind::Seek, entry: &nothing, next }, wall)];
        let outstanding: Vec<Entry> =
            self.table.outstanding().filter_map(|entry| self.table.entry(entry)).collect();
        records.extend(outstanding.iter().map(|entry| {
            // When its deadline was set, not when it was copied: that is what a new boot counts
            // from.
            let ago = boot.saturating_sub(entry.deadline.saturating_sub(entry.timeout)).max(0);
            let set_at = if entry.timeout == 0 { wall } else { wall.saturating_sub(ago) };
            (Record { kind: Kind::Enter, entry, next }, set_at)
        }));
        let old = self.table.wide(at::JOURNAL_NAME);
        let before = self.spare.lock().unwrap_or_else(|e| e.into_inner()).take();
        let (journal, end) = Journal::begin(&self.folder, old + 1, &records, before)?;
        self.table.set_wide(at::JOURNAL_NAME, old + 1);
        self.table.set_wide(at::JOURNAL_END, end);
        self.table.set_wide(at::JOURNALED_NEXT, next);
        self.table.set_wide(at::JOURNAL_SYNCED, end);
        // Nothing is left to sync, so nobody else would take the request back.
        protocol::begin_sync(self.table.map().word32(at::SYNC_ASKED));
        let last = self.use_journal(journal);
        *self.spare.lock().unwrap_or_else(|e| e.into_inner()) = Some(last);
        journal::retire(&self.folder, old)
    }

    /// Tells the format's own file.
    #[inline(always)]
    fn mirror(&self) -> std::io::Result<()> {
        match &self.mirror {
            None => Ok(()),
            Some(mirror) => mirror.store(self.cursor(), self.table.wide(at::NEXT)),
        }
    }

    /// The lowest unacked offset. Without the lock it is a hint.
    #[inline(always)]
    pub fn cursor(&self) -> u64 {
        match self.table.span() {
            0 => self.table.wide(at::NEXT),
            _ => self.table.wide(at::CURSOR),
        }
    }

    /// Forgets what is out and reads on at `offset`.
    fn seek(&self, py: Python<'_>, offset: u64) -> PyResult<()> {
        let held = self.take(py)?;
        self.table.set_wide(at::NEXT, offset);
        self.write(Kind::Seek, &Entry::NONE, self.clock().boot())?;
        self.table.clear();
        self.mirror()?;
        drop(held);
        self.control.progressed(offset);
        self.control.signal();
        if self.is_always {
            self.sync_progress_now(py)?;
        }
        Ok(())
    }

    /// Gives back what dead openers had. Under the lock.
    fn release_dead(&self, now: i64) -> std::io::Result<u32> {
        let mut verdicts = std::collections::BTreeMap::new();
        let released = self.release_leases(|owner| {
            owner != NONE
                && !*verdicts.entry(owner).or_insert_with(|| self.control.life().is_alive(owner))
        })?;
        self.table.set_wide(at::LOOKED_FOR_DEAD, now.cast_unsigned());
        Ok(released)
    }

    /// Whether it is time to look for dead consumers: something is out, and nobody has looked
    /// lately. This also counts while there is a backlog, or the messages of a dead consumer would
    /// wait for their whole visibility time.
    #[inline(always)]
    fn is_time_for_dead(&self, now: i64) -> bool {
        let looked = self.table.wide(at::LOOKED_FOR_DEAD).cast_signed();
        self.table.small(at::LEASED) > 0 && now.abs_diff(looked) > self.wait_times.look_for_dead_ns
    }

    /// Gives back what these owners have. Under the lock.
    fn release_leases(&self, mut of: impl FnMut(u32) -> bool) -> std::io::Result<u32> {
        let mut released = 0;
        let held: Vec<u32> = self.table.outstanding().collect();
        for entry in held {
            let Some(found) = self.table.entry(entry).filter(|e| e.state == EntryState::Leased)
            else {
                continue;
            };
            if of(found.owner) {
                self.release(entry, found, 0)?;
                released += 1;
            }
        }
        Ok(released)
    }

    /// When something may be there without a new put: the next deadline, or the time to look
    /// for dead consumers.
    fn wake_at(&self, now: i64) -> i64 {
        let attention = self.table.attention();
        let has_leases = self.table.small(at::LEASED) > 0;
        let look = if has_leases { now + self.wait_times.sleep_for_dead_ns } else { NEVER };
        attention.min(look)
    }

    /// A very short spin: most waits between busy processes end within it. True: look again.
    fn pause_briefly(&self, limit: u64) -> bool {
        let spin = self.wait_times.spin_ns;
        if spin == 0 || self.clock().is_manual() {
            return false;
        }
        let start = self.clock().boot();
        loop {
            for _ in 0..32 {
                std::hint::spin_loop();
            }
            if self.control.tail() != limit {
                return true;
            }
            if self.clock().boot() - start > spin {
                return false;
            }
        }
    }

    /// Sleeps until something may be there, unless that is so since `seen` and `limit_seen`.
    fn sleep(&self, seen: u32, limit_seen: u64, until: i64, polls: u32) -> futex::Woken {
        let now = self.clock().boot();
        let mut wake_at = self.wake_at(now).min(until);
        if self.foreign_end().is_some() {
            // Programs that are not ours wake nobody: look soon, then ever more rarely.
            wake_at = wake_at.min(now + self.wait_times.poll_ns(polls));
        }
        let is_manual = self.clock().is_manual();
        let nap =
            if is_manual { self.wait_times.manual_nap_ns } else { wake_at.saturating_sub(now) };
        if nap <= 0 {
            return futex::Woken::TimedOut;
        }
        let timeout = (wake_at != NEVER || is_manual)
            .then(|| std::time::Duration::from_nanos(nap.unsigned_abs()));
        let ready = || {
            self.control.tail() != limit_seen
                || self.table.small(at::READY_LEN) > 0
                || self.has_news()
                || self.is_closed.load(Ordering::Relaxed)
        };
        self.control.wait(seen, timeout, ready)
    }

    /// Whether the group was deleted or renamed.
    #[inline(always)]
    fn is_gone(&self) -> bool {
        self.table.small(at::FLAGS) & GONE == GONE
    }

    /// Whether nothing is handed out.
    #[inline(always)]
    fn is_paused(&self) -> bool {
        self.table.small(at::FLAGS) & PAUSED == PAUSED
    }

    /// Whether its settings were changed, it is gone, or an error was kept back.
    #[inline(always)]
    fn has_news(&self) -> bool {
        self.owes.load(Ordering::Relaxed)
            || self.table.small(at::VERSION)
                != self.settings.noticed_version.load(Ordering::Relaxed)
            || self.is_gone()
    }

    /// The end as the format's own file has it, where other programs may move it.
    #[inline]
    fn foreign_end(&self) -> Option<u64> {
        self.publish.as_ref().and_then(|publish| publish.foreign_end())
    }

    /// Whether another program has appended. One of ours that has published and not yet moved
    /// the tail holds the lock; in doubt (`polls`), Python looks under the lock.
    fn is_behind(&self, polls: u32) -> bool {
        let Some(end) = self.foreign_end() else { return false };
        let is_quiet = self.control.lock_word().load(Ordering::Acquire) == 0;
        (is_quiet || polls > self.wait_times.polls_in_doubt) && end > self.control.tail()
    }
}
