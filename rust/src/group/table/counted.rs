//! Where reading goes on and how much was handed out move together.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use super::{Table, at};

fn table(name: &str) -> Table {
    let path = std::env::temp_dir().join(format!("penstock-{name}-{}", std::process::id()));
    let table = Table::open(&path).expect("a file");
    std::fs::remove_file(&path).expect("ours");
    table
}

#[test]
fn who_comes_too_late_moves_nothing_and_counts_nothing() {
    let table = table("late");
    table.set_wide(at::CURSOR, 5);
    assert!(table.move_on(0, 136, 1));
    assert!(!table.move_on(0, 200, 7));
    assert_eq!((table.wide(at::NEXT), table.wide(at::DELIVERED)), (136, 1));
    assert_eq!((table.wide(at::ATTENTION), table.wide(at::CURSOR)), (0, 5));
}

#[test]
fn every_claim_is_counted_also_beside_counts_of_others() {
    const CLAIMS: u64 = 20_000;
    let (table, counted) = (table("counted"), AtomicU64::new(0));
    let claim = || {
        while counted.fetch_add(1, Ordering::Relaxed) < CLAIMS {
            loop {
                let next = table.wide(at::NEXT);
                if table.move_on(next, next + 8, 2) {
                    break;
                }
            }
            table.count_among_others(at::DELIVERED, 1); // As a claim under the lock does.
        }
    };
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(claim);
        }
    });
    assert_eq!((table.wide(at::NEXT), table.wide(at::DELIVERED)), (8 * CLAIMS, 3 * CLAIMS));
}
