//! The maintenance thread, as long as it needs no Python: it sleeps, and syncs what must be synced.
//!
//! A consumer that is woken needs a processor and the interpreter lock, and a maintenance thread
//! that is at work just then has one or both of them. So it does as little as it can. While the
//! queue is in use, no put wakes it: it looks by itself when an interval is over. Of all processes
//! one syncs the queue, once an interval. And it lets Python have a turn only when there is
//! something that Python does.

use std::ffi::{OsStr, OsString};
use std::io;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Duration;

use pyo3::prelude::*;

use crate::append::Writer;
use crate::append::sync::Synced;
use crate::group::orphans::Unsynced;
use crate::shared::control::Control;
use crate::shared::protocol::Heard;
use crate::sys::{clock, futex};

/// A process that syncs for all, or groups of its own, comes by this part of an interval before
/// the others, which then find that it is done.
const EARLY_PART: i64 = 16;
/// What is due in this part of an interval is done together with what is due now.
const SOON_PART: i64 = 8;

/// What must be synced how often, and what Python wants to do how often.
#[derive(Clone, Copy)]
struct Rhythm {
    interval_ns: i64,
    /// How long it is between two turns of Python's part while the queue is in use.
    pause_ns: i64,
    /// The same while it is not.
    idle_ns: i64,
}

struct UpkeepState {
    heard: Heard,
    /// How often work was asked for by the last turn for it.
    worked: u32,
    /// Everything that was put before is durable: by the boot clock, as all times here.
    synced_at: i64,
    /// Everything that was acked in groups of ours before is.
    groups_at: i64,
    /// When the groups of others are to be looked at.
    look_at: i64,
    /// Python had its turn.
    turn_at: i64,
    /// Something was asked for since then.
    owes_turn: bool,
    /// Where the last segment began then.
    base: u64,
    /// It looks when an interval is over; else it sleeps until something is asked for.
    is_awake: bool,
    /// The last sync was ours.
    leads: bool,
}

/// Why Python has a turn.
enum Turn {
    /// Something is to be done at once.
    Work,
    /// It is time, or something is not ours to do; these groups nobody else syncs.
    Duties(Vec<OsString>),
}

/// The native part of one queue's maintenance thread.
#[pyclass(frozen, module = "penstock._core")]
pub struct Upkeep {
    writer: Py<Writer>,
    /// Whether anything is synced here.
    syncs: bool,
    state: Mutex<UpkeepState>,
    /// Groups of others.
    unsynced: Mutex<Unsynced>,
}

#[pymethods]
impl Upkeep {
    #[new]
    fn new(writer: Py<Writer>, syncs: bool) -> Self {
        let control = &writer.get().control;
        let unsynced = Unsynced::new(control.folder().join("groups"), control.boot());
        let word = control.dirty_word().load(Ordering::SeqCst);
        let state = UpkeepState::new(word, writer.get().work(), clock::boot_ns());
        let (state, unsynced) = (Mutex::new(state), Mutex::new(unsynced));
        Self { writer, syncs, state, unsynced }
    }

    /// Sleeps and syncs until Python has something to do. False: what was asked for at once. True:
    /// all its duties, which come up to every `pause` seconds while the queue is in use, and else
    /// every `idle` seconds; with the names of groups that nobody else syncs.
    fn wait(
        &self,
        py: Python<'_>,
        interval: f64,
        pause: f64,
        idle: f64,
    ) -> PyResult<(bool, Vec<OsString>)> {
        let control = &*self.writer.get().control;
        let of = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or_default();
        let ns = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        let (interval_ns, pause_ns) = (ns(of(interval)), ns(of(pause)));
        let rhythm = Rhythm { interval_ns, pause_ns, idle_ns: ns(of(idle)) };
        let turn = py.detach(|| {
            let mut state = self.state.lock().unwrap_or_else(|e| e.into_inner());
            self.run(&mut state, rhythm)
        });
        if control.life().is_over() {
            return Err(control.closed(py));
        }
        Ok(match turn {
            Turn::Work => (false, Vec::new()),
            Turn::Duties(names) => (true, names),
        })
    }

    /// Looks at the groups that this opener does not have open: the names of those that were not
    /// synced since the last look.
    fn stuck_groups(&self) -> PyResult<Vec<OsString>> {
        Ok(self.look_for_stuck()?)
    }
}

impl Upkeep {
    fn run(&self, state: &mut UpkeepState, rhythm: Rhythm) -> Turn {
        let writer = self.writer.get();
        let (control, dirty) = (&*writer.control, writer.control.dirty_word());
        loop {
            if !state.is_awake {
                // No wake finds who sleeps on a control block that is cut short: so short naps.
                let nap = control.life().door().times().longest_sleep_ns;
                let nap = Duration::from_nanos(nap.min(rhythm.idle_ns.unsigned_abs()));
                let woken = futex::wait(dirty, state.heard.seen, Some(nap));
                let is_called = writer.work() != state.worked || control.life().is_over();
                if woken == futex::Woken::TimedOut && !is_called {
                    if state.turn_at.saturating_add(rhythm.idle_ns) > clock::boot_ns() {
                        continue;
                    }
                    return state.turn(control, Vec::new());
                }
                let now = clock::boot_ns();
                (state.is_awake, state.synced_at, state.groups_at) = (true, now, now);
            }
            let word = dirty.load(Ordering::SeqCst);
            // Read after the word, which is raised after the count.
            let work = writer.work();
            if work != state.worked || control.life().is_over() {
                state.worked = work;
                return Turn::Work;
            }
            let now = clock::boot_ns();
            let has_groups = control.has_parts();
            let due_at = state.due_at(control.durable_at(now), has_groups, rhythm.interval_ns);
            let left = due_at.saturating_sub(now);
            if left > 0 {
                futex::wait_until_due(dirty, word, Duration::from_nanos(left.unsigned_abs()));
                continue;
            }
            if !self.listen(&mut state.heard) {
                if state.owes_turn {
                    return state.turn(control, Vec::new());
                }
                state.is_awake = false;
                continue;
            }
            state.owes_turn = true;
            let done = if self.syncs { self.sync(state, rhythm) } else { Ok(None) };
            let now = clock::boot_ns();
            let is_turn = now.saturating_sub(state.turn_at) >= rhythm.pause_ns
                || control.segment_base() != state.base;
            match done {
                Ok(Some(names)) if names.is_empty() && !is_turn => {}
                Ok(Some(names)) => return state.turn(control, names),
                Ok(None) | Err(_) => {
                    // Whatever it is, it is not tried again before the interval is over.
                    (state.synced_at, state.groups_at, state.look_at) = (now, now, now);
                    if is_turn || self.syncs {
                        return state.turn(control, Vec::new()); // Python says what is wrong.
                    }
                }
            }
        }
    }

    /// Whether something was asked for since the last look, or is not durable yet.
    fn listen(&self, heard: &mut Heard) -> bool {
        let control = &*self.writer.get().control;
        if self.syncs {
            let is_any = self.unsynced.lock().unwrap_or_else(|e| e.into_inner()).is_any();
            return control.listen(heard) || is_any;
        }
        let before = heard.seen;
        heard.seen = control.dirty_word().load(Ordering::SeqCst);
        heard.seen != before
    }

    /// Syncs what was asked for, and what will be soon. None: that is Python's.
    fn sync(&self, state: &mut UpkeepState, rhythm: Rhythm) -> io::Result<Option<Vec<OsString>>> {
        let (writer, now) = (self.writer.get(), clock::boot_ns());
        let control = &*writer.control;
        if control.is_poisoned() {
            return Ok(None);
        }
        let soon_ns = rhythm.interval_ns / SOON_PART;
        let is_due = |since: i64| now.saturating_sub(since) >= rhythm.interval_ns - soon_ns;
        let mut is_others = false;
        if is_due(state.synced_at.max(control.durable_at(now))) {
            if control.durable() < state.heard.target {
                match writer.sync_last(state.heard.target)? {
                    Some(Synced::Done) => state.leads = true,
                    // The process that has synced meanwhile has said when it began, and so when we
                    // come again.
                    Some(_) => (state.leads, is_others) = (false, true),
                    None => return Ok(None),
                }
            } else {
                (state.synced_at, state.leads) = (now, false);
                if control.is_sync_asked() {
                    control.forget_request()?;
                }
            }
        }
        if is_due(state.groups_at) {
            control.parts().iter().try_for_each(|part| part.sync_progress())?;
            state.groups_at = now;
        }
        if now < state.look_at.saturating_sub(soon_ns) {
            return Ok(Some(Vec::new()));
        }
        // The process that has just synced the queue syncs its groups next: they are not stuck.
        let wait_ns = if is_others { rhythm.interval_ns / EARLY_PART } else { rhythm.interval_ns };
        state.look_at = now.saturating_add(wait_ns);
        if is_others { Ok(Some(Vec::new())) } else { self.look_for_stuck().map(Some) }
    }

    fn look_for_stuck(&self) -> io::Result<Vec<OsString>> {
        let control = &*self.writer.get().control;
        let parts = control.parts();
        let is_ours = |name: &OsStr| parts.iter().any(|part| part.name() == Some(name));
        let mut unsynced = self.unsynced.lock().unwrap_or_else(|e| e.into_inner());
        unsynced.look(is_ours, |name| control.life().is_alive(name))
    }
}

impl UpkeepState {
    fn new(word: u32, worked: u32, now: i64) -> Self {
        Self {
            // A process may have asked for a sync, and died before anyone heard of it.
            heard: Heard { seen: word.wrapping_sub(1), target: 0 },
            worked,
            synced_at: now,
            groups_at: now,
            look_at: now,
            turn_at: now,
            owes_turn: true,
            base: u64::MAX,
            is_awake: true,
            leads: false,
        }
    }

    /// When something must be synced; another's sync that began at `durable_at` counts as ours.
    fn due_at(&self, durable_at: i64, has_groups: bool, interval_ns: i64) -> i64 {
        let early_ns = interval_ns / EARLY_PART;
        let synced_at = self.synced_at.max(durable_at);
        let queue = synced_at.saturating_sub(if self.leads { early_ns } else { 0 });
        let groups = if has_groups { self.groups_at.saturating_sub(early_ns) } else { queue };
        queue.min(groups).saturating_add(interval_ns)
    }

    fn turn(&mut self, control: &Control, names: Vec<OsString>) -> Turn {
        (self.turn_at, self.owes_turn) = (clock::boot_ns(), false);
        self.base = control.segment_base();
        Turn::Duties(names)
    }
}

#[cfg(test)]
mod tests {
    use super::UpkeepState;

    const INTERVAL: i64 = 1_600;

    fn synced_at(now: i64, leads: bool) -> UpkeepState {
        UpkeepState { leads, ..UpkeepState::new(0, 0, now) }
    }

    #[test]
    fn a_sync_of_anothers_puts_ours_off_by_an_interval() {
        assert_eq!(synced_at(0, false).due_at(0, false, INTERVAL), 1_600);
        assert_eq!(synced_at(0, false).due_at(900, false, INTERVAL), 2_500);
    }

    #[test]
    fn who_synced_last_comes_before_the_others() {
        let (leader, other) = (synced_at(500, true), synced_at(0, false));
        let due = [leader, other].map(|one| one.due_at(500, false, INTERVAL));
        assert_eq!(due, [2_000, 2_100]);
    }

    #[test]
    fn our_groups_are_synced_within_an_interval_whoever_syncs_the_queue() {
        assert_eq!(synced_at(0, false).due_at(900, true, INTERVAL), 1_500);
    }
}
