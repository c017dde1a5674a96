//! The usual get: nothing comes into question but the next message in the queue.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use pyo3::prelude::*;

use super::Group;
use super::claim::Wish;
use super::reader::{Found, Reader};
use super::receipt::Receipt;
use super::table::{Entry, at};
use crate::clock::Clock;
use crate::errors;
use crate::message::Message;
use crate::read::spot::Spot;
use crate::sys::sigbus;

/// Of a lease of this length nobody minds if it lasts a tenth of a second longer.
const LONG_NS: i64 = 1_000_000_000;

impl Group {
    /// One message by moving the word, without table, lock or list: the usual get of a group
    /// that acks by getting. None: it takes a closer look.
    #[inline]
    pub(super) fn claim_next<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, Message>>> {
        self.ensure_open(py)?;
        let word = self.table.map().word64(at::NEXT);
        let mut reader = self.reader(py);
        let offset = word.load(Ordering::Acquire);
        let found = reader.find_on(&self.control, offset, || self.control.tail());
        if let Some(path) = self.cut_now(&reader) {
            drop(reader);
            return Err(errors::vanished(py, &path));
        }
        let Found::Message { frame, next } = found else { return Ok(None) };
        if !reader.is_usual(offset, frame, next) || !reader.wants(frame) {
            return Ok(None);
        }
        if word.compare_exchange(offset, next, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return Ok(None);
        }
        self.table.count_among_others(at::DELIVERED, 1);
        self.control.progressed(next);
        self.ask_for_sync();
        let Some(message) = self.message_found(py, &mut reader, offset, frame, None) else {
            return Ok(None);
        };
        drop(reader);
        Bound::new(py, message).map(Some)
    }

    #[inline(always)]
    fn cut_now(&self, reader: &Reader) -> Option<PathBuf> {
        if sigbus::hits() == 0 { None } else { self.cut_file(reader) }
    }

    /// The next message of a busy writer, where the reader is at its heels: most often it is there
    /// in a moment. None: it takes a closer look, or a longer wait.
    pub(super) fn claim_soon<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, Message>>> {
        let limit = self.control.tail();
        let is_at_end = || self.table.wide(at::NEXT) >= limit;
        match self.is_plain() && is_at_end() && self.pause_briefly(limit) {
            true => self.claim_next(py),
            false => Ok(None),
        }
    }

    /// A very short spin: most waits between busy processes end within it. True: look again.
    pub(super) fn pause_briefly(&self, limit: u64) -> bool {
        let spin = self.settings.spin_ns.load(Ordering::Relaxed);
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

    /// What the reader has just found, as Python sees it.
    #[inline(always)]
    fn message_found(
        &self,
        py: Python<'_>,
        reader: &mut Reader,
        offset: u64,
        frame: u64,
        receipt: Option<Receipt>,
    ) -> Option<Message> {
        let codec = match self.codec.get() {
            None => OnceLock::new(),
            Some(codec) => OnceLock::from(codec.clone_ref(py)),
        };
        let spot = Spot::found(reader.segment.as_ref()?, frame, &mut reader.view);
        Some(Message { offset: Some(offset), spot, receipt, codec })
    }

    /// One message on a lease, when nothing but the next one in the queue comes into question:
    /// the usual get. None: it takes a closer look.
    #[inline]
    pub(super) fn lease_next<'py>(
        self: &Arc<Self>,
        py: Python<'py>,
        visibility_ns: Option<i64>,
    ) -> PyResult<Option<Bound<'py, Message>>> {
        let (mut reader, held) = self.take_both(py)?;
        let visibility_ns =
            visibility_ns.unwrap_or_else(|| self.settings.visibility_ns.load(Ordering::Relaxed));
        let offset = self.table.wide(at::NEXT);
        if self.is_encumbered(self.lease_times(visibility_ns).0) {
            return Ok(None);
        }
        let found = reader.find_on(&self.control, offset, || self.control.tail());
        if let Some(path) = self.cut_now(&reader) {
            drop(held);
            drop(reader);
            return Err(errors::vanished(py, &path));
        }
        let Found::Message { frame, next } = found else { return Ok(None) };
        if !reader.is_usual(offset, frame, next) || !reader.wants(frame) {
            return Ok(None);
        }
        let wish = Wish { count: 1, visibility_ns, owner: self.owner };
        let mut entry = Entry::read(offset, frame, wish.owner);
        let (entry, token, receives) = self.lease_new(&mut entry, &wish, next)?;
        self.table.count(at::DELIVERED, 1);
        self.checkpoint_if_long()?;
        drop(held);
        let receipt = Receipt { group: Arc::clone(self), entry, token, offset, receives };
        let Some(message) = self.message_found(py, &mut reader, offset, frame, Some(receipt))
        else {
            return Ok(None);
        };
        drop(reader);
        Bound::new(py, message).map(Some)
    }

    /// What time it is and how long a lease lasts. Reading the clock would take longer than all
    /// that is done to the table: a long lease counts from a time that is a little in the past, and
    /// is made so much longer.
    #[inline(always)]
    pub(super) fn lease_times(&self, visibility_ns: i64) -> (i64, i64) {
        match visibility_ns < LONG_NS || self.clock().is_manual() {
            true => (self.clock().boot(), visibility_ns),
            false => (self.clock().boot_lately(), visibility_ns.saturating_add(Clock::LATE_NS)),
        }
    }

    /// Whether something else than the next message may have to be handed out first, or nothing.
    #[inline(always)]
    fn is_encumbered(&self, now: i64) -> bool {
        self.table.small(at::FLAGS) != 0
            || self.table.small(at::READY_LEN) != 0
            || self.table.attention() <= now
            || self.is_time_for_dead(now)
            || self.is_window_full()
            || self.mirror.is_some()
            || self.settings.expire_ns.load(Ordering::Relaxed) != 0
    }
}
