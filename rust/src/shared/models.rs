//! The protocol under a scheduler that tries its interleavings (`cargo test --features models`).
//!
//! Each model runs the functions of `protocol`, with words whose every access is a point where
//! another thread may go on, and where the thread itself may die: whatever it holds stays as it is,
//! as when a process is killed. Nobody's sleep ends by time, except beside a dead holder; so a wake
//! that gets lost is a deadlock, which the scheduler reports. Memory that other processors see in
//! another order is in `weak`.

mod weak;

use std::cell::Cell;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering;
use std::time::Duration;

use shuttle::rand::Rng;
use shuttle::sync::atomic::{AtomicU32, AtomicU64};
use shuttle::sync::{Arc, Condvar, Mutex};
use shuttle::thread;

use super::protocol::{self, Coming, Got, Heard, TailWord, TailWords, Word, World, come};
use crate::sys::futex::Woken;

/// Schedules of each kind that a model is tried with.
pub const ROUNDS: usize = 3_000;
const PATIENCE: Duration = Duration::from_millis(1);

shuttle::thread_local! {
    /// Accesses until this thread dies; none: it lives.
    static LEFT: Cell<Option<u32>> = Cell::new(None);
}

struct Death;

/// Dies here if its time has come.
pub fn live_on() {
    let is_over = LEFT.with(|left| match left.get() {
        Some(0) => true,
        Some(more) => {
            left.set(Some(more - 1));
            false
        }
        None => false,
    });
    if is_over {
        resume_unwind(Box::new(Death));
    }
}

/// Runs `work`, which dies after `left` accesses; true when it got to its end.
pub fn until_death(left: Option<u32>, work: impl FnOnce()) -> bool {
    LEFT.with(|cell| cell.set(left));
    let outcome = catch_unwind(AssertUnwindSafe(work));
    LEFT.with(|cell| cell.set(None));
    match outcome {
        Ok(()) => true,
        Err(cause) if cause.is::<Death>() => false,
        Err(cause) => resume_unwind(cause),
    }
}

/// A word whose every access the scheduler decides about.
#[derive(Default)]
pub struct SharedWords(AtomicU32);

impl SharedWords {
    /// Stores it.
    pub fn store(&self, value: u32, order: Ordering) {
        live_on();
        self.0.store(value, order);
    }
}

impl Word for SharedWords {
    fn load(&self, order: Ordering) -> u32 {
        live_on();
        self.0.load(order)
    }

    fn exchange(&self, current: u32, new: u32, order: Ordering) -> Result<u32, u32> {
        live_on();
        self.0.compare_exchange(current, new, order, Ordering::Relaxed)
    }

    fn add(&self, by: u32) -> u32 {
        live_on();
        self.0.fetch_add(by, Ordering::SeqCst)
    }

    fn after_exchange() {} // All threads see all stores in one order here.
}

/// The kernel: who sleeps on which word, and who is dead.
#[derive(Default)]
pub struct Kernel {
    /// For each sleeper its word, and whether it was woken.
    sleepers: Mutex<Vec<(usize, bool)>>,
    changed: Condvar,
    dead: Mutex<HashSet<u32>>,
}

impl Kernel {
    /// The thread of this name is dead.
    pub fn bury(&self, name: u32) {
        self.dead.lock().expect("whole").insert(name);
        // Under the other lock: a sleeper is either before its look at the dead, or hears this.
        let sleepers = self.sleepers.lock().expect("whole");
        self.changed.notify_all();
        drop(sleepers);
    }

    fn has_dead(&self) -> bool {
        !self.dead.lock().expect("whole").is_empty()
    }
}

impl World<SharedWords> for Kernel {
    fn wait(&self, word: &SharedWords, expected: u32, timeout: Option<Duration>) -> Woken {
        live_on();
        let address = std::ptr::from_ref(word) as usize;
        let mut sleepers = self.sleepers.lock().expect("whole");
        if word.0.load(Ordering::SeqCst) != expected {
            return Woken::Changed;
        }
        if timeout.is_some() && shuttle::rand::thread_rng().gen_range(0..8) == 0 {
            return Woken::Interrupted;
        }
        let place = sleepers.len();
        sleepers.push((address, false));
        loop {
            if sleepers.get(place).is_some_and(|sleeper| sleeper.1) {
                return Woken::Changed;
            }
            if timeout.is_some() && self.has_dead() {
                if let Some(sleeper) = sleepers.get_mut(place) {
                    sleeper.0 = 0; // Nobody's wake is spent on it any more.
                }
                return Woken::TimedOut;
            }
            sleepers = self.changed.wait(sleepers).expect("whole");
        }
    }

    fn wake(&self, word: &SharedWords, count: i32) {
        live_on();
        let address = std::ptr::from_ref(word) as usize;
        let mut sleepers = self.sleepers.lock().expect("whole");
        let asleep = sleepers.iter_mut().filter(|sleeper| *sleeper == &(address, false));
        for sleeper in asleep.take(usize::try_from(count).expect("positive")) {
            sleeper.1 = true;
        }
        self.changed.notify_all();
    }

    fn wake_idle(&self, word: &SharedWords) {
        self.wake(word, i32::MAX);
    }

    fn is_alive(&self, name: u32) -> bool {
        !self.dead.lock().expect("whole").contains(&name)
    }
}

/// Takes the lock word, as `Life::take` does without its spinning.
pub fn take(kernel: &Kernel, word: &SharedWords, name: u32) -> Got {
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

/// Some number of accesses after which a thread dies, or none.
pub fn fate() -> Option<u32> {
    let mut random = shuttle::rand::thread_rng();
    random.gen_bool(0.7).then(|| random.gen_range(0..20))
}

#[test]
fn one_at_a_time_holds_the_lock_and_the_next_one_knows_of_a_death() {
    let model = || {
        let kernel = Arc::new(Kernel::default());
        let (word, inside) = (Arc::new(SharedWords::default()), Arc::new(AtomicU32::new(0)));
        let run = |name: u32, left: Option<u32>| {
            let (kernel, word, inside) = (kernel.clone(), word.clone(), inside.clone());
            thread::spawn(move || {
                let lived = until_death(left, || {
                    for _ in 0..2 {
                        let got = take(&kernel, &word, name);
                        let before = inside.swap(name, Ordering::SeqCst);
                        let is_left_behind = before != 0 && !kernel.is_alive(before);
                        assert!(before == 0 || is_left_behind, "{before} and {name} have it");
                        assert!(!is_left_behind || got == Got::Inherited, "nobody said so");
                        live_on();
                        assert_eq!(inside.swap(0, Ordering::SeqCst), name);
                        protocol::give(&*kernel, &word, name);
                    }
                });
                if !lived {
                    kernel.bury(name);
                }
            })
        };
        let threads = [run(1, fate()), run(2, None), run(3, None)];
        for one in threads {
            one.join().expect("its own assertions hold");
        }
        let left = protocol::holder_of(word.0.load(Ordering::SeqCst));
        assert!(left == 0 || !kernel.is_alive(left));
    };
    shuttle::check_random(model, ROUNDS);
    shuttle::check_pct(model, ROUNDS, 3);
}

/// What processes share about syncs.
#[derive(Default)]
struct SmallQueue {
    kernel: Kernel,
    lock: SharedWords,
    sync_lock: SharedWords,
    tail: SharedWords,
    asked: SharedWords,
    dirty: SharedWords,
    durable: Mutex<u64>,
    moved: Condvar,
}

impl SmallQueue {
    fn put(&self, name: u32) -> u64 {
        take(&self.kernel, &self.lock, name);
        let end = self.tail.add(1) + 1;
        protocol::ask(&self.asked, || protocol::announce(&self.kernel, &self.dirty));
        protocol::give(&self.kernel, &self.lock, name);
        u64::from(end)
    }

    fn durable(&self) -> u64 {
        *self.durable.lock().expect("whole")
    }

    /// As `Writer::sync_segments` does.
    fn sync(&self, name: u32) {
        take(&self.kernel, &self.sync_lock, name);
        take(&self.kernel, &self.lock, name);
        let end = self.tail.load(Ordering::SeqCst);
        protocol::begin_sync(&self.asked);
        protocol::give(&self.kernel, &self.lock, name);
        live_on(); // The sync itself.
        let mut durable = self.durable.lock().expect("whole");
        *durable = u64::from(end).max(*durable);
        self.moved.notify_all();
        drop(durable);
        protocol::give(&self.kernel, &self.sync_lock, name);
    }

    /// As `Upkeep` does. An interval is over whenever the scheduler says so.
    fn maintain(&self, name: u32) {
        let mut heard = Heard { seen: u32::MAX, target: 0 };
        while heard.seen < u32::MAX / 2 || heard.seen == u32::MAX {
            thread::yield_now();
            let words = (&self.dirty, &self.asked);
            let tail = || u64::from(self.tail.load(Ordering::Acquire));
            if !heard.listen(words, tail, self.durable()) {
                self.kernel.wait(&self.dirty, heard.seen, None);
            } else if self.durable() < heard.target {
                self.sync(name);
            }
        }
    }
}

#[test]
fn what_a_put_returned_for_is_synced_by_a_maintenance_thread_that_lives() {
    let model = || {
        let queue = Arc::new(SmallQueue::default());
        let put = |name: u32, left: Option<u32>| {
            let queue = queue.clone();
            thread::spawn(move || {
                let mut returned = 0;
                let lived = until_death(left, || {
                    for _ in 0..2 {
                        returned = queue.put(name);
                    }
                });
                if !lived {
                    queue.kernel.bury(name);
                }
                returned
            })
        };
        let maintain = |name: u32, left: Option<u32>| {
            let queue = queue.clone();
            thread::spawn(move || {
                if !until_death(left, || queue.maintain(name)) {
                    queue.kernel.bury(name);
                }
            })
        };
        let maintenance = [maintain(8, fate()), maintain(9, None)];
        let threads = [put(1, fate()), put(2, None)];
        let returned = threads.map(|one| one.join().expect("its own")).into_iter().max();
        let mut synced = queue.durable.lock().expect("whole");
        while Some(*synced) < returned {
            synced = queue.moved.wait(synced).expect("whole"); // A lost request is a deadlock.
        }
        drop(synced);
        queue.dirty.0.store(u32::MAX / 2, Ordering::SeqCst); // Enough: they go home.
        protocol::raise(&queue.kernel, &queue.dirty);
        for one in maintenance {
            one.join().expect("its own");
        }
    };
    shuttle::check_random(model, ROUNDS);
    shuttle::check_pct(model, ROUNDS, 3);
}

#[test]
fn one_syncs_for_all_and_nobody_sleeps_through_the_end_of_a_turn() {
    let model = || {
        let kernel = Arc::new(Kernel::default());
        let [lock, ended, done, synced] = [(); 4].map(|()| Arc::new(SharedWords::default()));
        let run = |name: u32, left: Option<u32>| {
            let (kernel, lock, ended) = (kernel.clone(), lock.clone(), ended.clone());
            let (done, synced) = (done.clone(), synced.clone());
            thread::spawn(move || {
                let lived = until_death(left, || {
                    for _ in 0..2 {
                        let ours = done.add(1) + 1;
                        let is_done = || synced.load(Ordering::Acquire) >= ours;
                        loop {
                            match come(&*kernel, &*lock, &*ended, name, PATIENCE, &is_done) {
                                Coming::Needless => break,
                                Coming::Ended | Coming::Waited => thread::yield_now(),
                                Coming::Taken => {
                                    synced.store(done.load(Ordering::Acquire), Ordering::Release);
                                    protocol::end_turn(&*kernel, &*lock, &*ended, name);
                                }
                            }
                        }
                    }
                });
                if !lived {
                    kernel.bury(name);
                }
            })
        };
        // A turn that nobody hears of the end of is a deadlock.
        for one in [run(1, None), run(2, fate()), run(3, None)] {
            one.join().expect("its own");
        }
    };
    shuttle::check_random(model, ROUNDS);
    shuttle::check_pct(model, ROUNDS, 3);
}

#[test]
fn whoever_waits_for_a_message_is_woken_by_it() {
    let model = || {
        let kernel = Arc::new(Kernel::default());
        let [lock, tail, waiters, event] = [(); 4].map(|()| Arc::new(SharedWords::default()));
        let consumers = [(); 2].map(|()| {
            let (kernel, tail) = (kernel.clone(), tail.clone());
            let (waiters, event) = (waiters.clone(), event.clone());
            thread::spawn(move || {
                loop {
                    let seen = event.load(Ordering::SeqCst);
                    if tail.load(Ordering::Acquire) == 2 {
                        return;
                    }
                    waiters.add(1);
                    let is_ready = || tail.load(Ordering::Acquire) == 2;
                    protocol::wait_event(&*kernel, &*event, seen, None, is_ready);
                    waiters.add(u32::MAX);
                }
            })
        });
        let producers = [1, 2].map(|name| {
            let (kernel, lock, tail) = (kernel.clone(), lock.clone(), tail.clone());
            let (waiters, event) = (waiters.clone(), event.clone());
            thread::spawn(move || {
                take(&kernel, &lock, name);
                tail.store(tail.load(Ordering::Relaxed) + 1, Ordering::Release);
                protocol::give(&*kernel, &lock, name);
                protocol::wake_waiters(&*waiters, || protocol::raise(&*kernel, &*event));
            })
        });
        for one in producers.into_iter().chain(consumers) {
            one.join().expect("its own assertions hold");
        }
        assert_eq!(waiters.0.load(Ordering::SeqCst), 0);
    };
    shuttle::check_random(model, ROUNDS);
    shuttle::check_pct(model, ROUNDS, 3);
}

/// The words of an end, each access of which the scheduler decides about.
#[derive(Default)]
struct SmallTail([AtomicU64; 5]);

impl SmallTail {
    fn word(&self, word: TailWord) -> &AtomicU64 {
        self.0.get(word as usize).expect("one for each")
    }
}

impl TailWords for SmallTail {
    fn load(&self, word: TailWord) -> u64 {
        live_on();
        self.word(word).load(Ordering::SeqCst)
    }

    fn store(&self, word: TailWord, value: u64) {
        live_on();
        self.word(word).store(value, Ordering::SeqCst);
    }
}

/// A segment: at the first byte of each frame its number and its size, 0 in all other bytes.
#[derive(Default)]
struct SmallSegment([AtomicU64; 16]);

impl SmallSegment {
    fn byte(&self, at: u64) -> &AtomicU64 {
        self.0.get(usize::try_from(at).expect("small")).expect("room")
    }

    /// How many frames lie below `tail`, all whole and in order.
    fn count(&self, tail: u64) -> u64 {
        let (mut at, mut count) = (0, 0);
        while at < tail {
            let (number, size) = match self.byte(at).load(Ordering::SeqCst) {
                0 => panic!("no frame at {at}, below the tail {tail}"),
                frame => (frame >> 8, frame & 0xff),
            };
            assert_eq!(number, count, "at {at}");
            (at, count) = (at + size, count + 1);
        }
        assert_eq!(at, tail, "a frame goes on above the tail");
        count
    }

    /// One byte after the other: a thread that dies here leaves part of a frame.
    fn write(&self, at: u64, number: u64, size: u64) {
        for byte in (at + 1)..(at + size) {
            live_on();
            self.byte(byte).store(0, Ordering::SeqCst);
        }
        live_on();
        self.byte(at).store(number << 8 | size, Ordering::SeqCst);
    }

    fn clear(&self, from: u64, to: u64) {
        for byte in from..to {
            live_on();
            self.byte(byte).store(0, Ordering::SeqCst);
        }
    }
}

/// As `Writer::append_locked` does: clears what a dead holder left, reserves, writes, advances.
fn append(end: &SmallTail, bytes: &SmallSegment, size: u64) -> u64 {
    let (tail, number) = end.end_and_number();
    if end.is_unfinished() {
        let reserved = end.unfinished().0;
        end.advance(tail, number);
        bytes.clear(tail, reserved);
        end.reserve_nothing(tail, number);
    }
    end.reserve(tail + size, number + 1);
    bytes.write(tail, number, size);
    end.advance(tail + size, number + 1);
    tail
}

#[test]
fn below_the_tail_is_every_message_that_was_put_whoever_died_on_the_way() {
    let model = || {
        let kernel = Arc::new(Kernel::default());
        let lock = Arc::new(SharedWords::default());
        let (end, bytes) = (Arc::new(SmallTail::default()), Arc::new(SmallSegment::default()));
        let put = |name: u32, left: Option<u32>| {
            let (kernel, lock) = (kernel.clone(), lock.clone());
            let (end, bytes) = (end.clone(), bytes.clone());
            thread::spawn(move || {
                let mut returned = Vec::new();
                let lived = until_death(left, || {
                    for _ in 0..2 {
                        take(&kernel, &lock, name);
                        let at = append(&end, &bytes, u64::from(name));
                        protocol::give(&*kernel, &lock, name);
                        returned.push(at);
                    }
                });
                if !lived {
                    kernel.bury(name);
                }
                returned
            })
        };
        let reader = {
            let (end, bytes) = (end.clone(), bytes.clone());
            thread::spawn(move || {
                for _ in 0..3 {
                    bytes.count(end.load(TailWord::Tail));
                }
            })
        };
        let threads = [put(1, fate()), put(2, fate()), put(3, None)];
        let returned: Vec<u64> =
            threads.into_iter().flat_map(|one| one.join().expect("its own")).collect();
        reader.join().expect("its own");
        take(&kernel, &lock, 4);
        let (tail, number) = end.end_and_number();
        assert_eq!(bytes.count(tail), number);
        assert!(number >= returned.len() as u64);
        let places: HashSet<u64> = returned.iter().copied().collect();
        assert_eq!(places.len(), returned.len(), "two messages at one place");
        assert!(returned.iter().all(|at| *at < tail), "a put that returned is not there");
    };
    shuttle::check_random(model, ROUNDS);
    shuttle::check_pct(model, ROUNDS, 3);
}
