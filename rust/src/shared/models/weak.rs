//! The protocol on processors that let a store pass a load (`cargo test --features models`).
//!
//! Each model runs the functions of `protocol` under loom, which tries every schedule of two or
//! three threads up to some number of interruptions, and for each load every store that it may see
//! by the memory model of Rust: also an old one, if nothing orders the two. Bytes that no atomic
//! word holds are words here that are read and written without any order. Wakes and deaths are as
//! in the other models: a wake that gets lost is a deadlock, which loom reports.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering;
use std::time::Duration;

use loom::model::Builder;
use loom::sync::atomic::{self, AtomicU32, AtomicU64};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use crate::shared::protocol::{self, Got, Heard, TailWord, TailWords, Word, World};
use crate::sys::futex::Woken;

const PATIENCE: Duration = Duration::from_millis(1);
/// Times that a schedule takes the processor from a thread which could go on. Two find whatever
/// one thread can do in the middle of what another does, and the other way round.
const INTERRUPTIONS: usize = 2;

/// Tries every schedule.
fn every_schedule(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(INTERRUPTIONS);
    builder.max_branches = 20_000;
    builder.check(model);
}

loom::thread_local! {
    /// Accesses until this thread dies; none: it lives.
    static LEFT: Cell<Option<u32>> = Cell::new(None);
}

struct End;

/// Dies here if its time has come.
fn live_on() {
    let left = LEFT.with(Cell::get);
    if left == Some(0) {
        resume_unwind(Box::new(End));
    }
    LEFT.with(|cell| cell.set(left.map(|left| left - 1)));
}

/// Runs `work`, which dies after `left` accesses; true when it got to its end.
fn until_death(left: Option<u32>, work: impl FnOnce()) -> bool {
    LEFT.with(|cell| cell.set(left));
    let outcome = catch_unwind(AssertUnwindSafe(work));
    LEFT.with(|cell| cell.set(None));
    match outcome {
        Ok(()) => true,
        Err(cause) if cause.is::<End>() => false,
        Err(cause) => resume_unwind(cause),
    }
}

impl Word for AtomicU32 {
    fn load(&self, order: Ordering) -> u32 {
        live_on();
        self.load(order)
    }

    fn exchange(&self, current: u32, new: u32, order: Ordering) -> Result<u32, u32> {
        live_on();
        self.compare_exchange(current, new, order, Ordering::Relaxed)
    }

    fn add(&self, by: u32) -> u32 {
        live_on();
        self.fetch_add(by, Ordering::SeqCst)
    }

    fn after_exchange() {
        atomic::fence(Ordering::SeqCst);
    }
}

/// The kernel: who sleeps on which word, and who is dead. It orders whatever comes before a call
/// of one thread with what comes after a later call of another, as the real one does by its locks.
#[derive(Default)]
struct WeakKernel {
    known: Mutex<Asleep>,
    changed: Condvar,
}

#[derive(Default)]
struct Asleep {
    /// For each sleeper its word, and whether it was woken.
    sleepers: Vec<(usize, bool)>,
    dead: Vec<u32>,
}

impl WeakKernel {
    /// The thread of this name is dead.
    fn bury(&self, name: u32) {
        self.known.lock().expect("whole").dead.push(name);
        self.changed.notify_all();
    }
}

impl World<AtomicU32> for WeakKernel {
    fn wait(&self, word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> Woken {
        live_on();
        let mut known = self.known.lock().expect("whole");
        // The kernel compares with what the word holds, not with what it held once.
        if word.compare_exchange(expected, expected, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            return Woken::Changed;
        }
        let place = known.sleepers.len();
        known.sleepers.push((std::ptr::from_ref(word) as usize, false));
        loop {
            if known.sleepers.get(place).is_some_and(|sleeper| sleeper.1) {
                return Woken::Changed;
            }
            if timeout.is_some() && !known.dead.is_empty() {
                if let Some(sleeper) = known.sleepers.get_mut(place) {
                    sleeper.0 = 0; // Nobody's wake is spent on it any more.
                }
                return Woken::TimedOut;
            }
            known = self.changed.wait(known).expect("whole");
        }
    }

    fn wake(&self, word: &AtomicU32, count: i32) {
        live_on();
        let address = std::ptr::from_ref(word) as usize;
        let mut known = self.known.lock().expect("whole");
        let asleep = known.sleepers.iter_mut().filter(|sleeper| *sleeper == &(address, false));
        for sleeper in asleep.take(usize::try_from(count).expect("positive")) {
            sleeper.1 = true;
        }
        self.changed.notify_all();
    }

    fn wake_idle(&self, word: &AtomicU32) {
        self.wake(word, i32::MAX);
    }

    fn is_alive(&self, name: u32) -> bool {
        !self.known.lock().expect("whole").dead.contains(&name)
    }
}

/// Takes the lock word, as `Life::take` does without its spinning.
fn take(kernel: &WeakKernel, word: &AtomicU32, name: u32) -> Got {
    loop {
        if let Some(got) = protocol::try_take(word, name) {
            return got;
        }
        let seen = protocol::wait_for(kernel, word, PATIENCE);
        if let Some(got) = protocol::take_seen(word, name, &seen) {
            return got;
        }
        thread::yield_now();
    }
}

/// How many accesses a thread may have before it dies, and for ever.
fn fates(most: u32) -> impl Iterator<Item = Option<u32>> {
    (0..most).map(Some).chain([None])
}

/// What is under a lock, without any order of its own.
#[derive(Default)]
struct Turns {
    kernel: WeakKernel,
    lock: AtomicU32,
    inside: AtomicU32,
    turns: AtomicU32,
}

impl Turns {
    fn turn(&self, name: u32) {
        let got = take(&self.kernel, &self.lock, name);
        let before = self.inside.load(Ordering::Relaxed);
        assert!(before == 0 || got == Got::Inherited, "{before} and {name} have it");
        self.inside.store(name, Ordering::Relaxed);
        live_on();
        self.turns.store(self.turns.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        live_on();
        self.inside.store(0, Ordering::Relaxed);
        protocol::give(&self.kernel, &self.lock, name);
    }
}

#[test]
fn who_takes_the_lock_sees_what_was_done_under_it() {
    for fate in fates(6) {
        every_schedule(move || {
            let shared = Arc::new(Turns::default());
            let run = |name: u32, left: Option<u32>| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let lived = until_death(left, || shared.turn(name));
                    if !lived {
                        shared.kernel.bury(name);
                    }
                    lived
                })
            };
            let others = [run(1, fate), run(2, None)];
            shared.turn(3);
            let lived = others.map(|one| one.join().expect("its own"));
            let turns = shared.turns.load(Ordering::Relaxed);
            let least = 1 + lived.iter().filter(|lived| **lived).count();
            assert!((least..=3).contains(&(turns as usize)), "{turns} turns, {least} returned");
        });
    }
}

/// Where a queue ends, as the control block has it.
#[derive(Default)]
struct WeakTail([AtomicU64; 5]);

impl WeakTail {
    fn word(&self, word: TailWord) -> &AtomicU64 {
        self.0.get(word as usize).expect("one for each")
    }
}

impl TailWords for WeakTail {
    fn load(&self, word: TailWord) -> u64 {
        live_on();
        self.word(word).load(Ordering::Acquire)
    }

    fn store(&self, word: TailWord, value: u64) {
        live_on();
        self.word(word).store(value, Ordering::Release);
    }
}

/// A queue of frames that are one byte long: their number from 1 on, or 0.
#[derive(Default)]
struct WeakQueue {
    kernel: WeakKernel,
    lock: AtomicU32,
    end: WeakTail,
    bytes: [AtomicU64; 4],
}

impl WeakQueue {
    fn byte(&self, at: u64) -> &AtomicU64 {
        self.bytes.get(usize::try_from(at).expect("small")).expect("room")
    }

    /// As `Writer::append_locked` does.
    fn put(&self, name: u32) -> u64 {
        take(&self.kernel, &self.lock, name);
        let (tail, number) = self.end.end_and_number();
        if self.end.is_unfinished() {
            let reserved = self.end.unfinished().0;
            self.end.advance(tail, number);
            (tail..reserved).for_each(|at| self.byte(at).store(0, Ordering::Relaxed));
            self.end.reserve_nothing(tail, number);
        }
        assert_eq!(self.byte(tail).load(Ordering::Relaxed), 0, "left behind");
        self.end.reserve(tail + 1, number + 1);
        live_on();
        self.byte(tail).store(number + 1, Ordering::Relaxed);
        self.end.advance(tail + 1, number + 1);
        protocol::give(&self.kernel, &self.lock, name);
        tail
    }

    fn check_below(&self, tail: u64) {
        for at in 0..tail {
            assert_eq!(self.byte(at).load(Ordering::Relaxed), at + 1, "below the tail {tail}");
        }
    }
}

#[test]
fn who_sees_the_tail_sees_what_lies_below_it() {
    for fate in fates(12) {
        every_schedule(move || {
            let queue = Arc::new(WeakQueue::default());
            let putter = {
                let queue = Arc::clone(&queue);
                thread::spawn(move || {
                    let mut returned = None;
                    if !until_death(fate, || returned = Some(queue.put(1))) {
                        queue.kernel.bury(1);
                    }
                    returned
                })
            };
            let reader = {
                let queue = Arc::clone(&queue);
                thread::spawn(move || queue.check_below(queue.end.load(TailWord::Tail)))
            };
            let mine = queue.put(2);
            let other = putter.join().expect("its own");
            reader.join().expect("its own");
            let tail = queue.end.load(TailWord::Tail);
            assert!(mine < tail && other.is_none_or(|other| other < tail && other != mine));
            queue.check_below(tail);
        });
    }
}

#[test]
fn who_waits_for_something_is_woken_by_it() {
    every_schedule(|| {
        let kernel = Arc::new(WeakKernel::default());
        let words: Arc<[AtomicU32; 4]> = Arc::default();
        let consumer = {
            let (kernel, words) = (Arc::clone(&kernel), Arc::clone(&words));
            thread::spawn(move || {
                let [_, ready, waiters, event] = &*words;
                loop {
                    let seen = event.load(Ordering::SeqCst);
                    if ready.load(Ordering::Relaxed) != 0 {
                        return;
                    }
                    protocol::join(waiters);
                    let is_ready = || ready.load(Ordering::Relaxed) != 0;
                    protocol::wait_event(&*kernel, event, seen, None, is_ready);
                    waiters.fetch_sub(1, Ordering::SeqCst);
                }
            })
        };
        let [lock, ready, waiters, event] = &*words;
        take(&kernel, lock, 1);
        ready.store(1, Ordering::Relaxed); // As a lease that was given back.
        protocol::give(&*kernel, lock, 1);
        protocol::wake_waiters(waiters, || protocol::raise(&*kernel, event));
        consumer.join().expect("its own");
    });
}

/// As `Control::progressed` does.
fn progressed(word: &AtomicU64, cursor: u64, signal: impl FnOnce()) {
    AtomicU32::after_exchange();
    let mut wanted = word.load(Ordering::Relaxed);
    while wanted != 0 && cursor >= wanted {
        match word.compare_exchange(wanted, 0, Ordering::SeqCst, Ordering::Relaxed) {
            Ok(_) => return signal(),
            Err(now) => wanted = now,
        }
    }
}

/// As `Shared::want_room` does.
fn want_room(word: &AtomicU64, offset: u64) {
    let lowest = |now: u64| (now == 0 || now > offset).then_some(offset.max(1));
    let _ = word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, lowest);
    AtomicU32::after_exchange();
}

#[test]
fn who_waits_for_room_is_woken_by_progress() {
    every_schedule(|| {
        let kernel = Arc::new(WeakKernel::default());
        let (event, cursor, wanted) =
            (Arc::<AtomicU32>::default(), Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
        let putters = [1, 2].map(|offset| {
            let (kernel, event) = (Arc::clone(&kernel), Arc::clone(&event));
            let (cursor, wanted) = (Arc::clone(&cursor), Arc::clone(&wanted));
            thread::spawn(move || {
                loop {
                    let seen = event.load(Ordering::SeqCst);
                    want_room(&wanted, offset);
                    if cursor.load(Ordering::Acquire) >= offset {
                        return;
                    }
                    kernel.wait(&event, seen, None);
                }
            })
        });
        cursor.fetch_add(2, Ordering::AcqRel);
        progressed(&wanted, 2, || protocol::raise(&*kernel, &*event));
        for one in putters {
            one.join().expect("its own");
        }
    });
}

/// Who syncs what was asked for.
#[derive(Default)]
struct WeakSyncs {
    kernel: WeakKernel,
    lock: AtomicU32,
    dirty: AtomicU32,
    asked: AtomicU32,
    tail: AtomicU64,
    synced: Mutex<u64>,
    moved: Condvar,
    is_over: AtomicU32,
}

impl WeakSyncs {
    fn is_synced(&self, tail: u64) {
        let mut synced = self.synced.lock().expect("whole");
        while *synced < tail {
            synced = self.moved.wait(synced).expect("whole"); // A lost request is a deadlock.
        }
    }

    fn sync(&self, tail: u64) {
        let mut synced = self.synced.lock().expect("whole");
        *synced = tail.max(*synced);
        self.moved.notify_all();
    }

    fn end(&self) {
        self.is_over.store(1, Ordering::SeqCst);
        protocol::raise(&self.kernel, &self.dirty);
    }

    /// As `claim_freely` does: the word moves without the lock.
    fn move_on(&self) -> u64 {
        let next = self.tail.fetch_add(1, Ordering::AcqRel) + 1;
        <AtomicU32 as Word>::after_exchange(); // In `progressed`, which comes first.
        protocol::ask(&self.asked, || protocol::announce(&self.kernel, &self.dirty));
        next
    }

    fn put(&self, name: u32) -> u64 {
        take(&self.kernel, &self.lock, name);
        let tail = self.tail.load(Ordering::Relaxed) + 1;
        self.tail.store(tail, Ordering::Release);
        protocol::ask(&self.asked, || protocol::announce(&self.kernel, &self.dirty));
        protocol::give(&self.kernel, &self.lock, name);
        tail
    }

    /// As `Upkeep` does: a group is looked at whenever anything was asked for.
    fn maintain_group(&self) {
        let mut seen = u32::MAX;
        loop {
            let now = self.dirty.load(Ordering::SeqCst);
            if self.is_over.load(Ordering::SeqCst) != 0 {
                return;
            }
            if now == seen {
                self.kernel.wait(&self.dirty, seen, None);
                continue;
            }
            seen = now;
            protocol::begin_sync(&self.asked);
            let tail = self.tail.load(Ordering::Acquire);
            if tail != *self.synced.lock().expect("whole") {
                self.sync(tail);
            }
        }
    }

    fn maintain_queue(&self, name: u32) {
        let mut heard = Heard { seen: u32::MAX, target: 0 };
        loop {
            let durable = *self.synced.lock().expect("whole");
            let is_asked = heard.listen(
                (&self.dirty, &self.asked),
                || self.tail.load(Ordering::Acquire),
                durable,
            );
            if self.is_over.load(Ordering::SeqCst) != 0 {
                return;
            }
            if !is_asked {
                self.kernel.wait(&self.dirty, heard.seen, None);
                continue;
            }
            take(&self.kernel, &self.lock, name);
            let tail = self.tail.load(Ordering::Relaxed);
            protocol::begin_sync(&self.asked);
            protocol::give(&self.kernel, &self.lock, name);
            self.sync(tail);
        }
    }
}

fn whatever_was_asked_for_is_synced(
    most: u32,
    ask: fn(&WeakSyncs, u32) -> u64,
    maintain: fn(&WeakSyncs),
) {
    for fate in fates(most) {
        every_schedule(move || {
            let shared = Arc::new(WeakSyncs::default());
            let thread = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || maintain(&shared))
            };
            let asker = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    if !until_death(fate, || _ = ask(&shared, 1)) {
                        shared.kernel.bury(1);
                    }
                })
            };
            let mine = ask(&shared, 2);
            shared.is_synced(mine);
            asker.join().expect("its own");
            let mine = ask(&shared, 2);
            shared.is_synced(mine);
            shared.end();
            thread.join().expect("its own");
        });
    }
}

#[test]
fn progress_that_took_no_lock_is_synced() {
    whatever_was_asked_for_is_synced(5, |shared, _| shared.move_on(), WeakSyncs::maintain_group);
}

#[test]
fn what_was_put_is_synced() {
    whatever_was_asked_for_is_synced(9, WeakSyncs::put, |shared| shared.maintain_queue(9));
}

#[test]
fn a_copy_of_what_was_written_over_is_noticed() {
    every_schedule(|| {
        let (head, byte) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
        let lock = Arc::<AtomicU32>::default();
        let kernel = Arc::new(WeakKernel::default());
        let reader = {
            let (head, byte) = (Arc::clone(&head), Arc::clone(&byte));
            thread::spawn(move || {
                let copy = byte.load(Ordering::Relaxed);
                // As `Ring::head` does.
                atomic::fence(Ordering::Acquire);
                assert!(copy == 0 || head.load(Ordering::Acquire) > 0, "of a later lap");
            })
        };
        let writer = {
            let (head, byte) = (Arc::clone(&head), Arc::clone(&byte));
            let (kernel, lock) = (Arc::clone(&kernel), Arc::clone(&lock));
            thread::spawn(move || {
                take(&kernel, &lock, 2);
                if head.load(Ordering::Acquire) > 0 {
                    atomic::fence(Ordering::Release); // As `Segment::room` does.
                    byte.store(1, Ordering::Relaxed);
                }
                protocol::give(&*kernel, &lock, 2);
            })
        };
        take(&kernel, &lock, 1);
        head.store(1, Ordering::Release);
        protocol::give(&*kernel, &lock, 1);
        reader.join().expect("its own");
        writer.join().expect("its own");
    });
}
