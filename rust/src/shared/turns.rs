//! Turns at a sync: one thread syncs for all who wait by then, in whatever process they are.

use std::io;
use std::sync::atomic::AtomicU32;

use crate::shared::lock::{Hindrance, Life};
use crate::shared::protocol::{self, Coming};

/// The words of it: a lock word, and a count of the turns that have ended.
#[derive(Clone, Copy)]
pub struct SyncTurns<'a> {
    /// Who comes.
    pub life: &'a Life,
    /// Held during a turn.
    pub lock: &'a AtomicU32,
    /// Raised when a turn has ended: the others sleep on it.
    pub ended: &'a AtomicU32,
}

/// A turn: when this is dropped, everyone who waits for its end is woken.
pub struct SyncTurn<'a>(SyncTurns<'a>);

impl Drop for SyncTurn<'_> {
    fn drop(&mut self) {
        let SyncTurns { life, lock, ended } = self.0;
        protocol::end_turn(life, lock, ended, life.name());
    }
}

impl<'a> SyncTurns<'a> {
    /// Takes a turn, when those of others have ended. None: there is no need any more, or it is
    /// time to look at signals.
    pub fn come(self, is_needless: impl Fn() -> bool) -> io::Result<Option<SyncTurn<'a>>> {
        let Self { life, lock, ended } = self;
        let patience = life.door().times().look_for_dead();
        loop {
            match protocol::come(life, lock, ended, life.name(), patience, &is_needless) {
                Coming::Taken => return Ok(Some(self.taken()?).filter(|_| !is_needless())),
                Coming::Needless | Coming::Waited => return Ok(None),
                Coming::Ended => {}
            }
        }
    }

    /// Takes the turn when it comes, whatever was done by then.
    pub fn hold(self) -> io::Result<SyncTurn<'a>> {
        for _ in 0..self.life.door().times().looks_before_signals {
            if self.life.take(self.lock).is_some() {
                return self.taken();
            }
        }
        Err(io::Error::other(Hindrance::Busy))
    }

    /// The lock word is ours.
    fn taken(self) -> io::Result<SyncTurn<'a>> {
        let turn = SyncTurn(self);
        if self.life.is_over() { Err(io::Error::other(Hindrance::Over)) } else { Ok(turn) }
    }
}
