//! A lock word in shared memory whose holder's life is an open file description.
//!
//! The word is 0 (free) or the holder's name, with the top bit set while someone sleeps on it.
//! Each opener of a queue holds one byte of the lock file (its slot) for as long as it lives; when
//! a holder is gone, the kernel has dropped its byte, and the next taker inherits the word and is
//! told so. A name is a slot and how many openers there had been: a slot that was taken again by a
//! later opener does not keep its dead predecessor's locks alive.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use crate::sys::mapping::Mapping;
use crate::sys::{futex, lockfile};

const SLEEPERS: u32 = 1 << 31;
const SPINS: u32 = 128;
/// How long a sleeper waits before it looks whether the holder is still alive.
const PATIENCE: Duration = Duration::from_millis(20);
/// Byte 0 of the lock file guards opening; slot `i` is byte `i + 1`.
const OPEN_BYTE: u64 = 0;
const SLOTS: u32 = 4096;
const SLOT_BITS: u32 = 12;
/// Where the control block keeps the name of each slot's opener.
pub const OWNERS_AT: usize = 4096;

/// How the word was got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Got {
    /// It was free.
    Clean,
    /// Its holder is dead: whatever it was doing is half done.
    Inherited,
}

/// An opener's life: one byte of the lock file.
pub struct Life {
    file: File,
    slot: u32,
    name: u32,
    owners: Arc<Mapping>,
    is_over: AtomicBool,
}

impl Life {
    /// Takes the opening lock, waiting for whoever is opening the queue right now.
    pub fn begin_open(file: &File) -> io::Result<()> {
        loop {
            match lockfile::lock(file, OPEN_BYTE) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }

    /// Lets the next opener in.
    pub fn end_open(file: &File) -> io::Result<()> {
        lockfile::unlock(file, OPEN_BYTE)
    }

    /// Whether any slot is held by someone else. Call it with the opening lock held.
    pub fn anyone_else(file: &File) -> io::Result<bool> {
        lockfile::any_held_elsewhere(file, OPEN_BYTE + 1, u64::from(SLOTS))
    }

    /// Takes the first free slot and writes the opener's name there; `opening` counts openers.
    pub fn new(file: File, owners: Arc<Mapping>, opening: u32) -> io::Result<Self> {
        for slot in 0..SLOTS {
            if lockfile::try_lock(&file, u64::from(slot) + 1)? {
                let round = opening % (SLEEPERS >> SLOT_BITS).saturating_sub(1) + 1;
                let name = round << SLOT_BITS | slot;
                owners.word32(OWNERS_AT + slot as usize * 4).store(name, Ordering::Release);
                return Ok(Self { file, slot, name, owners, is_over: false.into() });
            }
        }
        Err(io::Error::other(format!("{SLOTS} processes have this queue open: no slot is left")))
    }

    /// The lock file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// This opener's name.
    pub fn name(&self) -> u32 {
        self.name
    }

    /// Whether the opener of this name is alive. An unreadable lock file counts as alive.
    pub fn is_alive(&self, name: u32) -> bool {
        let slot = name & (SLOTS - 1);
        let held = || lockfile::is_held_elsewhere(&self.file, u64::from(slot) + 1);
        name == self.name
            || (self.owners.word32(OWNERS_AT + slot as usize * 4).load(Ordering::Acquire) == name
                && held().unwrap_or(true))
    }

    /// Takes the word without waiting.
    #[inline(always)]
    pub fn try_take(&self, word: &AtomicU32) -> Option<Got> {
        let mine = self.name;
        word.compare_exchange(0, mine, Ordering::Acquire, Ordering::Relaxed)
            .ok()
            .map(|_| Got::Clean)
    }

    /// Takes the word, waiting as long as its holder lives. None after `patience` rounds or on a
    /// signal: the caller looks around and comes back.
    pub fn take(&self, word: &AtomicU32) -> Option<Got> {
        let mine = self.name;
        for _ in 0..SPINS {
            if let Some(got) = self.try_take(word) {
                return Some(got);
            }
            std::hint::spin_loop();
        }
        let seen = word.load(Ordering::Relaxed);
        if seen == 0 {
            return word
                .compare_exchange(0, mine | SLEEPERS, Ordering::Acquire, Ordering::Relaxed)
                .ok()
                .map(|_| Got::Clean);
        }
        let marked = seen | SLEEPERS;
        if seen != marked
            && word.compare_exchange(seen, marked, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            return None;
        }
        if futex::wait(word, marked, Some(PATIENCE)) == futex::Woken::TimedOut {
            let holder = marked & !SLEEPERS;
            if !self.is_alive(holder) {
                return word
                    .compare_exchange(marked, mine | SLEEPERS, Ordering::AcqRel, Ordering::Relaxed)
                    .ok()
                    .map(|_| Got::Inherited);
            }
            return None;
        }
        word.compare_exchange(0, mine | SLEEPERS, Ordering::Acquire, Ordering::Relaxed)
            .ok()
            .map(|_| Got::Clean)
    }

    /// Gives the slot back: this opener takes no further part.
    pub fn end(&self) -> io::Result<()> {
        self.is_over.store(true, Ordering::Release);
        lockfile::unlock(&self.file, u64::from(self.slot) + 1)
    }

    /// In a forked child: lets go of the parent's life without ending it.
    pub fn abandon(&self) -> io::Result<()> {
        self.is_over.store(true, Ordering::Release);
        lockfile::detach(&self.file)
    }

    /// Whether it has ended here: whatever is left of this opener must not touch shared state.
    #[inline(always)]
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Waits until the word is ours, without looking around. Not under the interpreter lock.
    pub fn take_patiently(&self, word: &AtomicU32) -> Got {
        loop {
            if let Some(got) = self.take(word) {
                return got;
            }
        }
    }

    /// Frees the word and wakes one sleeper. The swap is a full fence: stores before it are
    /// visible to whoever registers as a waiter after it.
    #[inline(always)]
    pub fn give(&self, word: &AtomicU32) {
        if word.swap(0, Ordering::SeqCst) & SLEEPERS != 0 {
            futex::wake(word, 1);
        }
    }
}
