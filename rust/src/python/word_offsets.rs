//! Where every word is that processes share, as data: for the test that compares Python's tables.

use std::collections::BTreeMap;

use pyo3::prelude::*;

use crate::formats;
use crate::group::{self, journal, table};
use crate::segment::{extras, integrity, penstock_frame};
use crate::shared::{control, lock, protocol};

type Offsets = BTreeMap<String, u64>;

fn offsets(all: &[(&str, usize)]) -> Offsets {
    all.iter().map(|(word, at)| (word.to_lowercase(), *at as u64)).collect()
}

/// By the name of Python's struct: where each of its fields begins. `group table parts` has where
/// the parts of a group's table begin, `own words` those of formats in the control block, `values`
/// what some words hold.
#[pyfunction(name = "word_offsets")]
pub fn all_word_offsets() -> BTreeMap<&'static str, Offsets> {
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
    let mut all = BTreeMap::from([
        ("control block", offsets(control::at::ALL)),
        ("group table", offsets(table::at::ALL)),
        ("group table parts", offsets(table::part::ALL)),
        ("group table entry", offsets(table::field::ALL)),
        ("group table key", offsets(table::slot::ALL)),
        ("group journal record, long", offsets(journal::field::ALL)),
        ("extras header", offsets(extras::header::ALL)),
        ("integrity header", offsets(integrity::header::ALL)),
        ("integrity entry", offsets(integrity::field::ALL)),
        ("frame", offsets(penstock_frame::field::ALL)),
        ("own words", offsets(&formats::OWN_WORDS)),
        ("values", values.map(|(name, value)| (name.to_owned(), value)).into()),
    ]);
    all.extend(formats::FIELDS.map(|(name, fields)| (name, offsets(fields))));
    all
}
