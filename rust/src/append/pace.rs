//! Syncs that many wait for: who syncs for others waits a moment for those who are on their way.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::shared::control::Control;

/// How syncs went: whoever syncs for others waits a moment for those that the last sync had let
/// go, since they are on their way back.
#[derive(Default)]
pub struct Pace {
    took_ns: AtomicU64,
    batch: AtomicU64,
    synced_number: AtomicU64,
}

impl Pace {
    /// A sync took so long and had everything below this number in it.
    pub fn note(&self, took: Duration, next_number: u64) {
        let before = self.synced_number.swap(next_number, Ordering::Relaxed);
        self.batch.store(next_number.saturating_sub(before), Ordering::Relaxed);
        let took_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.took_ns.store(took_ns, Ordering::Relaxed);
    }

    /// Waits until as many have come as the last time, for at most half a sync. Alone, nobody
    /// waits.
    pub fn gather(&self, control: &Control) {
        let (expected, begun) = (self.batch.load(Ordering::Relaxed), Instant::now());
        let patience = Duration::from_nanos(self.took_ns.load(Ordering::Relaxed) / 2);
        let synced = self.synced_number.load(Ordering::Relaxed);
        while expected > 1
            && control.next_number().saturating_sub(synced) < expected
            && begun.elapsed() < patience
        {
            std::thread::yield_now();
        }
    }
}
