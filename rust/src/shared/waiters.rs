//! Sleeping until another process, or another thread, has something to tell.

use std::sync::MutexGuard;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use pyo3::prelude::*;

use crate::shared::control::{Control, Shared, at};
use crate::shared::protocol::{self, Word};
use crate::sys::futex;

impl Control {
    /// Wakes everyone who waits, if anyone does. Call it after the lock was given back: our
    /// stores must be out before the look at `waiters`, or a waiter that looks at them just now
    /// and we could miss each other.
    #[inline]
    pub fn wake(&self) {
        protocol::wake_waiters(self.map().word32(at::WAITERS), || self.signal());
    }

    /// Wakes everyone who waits.
    #[cold]
    pub fn signal(&self) {
        protocol::raise(self.life(), self.event_word());
    }

    /// Sleeps until someone signals, unless someone has since the event word was `seen` or `ready`
    /// already holds. Take `seen` before the look that found nothing to do; `ready` is for what
    /// signals only those who wait.
    pub fn wait(
        &self,
        seen: u32,
        timeout: Option<Duration>,
        ready: impl Fn() -> bool,
    ) -> futex::Woken {
        let woken = match self.join_waiters() {
            true => protocol::wait_event(self.life(), self.event_word(), seen, timeout, ready),
            false => futex::Woken::Changed,
        };
        self.leave_waiters();
        woken
    }

    /// Raised at every signal.
    pub fn event_word(&self) -> &AtomicU32 {
        self.map().word32(at::EVENT)
    }

    fn waiting(&self) -> MutexGuard<'_, u32> {
        self.waiting.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Counts one more thread that wants to be signalled. False: this opener has ended.
    pub fn join_waiters(&self) -> bool {
        if self.life().is_forked() {
            return false; // The count is the parent's, and its lock may be with a thread of it.
        }
        let mut waiting = self.waiting();
        if self.life().is_over() {
            return false;
        }
        *waiting += 1;
        protocol::join(self.map().word32(at::WAITERS));
        true
    }

    /// Counts one thread less, unless the opener's end has already taken it out.
    pub fn leave_waiters(&self) {
        if self.life().is_forked() {
            return;
        }
        let mut waiting = self.waiting();
        if let Some(left) = waiting.checked_sub(1) {
            *waiting = left;
            self.map().word32(at::WAITERS).fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// This opener has ended, and its threads that still wait no longer count: the next opener
    /// counts from 0 if it is alone, and a thread of ours that lowered the count later would hide
    /// others.
    pub(crate) fn forget_waiters(&self) {
        let mut waiting = self.waiting();
        self.map().word32(at::WAITERS).fetch_sub(std::mem::take(&mut *waiting), Ordering::SeqCst);
    }

    /// A group's cursor has moved: wakes the puts that wait for it to get this far, once. Call it
    /// after the exchange that moved it, or that gave the lock back.
    #[inline]
    pub fn progressed(&self, cursor: u64) {
        AtomicU32::after_exchange();
        let word = self.word(at::ROOM_WANTED);
        let mut wanted = word.load(Ordering::Relaxed);
        while wanted != 0 && cursor >= wanted {
            match word.compare_exchange(wanted, 0, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => return self.signal(),
                // Another put asks for less: the one that asked before sleeps on the same word.
                Err(now) => wanted = now,
            }
        }
    }
}

#[pymethods]
impl Shared {
    /// Wakes every waiter in every process.
    fn signal(&self) {
        self.control.signal();
    }

    /// Asks every group's acks for a signal once a cursor reaches `offset`. Look for room after
    /// it, then give the answer to `wait_room`.
    fn want_room(&self, offset: u64) -> u32 {
        let seen = self.control.event_word().load(Ordering::SeqCst);
        let word = self.control.word(at::ROOM_WANTED);
        // Several may wait, each for its own offset: the lowest wakes all, and they ask again.
        let lowest = |now: u64| (now == 0 || now > offset).then_some(offset.max(1));
        let _ = word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, lowest);
        AtomicU32::after_exchange(); // The look at the cursors comes after that.
        seen
    }

    /// Sleeps until a signal came after `seen`; false when `seconds` are over before.
    #[pyo3(signature = (seen, seconds=None))]
    fn wait_room(&self, py: Python<'_>, seen: u32, seconds: Option<f64>) -> PyResult<bool> {
        let limit = seconds.and_then(|s| Duration::try_from_secs_f64(s.max(0.0)).ok());
        let woken = py.detach(|| futex::wait(self.control.event_word(), seen, limit));
        py.check_signals()?;
        Ok(woken != futex::Woken::TimedOut)
    }
}
