//! When many threads wait for syncs, each sync waits a moment for those that are about to join it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How the last syncs went. A thread that syncs for others waits a moment for those that the last
/// sync let go: they are about to come again.
#[derive(Default)]
pub struct Pace {
    took_ns: AtomicU64,
    /// How many puts or acks to wait for.
    expected: AtomicU64,
    /// How many the last sync had covered, all in all.
    synced: AtomicU64,
}

impl Pace {
    /// Notes that a sync took so long, and that so many are covered now.
    pub fn note(&self, took: Duration, synced: u64) {
        let before = self.synced.swap(synced, Ordering::Relaxed);
        let batch = synced.saturating_sub(before);
        // The last batch alone would not do: threads that missed one sync would from then on join
        // every second one, and each sync would cover half of what it could.
        let expected = self.expected.load(Ordering::Relaxed) * 3 / 4;
        self.expected.store(batch.max(expected), Ordering::Relaxed);
        let took_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.took_ns.store(took_ns, Ordering::Relaxed);
    }

    /// Waits until as many have come as lately, for at most the time of half a sync; `count` says
    /// how many there are, all in all. A thread that is alone does not wait.
    pub fn gather(&self, count: impl Fn() -> u64) {
        let (expected, begun) = (self.expected.load(Ordering::Relaxed), Instant::now());
        let patience = Duration::from_nanos(self.took_ns.load(Ordering::Relaxed) / 2);
        let synced = self.synced.load(Ordering::Relaxed);
        while expected > 1
            && count().saturating_sub(synced) < expected
            && begun.elapsed() < patience
        {
            std::thread::yield_now();
        }
    }
}
