//! Making things durable: one sync for everyone who waits for it.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use pyo3::prelude::*;

use crate::append::Writer;
use crate::errors;
use crate::files::region;
use crate::segment::publish::Batch;
use crate::segment::{PySegment, Segment};
use crate::shared::control::at;
use crate::shared::lock::Hindrance;
use crate::shared::protocol::TailWords;
use crate::shared::retry_limit::RetryLimit;
use crate::sys::clock;
use crate::sys::futex;

/// How many segments a sync holds open.
const OPEN_AT_ONCE: usize = 8;

impl Writer {
    /// Syncs `segments`, which hold everything from `durable` to the tail as it is now. With the
    /// sync lock held and without the interpreter lock. False: someone has begun another segment
    /// since the list was made, and the tail is in that one.
    fn sync_segments(&self, segments: &[Arc<Segment>]) -> std::io::Result<bool> {
        let (control, begun_ns) = (&*self.control, clock::boot_ns());
        // Under the append lock tail and number belong together: nobody has stored only one of
        // them.
        let held = control.life().hold(control.lock_word())?;
        let (tail, next_number) = control.end_and_number();
        let is_last = segments
            .last()
            .is_some_and(|last| last.base() == control.segment_base() && !last.is_stale());
        if is_last {
            control.begin_sync();
        }
        drop(held);
        if !is_last {
            return Ok(false);
        }
        let begun = Instant::now();
        control.check_named()?;
        if let Some(map) = segments.last().and_then(|last| last.map()) {
            region::check_named(map.file()?)?;
        }
        for segment in segments {
            if segment.map().is_none() {
                continue;
            }
            if segment.is_cut() || segment.lacks(segment.end().min(tail))? {
                return Err(std::io::Error::from_raw_os_error(libc::ENODATA));
            }
            self.ahead.let_go(segment);
            segment.sync(false)?;
            control.sync_name(segment.base(), segment.path())?;
        }
        if let (true, Some(last)) = (self.publish.is_word(), segments.last()) {
            let now_ns = self.now();
            let batch = Batch { first: tail, end: tail, first_word: 0, next_number, now_ns };
            self.reveal(last, &batch)?;
            self.publish.synced(last, &batch)?;
        }
        control.set_durable(tail);
        control.set_durable_at(begun_ns);
        self.pace.note(begun.elapsed(), next_number);
        control.wake();
        Ok(true)
    }

    /// Publishes what was synced, where a put leaves that to its sync. The put may be one of
    /// another opening, which finds nothing left to sync. Meanwhile others may have appended behind
    /// it, published that, or begun another segment: the append lock is held to know how far they
    /// are.
    fn reveal(&self, last: &Segment, batch: &Batch) -> std::io::Result<()> {
        let control = &*self.control;
        let _held = control.life().hold(control.lock_word())?;
        let is_tail = control.segment_base() == last.base() && control.tail() == batch.end;
        if last.is_stale() {
            Ok(()) // The process that replaced the file has stored the end in the new one.
        } else if is_tail && !control.is_unfinished() {
            control.publish_end(batch.end, || self.publish.publish(last, batch).map(|()| true))
        } else {
            control.publish_end(batch.end, || self.publish.publish_behind(last, batch))
        }
    }

    /// The newest segments between `durable` and the tail. There may be thousands, and no process
    /// may open as many files: the older ones, which are full, are synced as they come, and need
    /// no other sync below `reached`.
    fn unsynced(
        &self,
        py: Python<'_>,
        reached: &mut u64,
    ) -> PyResult<std::io::Result<Vec<Arc<Segment>>>> {
        let current = self.current(py)?;
        let control = &*self.control;
        let is_only = control.durable() >= current.first() && !current.is_stale();
        if current.base() == control.segment_base() && is_only {
            return Ok(Ok(vec![current]));
        }
        let start = control.durable().max(*reached);
        let segments = self.host.call_method1(py, "unsynced_segments", (start,))?;
        let mut newest = VecDeque::<Arc<Segment>>::new();
        for one in segments.bind(py).try_iter()? {
            newest.push_back(Arc::clone(&one?.cast::<PySegment>()?.get().0));
            let oldest = if newest.len() > OPEN_AT_ONCE { newest.pop_front() } else { None };
            let (Some(oldest), Some(after)) = (oldest, newest.front()) else { continue };
            if oldest.map().is_some() {
                if let Err(error) = py.detach(|| control.sync(|| oldest.sync(false))) {
                    return Ok(Err(error));
                }
            }
            // Not beyond the next one's beginning: that one may be empty and end there, and its
            // header must be synced.
            *reached = oldest.end().min(after.base());
        }
        Ok(Ok(newest.into()))
    }

    /// Returns once everything below `offset` is on the disk. The first thread that comes syncs for
    /// all that wait by then.
    pub fn sync_up_to(&self, py: Python<'_>, offset: u64) -> PyResult<()> {
        let control = &*self.control;
        let (mut reached, mut in_vain) = (0, RetryLimit::default());
        loop {
            control.check_file(py)?;
            let durable = control.durable();
            if durable >= offset {
                return self.check_durable(py, durable);
            }
            if control.is_poisoned() {
                return Err(control.poisoned(py));
            }
            let (segments, path) = match self.unsynced(py, &mut reached)? {
                Ok(some) => {
                    let path = some.last().map(|last| last.path().to_path_buf());
                    (Ok(some), path.unwrap_or_default())
                }
                Err(error) => (Err(error), control.folder().to_path_buf()),
            };
            // Segments that nobody else holds are unmapped in there, too: that may take long.
            let synced =
                segments.and_then(|some| py.detach(move || self.sync_or_wait(&some, offset)));
            match synced.as_ref().map_err(Hindrance::of) {
                Ok(Synced::Done) => {}
                Ok(Synced::Moved) => {
                    in_vain.again(py, || control.file_path(), control.segment_base())?;
                    py.check_signals()?;
                }
                Ok(Synced::Waited) | Err(Some(Hindrance::Busy)) => {
                    py.check_signals()?;
                }
                Err(Some(Hindrance::Over)) => return Err(control.closed(py)),
                Err(None) => return Err(self.failed(py, synced.err(), &path)),
            }
        }
    }

    /// Notes that a sync has failed, for this reason.
    fn failed(&self, py: Python<'_>, error: Option<std::io::Error>, path: &Path) -> PyErr {
        let poisoned = self.control.poisoned(py);
        poisoned.set_cause(py, error.map(|error| errors::os(error, path)));
        poisoned
    }

    /// An error if the control block says that more was synced than there is.
    fn check_durable(&self, py: Python<'_>, durable: u64) -> PyResult<()> {
        let (control, tail) = (&*self.control, self.control.tail());
        if durable <= tail {
            return Ok(());
        }
        let (found, expected) = (format!("durable {durable}"), format!("at most the tail, {tail}"));
        Err(errors::corrupt(py, &control.file_path(), at::DURABLE, &found, &expected))
    }

    /// A sync of the segment that this process knows as the last one, or a wait for that of others,
    /// without the interpreter lock. None: older ones must be synced too, or there is a newer one,
    /// which Python finds.
    pub fn sync_last(&self, offset: u64) -> std::io::Result<Option<Synced>> {
        let control = &*self.control;
        let last = Arc::clone(&self.state.lock().unwrap_or_else(|e| e.into_inner()).segment);
        let is_only = control.durable() >= last.first() && !last.is_stale();
        if last.base() != control.segment_base() || !is_only {
            return Ok(None);
        }
        self.sync_or_wait(&[last], offset).map(Some)
    }

    /// Something is to be done at once, by the threads of this opener: to prepare the next segment.
    /// The word wakes those of other processes, too, who then sleep on.
    #[cold]
    pub(super) fn ask_for_work(&self) {
        self.work.fetch_add(1, Ordering::SeqCst);
        self.control.wake_maintenance();
    }

    /// How often that was asked for.
    pub fn work(&self) -> u32 {
        self.work.load(Ordering::SeqCst)
    }

    /// One sync, or a wait for those of others. Needs no interpreter lock: a neighbour in a long
    /// call must not keep others from their sync, and who syncs next begins before those whom the
    /// last sync let go have had their turns with that lock.
    fn sync_or_wait(&self, segments: &[Arc<Segment>], offset: u64) -> std::io::Result<Synced> {
        let control = &*self.control;
        // A sync that has failed is not tried again.
        let is_needless = || control.durable() >= offset || control.is_poisoned();
        let Some(_turn) = control.sync_turns().come(is_needless)? else {
            return Ok(Synced::Waited);
        };
        if self.is_always {
            self.pace.gather(|| control.next_number());
        }
        let mut is_done = false;
        control.sync(|| {
            is_done = self.sync_segments(segments)?;
            Ok(())
        })?;
        Ok(if is_done { Synced::Done } else { Synced::Moved })
    }
}

/// What came of a sync.
pub enum Synced {
    /// It is done.
    Done,
    /// Someone has begun another segment.
    Moved,
    /// Others synced, or one of them still does: the caller looks how far they are.
    Waited,
}

#[pymethods]
impl Writer {
    /// Syncs everything put so far.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        let control = &*self.control;
        for _ in 0..2 {
            self.sync_up_to(py, control.tail())?;
            if !control.is_sync_asked() {
                break;
            }
            // Someone asked and it was synced without us: asked for is what comes from now on. If
            // more has come meanwhile, those who put it may have taken that for theirs.
            let _held = control.hold(py)?;
            if control.durable() >= control.tail() {
                control.begin_sync();
                break;
            }
        }
        Ok(())
    }

    /// Sleeps until this opener's maintenance threads are asked to do something at once that was
    /// not asked before, or `seconds` are over. Answers a count to be given back as `seen`.
    fn wait_work(&self, py: Python<'_>, seen: u32, seconds: f64) -> u32 {
        let timeout = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        py.detach(|| {
            let begun = Instant::now();
            let times = self.control.life().door().times();
            let nap = Duration::from_nanos(times.longest_sleep_ns);
            loop {
                // The word comes first: one who asks raises it after the count.
                let word = self.control.dirty_word().load(Ordering::SeqCst);
                let left = timeout.saturating_sub(begun.elapsed());
                if self.work() != seen || left.is_zero() || self.is_over() {
                    return self.work();
                }
                futex::wait_until_due(self.control.dirty_word(), word, left.min(nap));
            }
        })
    }

    /// Asks this opener's maintenance threads to look at once.
    fn poke(&self) {
        self.ask_for_work();
    }
}
