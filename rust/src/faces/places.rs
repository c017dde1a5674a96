//! Where every word is that processes share, as data: for the test that compares Python's tables.

use std::collections::BTreeMap;

use pyo3::prelude::*;

use crate::group::{self, journal, table};
use crate::segment::{extras, integrity, own};
use crate::shared::{control, lock, protocol};

type Places = BTreeMap<String, u64>;

fn places(all: &[(&str, usize)]) -> Places {
    all.iter().map(|(word, at)| (word.to_lowercase(), *at as u64)).collect()
}

/// By the name of Python's layout: where each of its fields begins. `group table parts` has where
/// the parts of a group's table begin, `values` what some words hold.
#[pyfunction(name = "places")]
pub fn all_places() -> BTreeMap<&'static str, Places> {
    let values = [
        ("sleepers", u64::from(protocol::SLEEPERS)),
        ("slot_bits", u64::from(lock::SLOT_BITS)),
        ("owners", lock::OWNERS_AT as u64),
        ("rolling", control::ROLLING),
        ("paused", u64::from(group::PAUSED)),
        ("gone", u64::from(group::GONE)),
        ("no_entry", u64::from(table::NONE)),
        ("in_lane", u64::from(table::IN_LANE)),
        ("most_entries", u64::from(table::MAX_ENTRIES)),
    ];
    BTreeMap::from([
        ("control block", places(control::at::ALL)),
        ("group table", places(table::at::ALL)),
        ("group table parts", places(table::part::ALL)),
        ("group table entry", places(table::field::ALL)),
        ("group table key", places(table::slot::ALL)),
        ("group journal record, long", places(journal::field::ALL)),
        ("extras header", places(extras::header::ALL)),
        ("integrity header", places(integrity::header::ALL)),
        ("integrity entry", places(integrity::field::ALL)),
        ("frame", places(own::field::ALL)),
        ("values", values.map(|(name, value)| (name.to_owned(), value)).into()),
    ])
}
