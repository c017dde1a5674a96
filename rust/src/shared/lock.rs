//! A lock word in shared memory whose holder's life is an open file description.
//!
//! The word is 0 (free) or the holder's name, with the top bit set while someone sleeps on it.
//! Each opener of a queue holds one byte of the lock file (its slot) for as long as it lives; when
//! a holder is gone, the kernel has dropped its byte, and the next taker inherits the word and is
//! told so. A name is a slot and how many openers there had been: a slot that was taken again by a
//! later opener does not keep its dead predecessor's locks alive.
//!
//! No thread waits for the interpreter lock while it holds a word: a neighbour in a long call would
//! stall every process. A thread that has the interpreter lock takes a word by `take_soon` and
//! keeps both until it gives the word back; a thread without it takes a word by `take`.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use pyo3::{PyErr, PyResult, Python};

use crate::errors;
use crate::shared::opening_lock::OpeningLock;
use crate::shared::protocol::{self, SLEEPERS, Seen, World};
pub use crate::shared::protocol::{Got, holder_of};
use crate::sys::fork::Owned;
use crate::sys::mapping::Mapping;
use crate::sys::{futex, lockfile};

/// Looks at a word, one right after the other, before a sleep is worth its cost.
const SPINS: u32 = 128;
/// Slot `i` is byte `i + 1` of the lock file; byte 0 guards opening.
const FIRST_SLOT_BYTE: u64 = 1;
const SLOTS: u32 = 4096;
/// The low bits of a name are the slot; the others count openers.
pub const SLOT_BITS: u32 = 12;
/// Where the control block keeps the name of each slot's opener.
pub const OWNERS_AT: usize = 4096;

/// Nobody is alive: an opener that only looks dead finds its name gone. Under the opening lock.
pub fn bury_all(owners: &Mapping) {
    for slot in 0..SLOTS as usize {
        owners.word32(OWNERS_AT + slot * 4).store(0, Ordering::SeqCst);
    }
}

/// Whether any opener of the queue is alive, as another opening of its lock file sees it.
pub fn anyone_else(file: &File) -> io::Result<bool> {
    lockfile::any_held_elsewhere(file, FIRST_SLOT_BYTE, u64::from(SLOTS))
}

/// Why a thread without the interpreter lock did not get a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hindrance {
    /// Its holder has been at work for long, or is frozen.
    Busy,
    /// This opener has ended.
    Over,
}

impl std::fmt::Display for Hindrance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Busy => "another process has the lock",
            Self::Over => "the queue was closed",
        })
    }
}

impl std::error::Error for Hindrance {}

impl Hindrance {
    /// The hindrance that `error` stands for, if it stands for one.
    pub fn of(error: &io::Error) -> Option<Self> {
        error.get_ref()?.downcast_ref().copied()
    }
}

/// Does `work` without the interpreter lock. While `work` answers that a lock which it needs is
/// busy, it is done again after a look at signals; it holds nothing when it answers so.
pub fn patiently<T: Send>(
    py: Python<'_>,
    life: &Life,
    work: impl Fn() -> io::Result<T> + Send + Sync,
) -> PyResult<io::Result<T>> {
    loop {
        let done = py.detach(&work);
        match done.as_ref().err().and_then(Hindrance::of) {
            None => return Ok(done),
            Some(Hindrance::Over) => return Err(life.closed(py)),
            Some(Hindrance::Busy) => py.check_signals()?,
        }
    }
}

/// An opener's life: one byte of the lock file.
pub struct Life {
    door: Arc<OpeningLock>,
    owned: Arc<Owned>,
    slot: u32,
    name: u32,
    owners: Arc<Mapping>,
}

impl Life {
    /// Takes the first free slot and writes the opener's name there; `opening` counts openers.
    pub fn new(door: &Arc<OpeningLock>, owners: Arc<Mapping>, opening: u32) -> io::Result<Self> {
        for slot in 0..SLOTS {
            if lockfile::try_lock(door.owned().file()?, u64::from(slot) + FIRST_SLOT_BYTE)? {
                let round = opening % (SLEEPERS >> SLOT_BITS).saturating_sub(1) + 1;
                let name = round << SLOT_BITS | slot;
                owners.word32(OWNERS_AT + slot as usize * 4).store(name, Ordering::Release);
                let (door, owned) = (Arc::clone(door), Arc::clone(door.owned()));
                return Ok(Self { door, owned, slot, name, owners });
            }
        }
        Err(io::Error::other(format!("{SLOTS} processes have this queue open: no slot is left")))
    }

    /// The lock file.
    pub fn door(&self) -> &Arc<OpeningLock> {
        &self.door
    }

    /// This opener's name.
    pub fn name(&self) -> u32 {
        self.name
    }

    /// Whether nobody else has the queue open.
    pub fn is_alone(&self) -> io::Result<bool> {
        anyone_else(self.owned.file()?).map(|others| !others)
    }

    /// Whether the opener of this name is alive. An unreadable lock file counts as alive. One that
    /// is not loses its name: it may only look dead, because its lock file was closed under it, and
    /// then it must not go on while others have taken over what was its own.
    pub fn is_alive(&self, name: u32) -> bool {
        let slot = name & (SLOTS - 1);
        let byte = u64::from(slot) + FIRST_SLOT_BYTE;
        let owner = self.owner_of(slot);
        if name == self.name || owner.load(Ordering::Acquire) != name {
            return name == self.name;
        }
        let is_held = lockfile::is_held_elsewhere;
        let is_alive = self.owned.file().and_then(|file| is_held(file, byte)).unwrap_or(true);
        if !is_alive {
            // Unless another opener has just taken the slot.
            let _ = owner.compare_exchange(name, 0, Ordering::SeqCst, Ordering::Relaxed);
        }
        is_alive
    }

    #[inline(always)]
    fn owner_of(&self, slot: u32) -> &AtomicU32 {
        self.owners.word32(OWNERS_AT + slot as usize * 4)
    }

    /// Whether others found this opener dead.
    #[inline(always)]
    fn is_buried(&self) -> bool {
        self.owner_of(self.slot).load(Ordering::Relaxed) != self.name
    }

    /// The error for a use after its end.
    pub fn closed(&self, py: Python<'_>) -> PyErr {
        if self.owned.is_over() || !self.is_buried() {
            return errors::closed(py, self.is_forked());
        }
        let why = "another part of this program closed the files under the queue, and another \
                   process took this one for dead; open the queue again";
        errors::error(py, "ClosedError", (why,))
    }

    /// Takes the word without waiting. Then comes a look at `is_over`: see `has`.
    #[inline(always)]
    pub fn try_take(&self, word: &AtomicU32) -> Option<Got> {
        protocol::try_take(word, self.name)
    }

    /// Takes the word, or waits a moment for it, with the interpreter lock let go only while the
    /// word is not held. None: the caller looks at signals and tries again.
    #[inline(always)]
    pub fn take_soon(&self, py: Python<'_>, word: &AtomicU32) -> Option<Got> {
        self.try_take(word).or_else(|| self.take_slowly(py, word))
    }

    #[cold]
    fn take_slowly(&self, py: Python<'_>, word: &AtomicU32) -> Option<Got> {
        self.spin(word).or_else(|| self.take_seen(word, &py.detach(|| self.wait_for(word))))
    }

    /// The same without the interpreter lock. None: the caller looks at signals and tries again.
    pub fn take(&self, word: &AtomicU32) -> Option<Got> {
        self.spin(word).or_else(|| self.take_seen(word, &self.wait_for(word)))
    }

    fn spin(&self, word: &AtomicU32) -> Option<Got> {
        for _ in 0..SPINS {
            if let Some(got) = self.try_take(word) {
                return Some(got);
            }
            std::hint::spin_loop();
        }
        None
    }

    fn wait_for(&self, word: &AtomicU32) -> Seen {
        protocol::wait_for(self, word, self.door.times().look_for_dead())
    }

    fn take_seen(&self, word: &AtomicU32, seen: &Seen) -> Option<Got> {
        protocol::take_seen(word, self.name, seen)
    }

    /// Takes the word without the interpreter lock, unless the caller has to look at signals.
    pub fn hold<'a>(&'a self, word: &'a AtomicU32) -> io::Result<Held<'a>> {
        self.hold_noting(word, || {})
    }

    /// The same; `inherited` is called first when a dead holder had it, also if this opener has
    /// ended and gives it back at once: else the next taker would find it free, and know nothing.
    pub fn hold_noting<'a>(
        &'a self,
        word: &'a AtomicU32,
        inherited: impl Fn(),
    ) -> io::Result<Held<'a>> {
        for _ in 0..self.door.times().looks_before_signals {
            let Some(got) = self.take(word) else { continue };
            let held = Held::new(self, word);
            if got == Got::Inherited {
                inherited();
            }
            let over = || io::Error::other(Hindrance::Over);
            return if self.is_over() { Err(over()) } else { Ok(held) };
        }
        Err(io::Error::other(Hindrance::Busy))
    }

    /// Takes the word if it is given back in a moment; does not wait for a dead or frozen holder.
    pub fn hold_briefly<'a>(&'a self, word: &'a AtomicU32) -> Option<Held<'a>> {
        self.spin(word)?;
        let held = Held::new(self, word);
        if self.is_over() { None } else { Some(held) }
    }

    /// Frees the word and wakes one sleeper; a word that another opener took over stays as it is.
    #[inline(always)]
    pub fn give(&self, word: &AtomicU32) {
        protocol::give(self, word, self.name);
    }

    /// Whether the word is held in this opener's name. Asked after `end`: a thread that takes a
    /// word looks at `is_over` afterwards, so it gives the word back at once, or is seen here.
    pub fn has(&self, word: &AtomicU32) -> bool {
        holder_of(word.load(Ordering::SeqCst)) == self.name
    }

    /// This opener ends: a thread of it that still takes a lock word gives it back at once.
    pub fn end(&self) {
        self.owned.end();
    }

    /// Gives the slot back, once nothing is held in its name any more.
    pub fn give_slot(&self) -> io::Result<()> {
        match self.owned.file() {
            Ok(file) => lockfile::unlock(file, u64::from(self.slot) + FIRST_SLOT_BYTE),
            Err(_) => Ok(()), // It went with the file that someone else closed.
        }
    }

    /// Whether it has ended here, this process is a fork of its own, or others took it for dead:
    /// whatever is left of this opener must not touch shared state.
    #[inline(always)]
    pub fn is_over(&self) -> bool {
        self.owned.is_over() || self.is_buried()
    }

    /// Whether this process is a fork of the one that opened the queue.
    pub fn is_forked(&self) -> bool {
        self.owned.is_forked()
    }
}

impl World<AtomicU32> for Life {
    fn wait(&self, word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> futex::Woken {
        futex::wait(word, expected, timeout)
    }

    #[inline(always)]
    fn wake(&self, word: &AtomicU32, count: i32) {
        futex::wake(word, count);
    }

    fn wake_idle(&self, word: &AtomicU32) {
        let _ = futex::wake_idle(word);
    }

    fn is_alive(&self, name: u32) -> bool {
        self.is_alive(name)
    }
}

/// A word, held until this is dropped.
pub struct Held<'a> {
    life: &'a Life,
    word: &'a AtomicU32,
}

impl<'a> Held<'a> {
    /// Holds a word that was just taken.
    #[inline(always)]
    pub fn new(life: &'a Life, word: &'a AtomicU32) -> Self {
        Self { life, word }
    }
}

impl Drop for Held<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.life.give(self.word);
    }
}
