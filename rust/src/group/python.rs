//! The group as Python sees it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use pyo3::prelude::*;
use pyo3::types::PyList;

use super::claim::{Basket, One, Several};
use super::journal::{Journal, Kind};
use super::kept::Kept;
use super::settings::{Options, Settings};
use super::table::{Entry, EntryState, NEVER, NONE, Table, at};
use super::{GONE, Group, MAGIC, PAUSED, opening};
use crate::clock::{Clock, check_timeout, seconds_or_none, seconds_to_ns};
use crate::errors;
use crate::formats::mirror::PyMirror;
use crate::message::{Lease, Leases, Message, MessageParts};
use crate::read::reader::Reader;
use crate::segment::Segment;
use crate::segment::publish::PyPublish;
use crate::shared::control::{Part, Shared};
use crate::shared::lock::patiently;
use crate::shared::pace::Pace;
use crate::shared::protocol;
use crate::sys::guarded::Guarded;
use crate::sys::memory;

/// A group, open, and messages of it that are done.
#[pyclass(frozen, module = "penstock._core", name = "Group")]
pub struct PyGroup(pub Arc<Group>, Guarded<Kept>);

impl PyGroup {
    /// What the claim left open.
    #[inline(always)]
    fn complete(
        &self,
        py: Python<'_>,
        message: &mut MessageParts,
        leases: Option<Arc<dyn Leases>>,
    ) {
        if message.lease.token != 0 {
            let group = || -> Arc<dyn Leases> { Arc::clone(&self.0) as _ };
            message.leases = Some(leases.unwrap_or_else(group));
        }
        if let Some(codec) = self.0.codec.get() {
            message.codec = OnceLock::from(codec.clone_ref(py));
        }
    }

    /// Hands a message out, and keeps it until it is done.
    #[inline(always)]
    fn hand_over<'py>(&self, object: Bound<'py, Message>) -> Bound<'py, Message> {
        let replaced = self.1.lock(object.py()).keep(object.clone().unbind());
        drop(replaced); // Not before the lock is given back: that may be anyone's code.
        object
    }

    /// Lets go of what messages were in that are done, and of `segment`. To unmap it takes long.
    #[cold]
    fn let_go(&self, py: Python<'_>, segment: Option<Arc<Segment>>) {
        let kept = std::mem::take(&mut *self.1.lock(py));
        py.detach(|| drop(segment));
        drop(kept);
    }

    /// Gives dead letters away; the rest stays in `claimed`, also when that fails. Where nothing
    /// else was claimed, what comes next is.
    #[cold]
    fn bury<B: Basket>(
        &self,
        py: Python<'_>,
        visibility_ns: Option<i64>,
        claimed: &mut B,
    ) -> PyResult<()> {
        loop {
            for mut one in claimed.take_dead() {
                self.complete(py, &mut one, None);
                let buried = self.0.host.call_method1(py, "dead_letter", (one,));
                match buried {
                    Ok(_) => self.0.table.count_among_others(at::DEAD, 1),
                    Err(error) if claimed.is_empty() => return Err(error),
                    Err(error) => self.0.owe(error)?,
                }
            }
            if !claimed.is_empty() {
                return Ok(());
            }
            self.0.claim(py, visibility_ns, claimed)?;
            if !claimed.has_dead() {
                return Ok(());
            }
        }
    }

    /// Claims what is there now. It is the first look of every get, and reads no word that writers
    /// change as long as it knows of a message.
    #[inline(always)]
    fn claim_now<B: Basket>(
        &self,
        py: Python<'_>,
        visibility_ns: Option<i64>,
        claimed: &mut B,
    ) -> PyResult<()> {
        let group = &*self.0;
        if group.is_closed.load(Ordering::Relaxed) {
            return Err(errors::plain(py, "ClosedError"));
        }
        if group.has_news() {
            self.take_news(py)?;
        }
        group.claim(py, visibility_ns, claimed)?;
        if claimed.has_dead() {
            self.bury(py, visibility_ns, claimed)?;
        }
        if group.is_lease || claimed.is_empty() {
            return Ok(());
        }
        group.control.progressed(group.cursor());
        group.ask_for_sync();
        if !group.is_always {
            return Ok(());
        }
        // Nobody sees what was claimed by a call that a failed sync or a signal handler ends.
        let synced = group.sync_progress_now(py).and_then(|()| py.check_signals());
        synced.inspect_err(|_| drop(group.take_back(py, &claimed.claimed())))
    }

    /// Claims at least one message, waiting up to `timeout`; nothing when none came.
    fn claim_until<B: Basket>(
        &self,
        py: Python<'_>,
        timeout: Option<f64>,
        visibility_ns: Option<i64>,
        claimed: &mut B,
    ) -> PyResult<()> {
        let group = &*self.0;
        let is_patient = timeout.is_none_or(|seconds| seconds > 0.0);
        let mut until = None;
        let mut polls = 0;
        loop {
            // This comes before the look, so that a signal after it ends the sleep below.
            let seen = group.control.event_word().load(Ordering::SeqCst);
            let limit = group.control.tail();
            self.claim_now(py, visibility_ns, claimed)?;
            if !claimed.is_empty() {
                return Ok(());
            }
            if group.is_behind(polls) {
                group.host.call_method0(py, "follow")?;
                polls = 0;
                if group.control.tail() != limit {
                    continue;
                }
            }
            if !is_patient {
                return Ok(());
            }
            if group.pause_briefly(limit) {
                continue;
            }
            let until = match (until, timeout) {
                (Some(until), _) => until,
                (None, None) => *until.insert(NEVER),
                (None, Some(seconds)) => {
                    let end =
                        group.clock().boot().saturating_add(seconds_to_ns("timeout", seconds)?);
                    *until.insert(end)
                }
            };
            if group.clock().boot() >= until {
                return Ok(());
            }
            polls += 1;
            // A signal that comes just before the sleep, or to another thread, does not end it.
            let soon = group.clock().boot().saturating_add(group.wait_times.longest_sleep_ns);
            py.detach(|| group.sleep(seen, limit, until.min(soon), polls));
            py.check_signals()?;
        }
    }

    /// Up to `count` messages.
    fn claim_many(
        &self,
        py: Python<'_>,
        count: isize,
        timeout: Option<f64>,
        visibility: Option<f64>,
    ) -> PyResult<Vec<Message>> {
        let wrong = |_| errors::error(py, "OptionError", ("count", count, "0 or more"));
        let mut several = Several::new(usize::try_from(count).map_err(wrong)?);
        check_timeout(timeout)?;
        if count > 0 {
            let visibility_ns = visibility.map(|s| seconds_to_ns("visibility", s)).transpose()?;
            self.claim_until(py, timeout, visibility_ns, &mut several)?;
        }
        memory::keep(several.messages.iter().map(|message| message.content.len()).sum());
        Ok(several.messages)
    }

    /// Another process changed the group's settings, or removed it; or a call before this one has
    /// kept an error back.
    #[cold]
    fn take_news(&self, py: Python<'_>) -> PyResult<()> {
        self.0.take_owed()?;
        if self.0.is_gone() {
            let text = "the group was deleted or renamed; open it again with queue.group(name)";
            return Err(errors::error(py, "GroupError", (text,)));
        }
        let version = self.0.table.small(at::VERSION);
        self.0.settings.noticed_version.store(version, Ordering::Relaxed);
        self.0.host.call_method0(py, "refresh").map(drop)
    }
}

#[pymethods]
impl PyGroup {
    /// Opens the group whose files are in `folder`, with the queue's opening lock held; a new one
    /// reads from `start` on, after the `(offset, receives)` in `entered`. `host` has
    /// `segment_at(offset)` and `dead_letter(message)`.
    #[new]
    #[pyo3(signature = (shared, folder, clock, host, *, start, always, options, mirror=None, publish=None, entered=Vec::new()))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        shared: &Shared,
        folder: PathBuf,
        clock: Py<Clock>,
        host: Py<PyAny>,
        start: u64,
        always: bool,
        options: Options,
        mirror: Option<&PyMirror>,
        publish: Option<&PyPublish>,
        entered: Vec<(u64, u32)>,
    ) -> PyResult<Self> {
        let boot_id = shared.control.boot();
        let table = Table::open(&folder.join("table")).map_err(|e| errors::os(e, &folder))?;
        opening::renew(&table);
        let is_same_boot = table.wide(at::MAGIC) == MAGIC && table.wide(at::BOOT) == boot_id;
        let is_alone = opening::is_alone(shared, &table).map_err(|e| errors::os(e, &folder))?;
        let found = Journal::open_newest(&folder).map_err(|e| errors::os(e, &folder))?;
        let is_new = found.is_none();
        let first = || opening::first_journal(&folder, start, &entered, clock.get().wall());
        let opened = found.map_or_else(first, Ok).map_err(|e| errors::os(e, &folder))?;
        let settings =
            Settings { noticed_version: table.small(at::VERSION).into(), ..Settings::default() };
        settings.adopt(&options)?;
        // The process that was told may be gone: the next progress is announced again.
        protocol::begin_sync(table.map().word32(at::SYNC_ASKED));
        let owner = if options.bound { shared.control.life().name() } else { NONE };
        let group = Group {
            control: Arc::clone(&shared.control),
            table,
            folder,
            journal_name: opened.name().into(),
            process: std::process::id(),
            replayed_next: u64::MAX.into(),
            torn: Mutex::new(None),
            journal: Mutex::new(opened),
            spare: Mutex::new(None),
            reader: Guarded::new(Reader::new(options.filter()?)),
            clock,
            host,
            wait_times: options.wait_times,
            mirror: mirror.map(|mirror| Arc::clone(&mirror.0)),
            publish: publish.map(|publish| Arc::clone(&publish.0)),
            settings,
            is_lease: options.lease,
            is_always: always,
            pace: Pace::default(),
            owner,
            is_closed: AtomicBool::new(false),
            owed: Mutex::new(None),
            owes: AtomicBool::new(false),
            codec: OnceLock::new(),
        };
        group.enter(is_alone || !is_same_boot);
        if !is_same_boot {
            let done = py.detach(|| group.prepare(is_new, boot_id));
            done.map_err(|error| errors::os(error, &group.folder))?;
        } else {
            group.check(py, is_alone)?;
        }
        if is_new {
            group.mirror()?;
        }
        let group = Arc::new(group);
        let part: Weak<Group> = Arc::downgrade(&group);
        group.control.note_part(part);
        Ok(Self(group, Guarded::new(Kept::default())))
    }

    /// The next message; `Empty` when none comes within `timeout` seconds (none: wait for ever).
    #[pyo3(signature = (timeout=None, *, visibility=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = seconds_or_none)] timeout: Option<f64>,
        visibility: Option<f64>,
    ) -> PyResult<Bound<'py, Message>> {
        let visibility_ns = visibility.map(|s| seconds_to_ns("visibility", s)).transpose()?;
        check_timeout(timeout)?;
        let (mut done, mut new) = (self.1.lock(py).take(py), None);
        let parts = match &mut done {
            Some(done) => done.value(py),
            None => new.insert(Message::empty()),
        };
        let left = parts.leave();
        let mut one = One::new(parts, left.segment);
        self.claim_now(py, visibility_ns, &mut one)?;
        if one.is_empty() {
            self.claim_until(py, timeout, visibility_ns, &mut one)?;
        }
        let is_there = one.message().map(|message| self.complete(py, message, left.leases));
        let unused = one.left();
        if unused.is_some() {
            self.let_go(py, unused);
        }
        let object = match (is_there, done, new) {
            (Some(()), Some(done), _) => done.into_object().into_bound(py),
            (Some(()), None, Some(new)) => new.into_object(py)?,
            _ => return Err(errors::plain(py, "Empty")),
        };
        Ok(self.hand_over(object))
    }

    /// Up to `count` messages: what is there after at most `timeout` seconds, `[]` if nothing.
    #[pyo3(signature = (count, timeout=Some(0.0), *, visibility=None))]
    fn get_many<'py>(
        &self,
        py: Python<'py>,
        count: isize,
        timeout: Option<f64>,
        visibility: Option<f64>,
    ) -> PyResult<Bound<'py, PyList>> {
        let messages = self.claim_many(py, count, timeout, visibility)?.into_iter();
        let objects: PyResult<Vec<_>> = messages
            .map(|mut message| {
                self.complete(py, &mut message, None);
                message.into_object(py)
            })
            .collect();
        PyList::new(py, objects?)
    }

    /// The bodies alone of up to `count` messages, which are done by this: for groups with
    /// `ack="auto"`.
    #[pyo3(signature = (count, timeout=Some(0.0)))]
    fn get_bodies<'py>(
        &self,
        py: Python<'py>,
        count: isize,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyList>> {
        if self.0.is_lease {
            let why = "get_bodies needs a group with ack=\"auto\": a body alone can't be acked";
            return Err(errors::error(py, "GroupError", (why,)));
        }
        let messages = self.claim_many(py, count, timeout, None)?;
        let bodies: PyResult<Vec<_>> = messages.iter().map(|message| message.body(py)).collect();
        let list = bodies.and_then(|bodies| PyList::new(py, bodies));
        let unseen = || messages.iter().map(|message| &**message).collect::<Vec<&MessageParts>>();
        list.inspect_err(|_| drop(self.0.take_back(py, &unseen())))
    }

    /// Gives back messages that a get claimed and its caller never saw: any consumer gets them, and
    /// it does not count. Answers those whose bytes are gone.
    fn take_back<'py>(
        &self,
        py: Python<'py>,
        messages: Vec<Bound<'py, Message>>,
    ) -> PyResult<Vec<Bound<'py, Message>>> {
        let parts: Vec<&MessageParts> = messages.iter().map(|one| &**one.get()).collect();
        let are_back = self.0.take_back(py, &parts)?;
        let gone = messages.iter().zip(are_back).filter(|(_, is_back)| !is_back);
        Ok(gone.map(|(message, _)| message.clone()).collect())
    }

    /// Acks by receipt text.
    fn ack(&self, py: Python<'_>, receipt: &str) -> PyResult<()> {
        self.0.ack(py, self.parse(py, receipt)?)
    }

    /// Gives back by receipt text.
    #[pyo3(signature = (receipt, delay = 0.0))]
    fn nack(&self, py: Python<'_>, receipt: &str, delay: f64) -> PyResult<()> {
        self.0.nack(py, self.parse(py, receipt)?, delay)
    }

    /// Extends by receipt text.
    fn extend(&self, py: Python<'_>, receipt: &str, seconds: f64) -> PyResult<()> {
        self.0.extend(py, self.parse(py, receipt)?, seconds)
    }

    /// How the message at `offset` stands (`leased`, `delayed`, `ready`, `blocked`) and the receipt
    /// of its lease, if it is out; none: it is done, or was not read yet.
    fn standing(&self, py: Python<'_>, offset: u64) -> PyResult<Option<(&'static str, String)>> {
        self.0.standing(py, offset)
    }

    /// Acks the message at `offset` whether it is out or not, for any consumer. False: there is
    /// nothing to ack, it is done or was not read yet.
    fn ack_at(&self, py: Python<'_>, offset: u64) -> PyResult<bool> {
        self.0.ack_at(py, offset)
    }

    /// Forgets what is out and reads on at `offset`, which must be a message's or the tail.
    fn seek(&self, py: Python<'_>, offset: u64) -> PyResult<()> {
        self.0.seek(py, offset)
    }

    /// Moves the group forward to `offset` if it is behind: what lay before is gone, `unread` of it
    /// before the group had read it.
    #[pyo3(signature = (offset, unread = 0))]
    fn overtake(&self, py: Python<'_>, offset: u64, unread: u64) -> PyResult<bool> {
        let held = self.0.take(py)?;
        let is_behind = self.0.cursor() < offset;
        if is_behind {
            let now = self.0.clock().boot();
            let gone: Vec<u32> = self.0.table.outstanding().collect();
            for index in gone {
                let Some(entry) = self.0.table.entry(index).filter(|entry| entry.offset < offset)
                else {
                    continue;
                };
                // What came back or waits is gone too: a segment that somebody still reads would
                // give it once more, and the cursor would stay with it.
                self.0.write(Kind::Done, &entry, now)?;
                self.0.table.withdraw(index);
                self.0.table.finish(index, now);
                let is_out = entry.state == EntryState::Leased;
                self.0.table.count(at::SKIPPED, u64::from(!is_out));
            }
            let word = self.0.table.map().word64(at::NEXT);
            if word.fetch_max(offset, Ordering::AcqRel) < offset {
                self.0.table.count(at::SKIPPED, unread);
            }
            self.0.table.move_cursor();
            self.0.mirror()?;
        }
        let cursor = self.0.cursor();
        drop(held);
        self.0.control.progressed(cursor);
        if is_behind {
            self.0.control.signal(); // The window may have room again.
        }
        Ok(is_behind)
    }

    /// The lowest unacked offset. Under the lock, as long as there is one: what is handed out
    /// between two looks, or left out of a table that is being made anew, is not done, and
    /// trimming the queue goes by this.
    #[getter]
    fn cursor(&self, py: Python<'_>) -> PyResult<u64> {
        let is_over = self.0.control.life().is_over();
        let _held = if is_over { None } else { Some(self.0.take(py)?) };
        Ok(self.0.cursor())
    }

    /// The next unread offset.
    #[getter]
    fn next(&self) -> u64 {
        self.0.table.wide(at::NEXT)
    }

    /// How long nothing was handed out or acked though the queue goes on to `tail`, as far as those
    /// who asked this could see. By the boot clock: time while the machine was off does not count,
    /// and setting the wall clock changes nothing.
    fn idle_ns(&self, py: Python<'_>, tail: u64) -> PyResult<i64> {
        let _held = self.0.take(py)?;
        Ok(self.0.idle(tail, self.0.clock().boot()))
    }

    /// Seconds until something may be there without a signal: the next deadline, or the time to
    /// look for dead consumers. None: only a signal brings anything.
    fn wake_in(&self) -> Option<f64> {
        let now = self.0.clock().boot();
        let at = self.0.wake_at(now);
        #[allow(clippy::cast_precision_loss, reason = "a timer needs no more than microseconds")]
        (at != NEVER).then(|| (at.saturating_sub(now).max(0) as f64) / 1e9)
    }

    /// Hands nothing out until `resume`, in every process.
    fn pause(&self, py: Python<'_>, paused: bool) -> PyResult<()> {
        let held = self.0.take(py)?;
        let flags = self.0.table.small(at::FLAGS);
        self.0.table.set_small(at::FLAGS, if paused { flags | PAUSED } else { flags & !PAUSED });
        drop(held);
        self.0.control.signal();
        Ok(())
    }

    /// Whether it is paused.
    #[getter]
    fn is_paused(&self) -> bool {
        self.0.is_paused()
    }

    /// Counts since the group was made, and what is out now.
    fn counts(&self, py: Python<'_>) -> PyResult<BTreeMap<&'static str, u64>> {
        // Otherwise a message that changes its state meanwhile would count twice, or not at all.
        let _held = self.0.take(py)?;
        self.0.expire(self.0.clock().boot())?;
        let table = &self.0.table;
        let wide = [
            ("delivered", at::DELIVERED),
            ("acked", at::ACKED),
            ("expired", at::EXPIRED),
            ("dead", at::DEAD),
            ("skipped", at::SKIPPED),
            ("journal_bytes", at::JOURNAL_END),
        ];
        let small = [
            ("leased", at::LEASED),
            ("delayed", at::DELAYED),
            ("blocked", at::BLOCKED),
            ("ready", at::READY_LEN),
        ];
        let wide = wide.iter().map(|(name, at)| (*name, table.wide(*at)));
        let small = small.iter().map(|(name, at)| (*name, u64::from(table.small(*at))));
        Ok(wide.chain(small).collect())
    }

    /// Offsets that are out, held back or waiting, each with its state and how often it went out.
    fn outstanding(&self, py: Python<'_>) -> PyResult<Vec<(u64, &'static str, u32, i64)>> {
        let held = self.0.take(py)?;
        let entries = self.0.table.outstanding().filter_map(|entry| self.0.table.entry(entry));
        let rows = entries
            .map(|entry| (entry.offset, entry.state.name(), entry.receives, entry.deadline))
            .collect();
        drop(held);
        Ok(rows)
    }

    /// Goes on with these options, as far as they may change while the group is open.
    fn adopt(&self, py: Python<'_>, options: Options) -> PyResult<()> {
        self.0.reader(py).filter = options.filter()?;
        self.0.settings.adopt(&options)
    }

    /// Passes over messages that are older than so many seconds; 0: over none.
    fn expire_after(&self, seconds: f64) -> PyResult<()> {
        let expire_ns = seconds_to_ns("seconds", seconds)?;
        self.0.settings.expire_ns.store(expire_ns, Ordering::Relaxed);
        Ok(())
    }

    /// Counts changes of the group's settings file, so that every process reads it again.
    #[getter]
    fn version(&self) -> u32 {
        self.0.table.small(at::VERSION)
    }

    /// The settings file was changed.
    fn bump_version(&self) {
        self.0.table.map().word32(at::VERSION).fetch_add(1, Ordering::AcqRel);
        self.0.control.signal();
    }

    /// The group is about to be deleted or renamed: every handle on it, in every process, is done.
    fn retire(&self, py: Python<'_>) -> PyResult<()> {
        let held = self.0.take(py)?;
        let flags = self.0.table.small(at::FLAGS);
        self.0.table.set_small(at::FLAGS, flags | GONE);
        drop(held);
        self.0.control.signal();
        Ok(())
    }

    /// Whether the group was deleted or renamed.
    #[getter]
    fn is_gone(&self) -> bool {
        self.0.is_gone()
    }

    /// Takes over another group's progress: what it has out, held back or waiting is waiting
    /// here, what it has acked is done here.
    fn copy_from(&self, py: Python<'_>, other: &Self) -> PyResult<()> {
        let held = other.0.take(py)?;
        let table = &other.0.table;
        let entries: Vec<Entry> =
            table.outstanding().filter_map(|entry| table.entry(entry)).collect();
        let next = table.wide(at::NEXT);
        drop(held);
        self.0.seek(py, next)?;
        let held = self.0.take(py)?;
        let now = self.0.clock().boot();
        for mut entry in entries {
            (entry.token, entry.owner, entry.receives) = (0, NONE, 0);
            if entry.state != EntryState::Delayed && entry.state != EntryState::Blocked {
                entry.state = EntryState::Ready;
            }
            self.0.write(Kind::Enter, &entry, now)?;
            self.0.table.enter(&entry)?;
        }
        self.0.table.move_cursor();
        drop(held);
        self.0.control.signal();
        Ok(())
    }

    /// Journals how far reading has got, where no message says so.
    fn journal_next(&self, py: Python<'_>) -> PyResult<()> {
        let held = self.0.take(py)?;
        self.0.journal_next().map_err(|error| errors::os(error, &self.0.folder))?;
        drop(held);
        Ok(())
    }

    /// Where reading goes on by the journal; none where this opener had no reason to read it.
    #[getter]
    fn replayed_next(&self) -> Option<u64> {
        self.0.replayed_next()
    }

    /// The journal and the byte from which on it could not be read, if that was so.
    #[getter]
    fn torn(&self) -> Option<(PathBuf, u64)> {
        self.0.torn.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }

    /// Syncs the journal (and, for groups that ack by getting, the word).
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.0.sync_progress_now(py)
    }

    /// Syncs what was asked for, if that is not done.
    fn sync_progress(&self, py: Python<'_>) -> PyResult<()> {
        let outcome = patiently(py, self.0.control.life(), || self.0.sync_progress())?;
        outcome.map_err(|error| errors::os(error, &self.0.folder))
    }

    /// Whether the journal has records that are not synced.
    #[getter]
    fn is_dirty(&self) -> bool {
        self.0.is_dirty()
    }

    /// Gives back, at once, everything that dead consumers had.
    fn release_dead(&self, py: Python<'_>) -> PyResult<u32> {
        let held = self.0.take(py)?;
        let released = self.0.release_dead(self.0.clock().boot())?;
        drop(held);
        if released > 0 {
            self.0.control.signal();
        }
        Ok(released)
    }

    /// Gives back, at once, everything that this opener has: it is leaving.
    fn give_back(&self, py: Python<'_>) -> PyResult<u32> {
        let held = self.0.take(py)?;
        let is_mine = |owner| owner == self.0.owner;
        let released = self.0.release_leases(|owner| owner != NONE && is_mine(owner))?;
        drop(held);
        if released > 0 {
            self.0.control.signal();
        }
        Ok(released)
    }

    /// Rewrites the journal as a checkpoint.
    fn checkpoint(&self, py: Python<'_>) -> PyResult<()> {
        let held = self.0.take(py)?;
        self.0.checkpoint()?;
        drop(held);
        Ok(())
    }

    /// What `value` of its messages decodes with; set once.
    fn set_codec(&self, codec: Py<PyAny>) {
        let _ = self.0.codec.set(codec);
    }

    /// Ends every wait of this handle.
    fn close(&self, py: Python<'_>) {
        self.0.is_closed.store(true, Ordering::Relaxed);
        self.0.control.signal();
        self.let_go(py, None);
    }
}

impl PyGroup {
    fn parse(&self, py: Python<'_>, text: &str) -> PyResult<Lease> {
        Lease::parse(text)
            .ok_or_else(|| errors::error(py, "ReceiptError", ("this is no receipt of penstock's",)))
    }
}
