//! What processes do with the words that they share, step by step: the lock word, the words that
//! say where a queue ends, the request for a sync, and the count of those who wait.
//!
//! The steps are generic over the word and over the world (who sleeps, who wakes, who lives), and
//! nothing else is: the models (`models.rs`) run these very functions with words whose every access
//! a scheduler decides about, and kill their callers between any two.

use std::sync::atomic::{AtomicU32, Ordering, compiler_fence, fence};
use std::time::Duration;

use crate::sys::futex::Woken;

/// Set in a lock word while someone sleeps on it.
pub const SLEEPERS: u32 = 1 << 31;

/// A word that several processes have mapped.
pub trait Word {
    /// Reads it.
    fn load(&self, order: Ordering) -> u32;
    /// Stores `new` if it is `current`; answers what it was.
    fn exchange(&self, current: u32, new: u32, order: Ordering) -> Result<u32, u32>;
    /// Adds to it; answers what it was.
    fn add(&self, by: u32) -> u32;
    /// What is stored before an exchange is out before what is loaded after this.
    fn after_exchange();
}

impl Word for AtomicU32 {
    #[inline(always)]
    fn load(&self, order: Ordering) -> u32 {
        self.load(order)
    }

    #[inline(always)]
    fn exchange(&self, current: u32, new: u32, order: Ordering) -> Result<u32, u32> {
        self.compare_exchange(current, new, order, Ordering::Relaxed)
    }

    #[inline(always)]
    fn add(&self, by: u32) -> u32 {
        self.fetch_add(by, Ordering::SeqCst)
    }

    /// On x86-64 the exchange has already drained the stores; elsewhere it takes a fence.
    #[inline(always)]
    fn after_exchange() {
        if cfg!(target_arch = "x86_64") {
            compiler_fence(Ordering::SeqCst);
        } else {
            fence(Ordering::SeqCst);
        }
    }
}

/// Who sleeps on words, and who is alive.
pub trait World<W> {
    /// Sleeps while `word` is `expected`, at most `timeout`.
    fn wait(&self, word: &W, expected: u32, timeout: Option<Duration>) -> Woken;
    /// Wakes up to `count` sleepers.
    fn wake(&self, word: &W, count: i32);
    /// Wakes those who sleep until something comes; who sleeps until a certain time sleeps on.
    fn wake_idle(&self, word: &W);
    /// Whether the opener of this name is alive.
    fn is_alive(&self, name: u32) -> bool;
}

/// How a lock word was got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Got {
    /// It was free.
    Clean,
    /// Its holder is dead: whatever it was doing is half done.
    Inherited,
}

/// What a wait for a lock word came to.
pub enum Seen {
    /// It was given back.
    Free,
    /// The word as the dead holder left it.
    Dead(u32),
    /// Neither: the caller looks at signals and tries again.
    Busy,
}

/// The name in a lock word.
pub fn holder_of(word: u32) -> u32 {
    word & !SLEEPERS
}

/// Takes the lock word without waiting. The exchange comes before any later look at whether the
/// taker has ended.
#[inline(always)]
pub fn try_take(word: &impl Word, name: u32) -> Option<Got> {
    word.exchange(0, name, Ordering::SeqCst).ok().map(|_| Got::Clean)
}

/// Sleeps until the lock word is given back, its holder is found dead, or `patience` is over.
pub fn wait_for<W: Word>(world: &impl World<W>, word: &W, patience: Duration) -> Seen {
    let seen = word.load(Ordering::Relaxed);
    if seen == 0 {
        return Seen::Free;
    }
    let marked = seen | SLEEPERS;
    if seen != marked && word.exchange(seen, marked, Ordering::Relaxed).is_err() {
        return Seen::Busy;
    }
    match world.wait(word, marked, Some(patience)) {
        Woken::TimedOut if !world.is_alive(holder_of(marked)) => Seen::Dead(marked),
        Woken::TimedOut | Woken::Interrupted => Seen::Busy,
        Woken::Changed => Seen::Free,
    }
}

/// Takes the lock word as a wait has found it. Others may be sleeping on it, too.
pub fn take_seen(word: &impl Word, name: u32, seen: &Seen) -> Option<Got> {
    match seen {
        Seen::Free => take_woken(word, name),
        Seen::Dead(found) => {
            let taken = word.exchange(*found, name | SLEEPERS, Ordering::SeqCst);
            taken.ok().map(|_| Got::Inherited)
        }
        Seen::Busy => None,
    }
}

/// Takes the lock word after a wake. If another was quicker, who does not know of the sleepers, the
/// word tells it of them: the wake was ours, and without another one they would sleep on beside a
/// free word.
fn take_woken(word: &impl Word, name: u32) -> Option<Got> {
    loop {
        let Err(now) = word.exchange(0, name | SLEEPERS, Ordering::SeqCst) else {
            return Some(Got::Clean);
        };
        let is_marked = now & SLEEPERS != 0;
        if is_marked || word.exchange(now, now | SLEEPERS, Ordering::SeqCst).is_ok() {
            return None;
        }
    }
}

/// Frees the lock word and wakes one sleeper; a word that another has taken over meanwhile stays as
/// it is. The exchange is a full fence: stores before it are visible to those who register as
/// waiters after it.
#[inline(always)]
pub fn give<W: Word>(world: &impl World<W>, word: &W, name: u32) {
    if word.exchange(name, 0, Ordering::SeqCst).is_err() {
        give_to_sleeper(world, word, name);
    }
}

#[cold]
fn give_to_sleeper<W: Word>(world: &impl World<W>, word: &W, name: u32) {
    if word.exchange(name | SLEEPERS, 0, Ordering::SeqCst).is_ok() {
        world.wake(word, 1);
    } else if word.exchange(name, 0, Ordering::SeqCst).is_ok() {
        // No process marks a word and takes the mark away again, but nothing depends on that.
        world.wake(word, 1);
    }
}

/// What coming for a turn at a sync leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Coming {
    /// It is the caller's, who has the lock word now.
    Taken,
    /// There is no need any more.
    Needless,
    /// Another's turn has ended meanwhile.
    Ended,
    /// Neither: the caller looks at signals and comes again.
    Waited,
}

/// Takes a turn at a sync unless that `is_needless`, or sleeps until another's has ended or
/// `patience` is over. A dead holder's turn is taken over: it left nothing half done.
pub fn come<W: Word>(
    world: &impl World<W>,
    lock: &W,
    ended: &W,
    name: u32,
    patience: Duration,
    is_needless: &impl Fn() -> bool,
) -> Coming {
    // In this order: the end of a turn that still has the lock below raises the count after this
    // look at it, and nobody sleeps through that.
    let seen = ended.load(Ordering::SeqCst);
    if is_needless() {
        return Coming::Needless;
    }
    if try_take(lock, name).is_some() {
        return Coming::Taken;
    }
    match world.wait(ended, seen, Some(patience)) {
        Woken::Changed => Coming::Ended,
        Woken::Interrupted => Coming::Waited,
        Woken::TimedOut => {
            let found = lock.load(Ordering::Relaxed);
            let is_left = found != 0 && !world.is_alive(holder_of(found));
            let is_taken = || lock.exchange(found, name | SLEEPERS, Ordering::SeqCst).is_ok();
            if is_left && is_taken() { Coming::Taken } else { Coming::Waited }
        }
    }
}

/// Ends a turn: the lock word is free before those who wait for that are told.
pub fn end_turn<W: Word>(world: &impl World<W>, lock: &W, ended: &W, name: u32) {
    give(world, lock, name);
    raise(world, ended);
}

/// Where a queue ends: eight bytes each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TailWord {
    /// Where the next append begins: readers see everything below it.
    Tail,
    /// The tail's complement: a damaged tail is noticed by it.
    TailCheck,
    /// How many messages lie below it.
    NextNumber,
    /// Where an append that goes on will end.
    ReservedEnd,
    /// How many messages there will be then.
    ReservedNumber,
}

/// Those words of a queue.
pub trait TailWords {
    /// Reads one.
    fn load(&self, word: TailWord) -> u64;
    /// Stores one.
    fn store(&self, word: TailWord, value: u64);

    /// Announces what the coming append will occupy, so that a successor knows what to clear.
    #[inline(always)]
    fn reserve(&self, end: u64, number: u64) {
        // In this order: a process that dies in between leaves an end above the tail, and the old
        // number.
        self.store(TailWord::ReservedEnd, end);
        self.store(TailWord::ReservedNumber, number);
    }

    /// Nothing is going on: the queue ends at `tail`, with so many messages.
    #[inline(always)]
    fn reserve_nothing(&self, tail: u64, number: u64) {
        // In this order: the number counts as soon as the end is the tail, and was something else.
        self.store(TailWord::ReservedNumber, number);
        self.store(TailWord::ReservedEnd, tail);
    }

    /// Moves the tail: readers see everything below it.
    #[inline(always)]
    fn advance(&self, tail: u64, number: u64) {
        self.store(TailWord::Tail, tail);
        self.store(TailWord::TailCheck, !tail);
        self.store(TailWord::NextNumber, number);
    }

    /// After a holder's death: what it had reserved.
    #[inline(always)]
    fn unfinished(&self) -> (u64, u64) {
        (self.load(TailWord::ReservedEnd), self.load(TailWord::ReservedNumber))
    }

    /// Whether a holder died (or failed) between `reserve` and the end of `advance`. The words tell,
    /// not the lock: the thread that inherits it may have to give it back before it can clear it.
    #[inline(always)]
    fn is_unfinished(&self) -> bool {
        self.unfinished() != (self.load(TailWord::Tail), self.load(TailWord::NextNumber))
    }

    /// Tail and next number, also when an appender died between the two. Without the append lock
    /// the number may be of a later tail.
    #[inline(always)]
    fn end_and_number(&self) -> (u64, u64) {
        let (tail, (reserved, number)) = (self.load(TailWord::Tail), self.unfinished());
        (tail, if tail == reserved { number } else { self.load(TailWord::NextNumber) })
    }
}

/// Tells the maintenance threads that something must be synced within the interval. Those who were
/// busy lately look by themselves when it is over, and sleep on until then.
pub fn announce<W: Word>(world: &impl World<W>, dirty: &W) {
    dirty.add(1);
    world.wake_idle(dirty);
}

/// What a maintenance thread has heard of.
pub struct Heard {
    /// The word of the maintenance threads, as it was at the last look.
    pub seen: u32,
    /// What must be durable.
    pub target: u64,
}

impl Heard {
    /// An interval is over: answers whether something was asked for in it, or before it and is not
    /// `durable` yet. If not, the thread sleeps until the word is no longer `seen`: a request
    /// before the look is in it, one after it changes the word.
    pub fn listen<W: Word>(
        &mut self,
        (dirty, asked): (&W, &W),
        tail: impl FnOnce() -> u64,
        durable: u64,
    ) -> bool {
        let now = dirty.load(Ordering::SeqCst);
        let is_asked = now != self.seen || is_asked(asked.load(Ordering::SeqCst));
        if is_asked {
            // In this order: the tail was moved before the request was made.
            (self.seen, self.target) = (now, tail());
        }
        is_asked || durable < self.target
    }
}

/// Whether someone has asked since the last sync began: the word is odd until the next one begins.
pub fn is_asked(asked: u32) -> bool {
    asked & 1 != 0
}

/// Something is there that must be synced soon: only the first one since the last sync began tells
/// the maintenance threads. Under the lock under which a sync begins, or after `after_exchange`:
/// what was done is either in what that sync covers, or asks anew.
#[inline(always)]
pub fn ask<W: Word>(asked: &W, announce: impl FnOnce()) {
    let before = asked.load(Ordering::Relaxed);
    if !is_asked(before) {
        announce();
        // In this order: if a process dies in between, its request was heard, or the next one asks
        // again. If a sync has begun in between, the word stays even: nobody would make it so.
        let _ = asked.exchange(before, before | 1, Ordering::Relaxed);
    }
}

/// A sync begins. Look afterwards at what it covers; what comes then is not in it, and asks anew.
pub fn begin_sync<W: Word>(asked: &W) {
    let mut now = asked.load(Ordering::Relaxed);
    while let Err(other) = asked.exchange(now, (now | 1).wrapping_add(1), Ordering::SeqCst) {
        now = other;
    }
    W::after_exchange();
}

/// Raises a word that others sleep on, and wakes them all.
pub fn raise<W: Word>(world: &impl World<W>, word: &W) {
    word.add(1);
    world.wake(word, i32::MAX);
}

/// Wakes everyone who waits, if anyone does. After the exchange that gave the lock back: our stores
/// must be out before the look at `waiters`, or a waiter that looks at them just now and we could
/// miss each other.
#[inline(always)]
pub fn wake_waiters<W: Word>(waiters: &W, signal: impl FnOnce()) {
    W::after_exchange();
    if waiters.load(Ordering::Relaxed) != 0 {
        signal();
    }
}

/// Counts one more who waits. What it looks at from now on is as it is at least since then.
pub fn join<W: Word>(waiters: &W) {
    waiters.add(1);
    W::after_exchange();
}

/// Sleeps until someone raises `event`, unless someone has since it was `seen`, or `is_ready`
/// already holds. One of those who are counted in `waiters` by now.
pub fn wait_event<W: Word>(
    world: &impl World<W>,
    event: &W,
    seen: u32,
    timeout: Option<Duration>,
    is_ready: impl Fn() -> bool,
) -> Woken {
    if is_ready() { Woken::Changed } else { world.wait(event, seen, timeout) }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::collections::HashMap;

    use super::*;

    /// The words of a process that dies after so many stores.
    #[derive(Default)]
    struct MortalWords {
        words: RefCell<HashMap<String, u64>>,
        left: Cell<u32>,
    }

    impl TailWords for MortalWords {
        fn load(&self, word: TailWord) -> u64 {
            self.words.borrow().get(&format!("{word:?}")).copied().unwrap_or_default()
        }

        fn store(&self, word: TailWord, value: u64) {
            if self.left.get() > 0 {
                self.left.set(self.left.get() - 1);
                self.words.borrow_mut().insert(format!("{word:?}"), value);
            }
        }
    }

    fn after(stores: u32, work: impl Fn(&MortalWords)) -> (u64, u64) {
        let words = MortalWords { left: Cell::new(u32::MAX), ..MortalWords::default() };
        words.advance(100, 7);
        words.reserve_nothing(100, 7);
        words.left.set(stores);
        work(&words);
        words.end_and_number()
    }

    #[test]
    fn whenever_an_appender_dies_its_messages_count_or_do_not() {
        for stores in 0..8 {
            let found = after(stores, |words| {
                words.reserve(150, 9);
                words.advance(150, 9);
            });
            assert!(found == (100, 7) || found == (150, 9), "{stores}: {found:?}");
        }
    }

    #[test]
    fn whenever_who_rolls_or_clears_dies_no_message_is_counted_or_forgotten() {
        for (stores, reserved) in (0..8).flat_map(|n| [(n, (u64::MAX, 64)), (n, (180, 12))]) {
            let found = after(stores, |words| {
                words.reserve(reserved.0, reserved.1);
                words.reserve_nothing(100, 7);
            });
            assert_eq!(found, (100, 7), "{stores}");
            let (tail, number) = after(stores, |words| {
                words.reserve(u64::MAX, 64);
                words.advance(128, 7);
                words.reserve_nothing(128, 7);
            });
            assert!(matches!(tail, 100 | 128) && number == 7, "{stores}: {tail} {number}");
        }
    }
}
