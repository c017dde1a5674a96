//! Leases under a scheduler that tries its interleavings (`cargo test --features models`).
//!
//! Threads take the group's lock by the functions of `protocol`, write real records to a real
//! journal, change a table, and die between any two of these steps. The table is a map: what counts
//! is that a thread which inherits the lock distrusts it and makes it anew from the journal.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use shuttle::sync::{Arc, Mutex};
use shuttle::thread;

use super::journal::{Journal, Kind, Record};
use super::table::{Entry, EntryState, NONE};
use crate::shared::models::{Kernel, ROUNDS, SharedWords, fate, live_on, take, until_death};
use crate::shared::protocol::{self, Got, Word};

const SIZE: u64 = 10;

/// What all processes of a group have mapped.
struct SmallGroup {
    kernel: Kernel,
    lock: SharedWords,
    /// Whether the table must be made anew.
    broken: SharedWords,
    journal: Mutex<Journal>,
    table: Mutex<SmallTable>,
    folder: PathBuf,
}

#[derive(Default)]
struct SmallTable {
    out: HashSet<u64>,
    next: u64,
    journal_end: u64,
}

impl SmallGroup {
    fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = PathBuf::from("/dev/shm")
            .join(format!("penstock-leases-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let first = Record { kind: Kind::Seek, entry: &Entry::NONE, next: 0 };
        let (journal, journal_end) =
            Journal::begin(&folder, 1, &[(first, 1)], None).expect("a journal");
        let table = SmallTable { journal_end, ..SmallTable::default() };
        let (kernel, lock, broken) = Default::default();
        Self {
            kernel,
            lock,
            broken,
            journal: Mutex::new(journal),
            table: Mutex::new(table),
            folder,
        }
    }

    /// As `Group::take_slowly` and `Group::mend` do.
    fn enter(&self, name: u32) {
        if take(&self.kernel, &self.lock, name) == Got::Inherited {
            self.broken.store(1, Ordering::SeqCst);
        }
        if self.broken.load(Ordering::SeqCst) != 0 {
            self.rebuild();
            self.broken.store(0, Ordering::SeqCst);
        }
    }

    fn rebuild(&self) {
        let journal = self.journal.lock().expect("whole");
        let replay = journal.replay().expect("bytes");
        assert!(!journal.clear_after(replay.end).expect("room"), "records behind the end");
        let out = replay.outstanding.keys().copied().collect();
        let rebuilt = SmallTable { out, next: replay.next, journal_end: replay.end };
        *self.table.lock().expect("whole") = rebuilt;
    }

    /// As `Group::write_next` does: first the journal, then the table.
    fn write(&self, kind: Kind, offset: u64, next: u64, change: impl FnOnce(&mut SmallTable)) {
        let state = EntryState::Leased;
        let entry = Entry { state, token: offset + 1, ..Entry::read(offset, offset, NONE) };
        let record = Record { kind, entry: &entry, next };
        live_on();
        let before = self.table.lock().expect("whole").journal_end;
        live_on();
        let end = self.journal.lock().expect("whole").append(before, &record, 1).expect("room");
        live_on();
        self.table.lock().expect("whole").journal_end = end;
        live_on();
        change(&mut self.table.lock().expect("whole"));
        live_on();
    }

    fn get(&self, name: u32) -> u64 {
        self.enter(name);
        let offset = self.table.lock().expect("whole").next;
        self.write(Kind::Enter, offset, offset + SIZE, |table| {
            table.next = offset + SIZE;
            table.out.insert(offset);
        });
        protocol::give(&self.kernel, &self.lock, name);
        offset
    }

    fn ack(&self, name: u32, offset: u64) {
        self.enter(name);
        let next = self.table.lock().expect("whole").next;
        self.write(Kind::Done, offset, next, |table| {
            table.out.remove(&offset);
        });
        protocol::give(&self.kernel, &self.lock, name);
    }
}

impl Drop for SmallGroup {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// What one thread was told.
#[derive(Default)]
struct Told {
    got: Vec<u64>,
    acked: Vec<u64>,
}

#[test]
fn a_message_is_handed_out_once_and_an_ack_that_returned_holds() {
    let model = || {
        let group = Arc::new(SmallGroup::new());
        let consume = |name: u32, left: Option<u32>| {
            let group = group.clone();
            thread::spawn(move || {
                let mut told = Told::default();
                let lived = until_death(left, || {
                    for _ in 0..2 {
                        told.got.push(group.get(name));
                        let offset = *told.got.last().expect("one");
                        group.ack(name, offset);
                        told.acked.push(offset);
                    }
                });
                if !lived {
                    group.kernel.bury(name);
                }
                told
            })
        };
        let threads = [consume(1, fate()), consume(2, fate()), consume(3, None)];
        let told = threads.map(|one| one.join().expect("its own assertions hold"));
        let got: Vec<u64> = told.iter().flat_map(|one| one.got.iter().copied()).collect();
        assert_eq!(got.iter().collect::<HashSet<_>>().len(), got.len(), "handed out twice");
        group.enter(4);
        let live = std::mem::take(&mut *group.table.lock().expect("whole"));
        group.rebuild();
        let table = group.table.lock().expect("whole");
        assert_eq!((&live.out, live.next), (&table.out, table.next), "table and journal differ");
        for one in &told {
            assert!(one.acked.iter().all(|offset| !table.out.contains(offset)), "an ack is gone");
            assert!(one.got.iter().all(|offset| *offset < table.next), "a lease is gone");
        }
        drop(table);
        protocol::give(&group.kernel, &group.lock, 4);
    };
    shuttle::check_random(model, ROUNDS / 3);
    shuttle::check_pct(model, ROUNDS / 3, 3);
}
