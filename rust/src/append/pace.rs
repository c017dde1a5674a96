//! Syncs that many wait for: who syncs for others waits a moment for those who are on their way.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::shared::control::Control;

/// How syncs went: whoever syncs for others waits a moment for those that the last sync had let
/// go, since they are on their way back.
#[derive(Default)]
pub struct Pace {
    took_ns: AtomicU64,
    /// Messages that are waited for.
    expected: AtomicU64,
    synced_number: AtomicU64,
}

impl Pace {
    /// A sync took so long and had everything below this number in it.
    pub fn note(&self, took: Duration, next_number: u64) {
        let before = self.synced_number.swap(next_number, Ordering::Relaxed);
        let batch = next_number.saturating_sub(before);
        // Not the last batch alone: those who missed one sync would go into every second one from
        // then on, and each sync would have half of what it could.
        let expected = self.expected.load(Ordering::Relaxed) * 3 / 4;
        self.expected.store(batch.max(expected), Ordering::Relaxed);
        let took_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.took_ns.store(took_ns, Ordering::Relaxed);
    }

    /// Waits until as many have come as lately, for at most half a sync. Alone, nobody waits.
    pub fn gather(&self, control: &Control) {
        let (expected, begun) = (self.expected.load(Ordering::Relaxed), Instant::now());
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
