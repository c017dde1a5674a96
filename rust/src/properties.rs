//! What holds for everything that can be written: it is read again as it was, and no bytes at all
//! lead further than to an answer.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use crate::bytes::tags::{Filter, MODERN};
use crate::bytes::{headers, words};
use crate::formats::beats::python::beats_frames;
use crate::formats::mfq::mfq_frames;
use crate::formats::python::penstock_frames;
use crate::formats::vqs::gob::{self, Parts};
use crate::formats::vqs::vqs_frames;
use crate::formats::zbus::zbus_frames;
use crate::group::journal::{Journal, Kind, Record};
use crate::group::table::{Entry, EntryState};
use crate::segment::frame::{Draft, FrameView, Frames, Place, Step};

/// The frames of `bodies`, one behind the other, as one append makes them.
pub(crate) fn written(frames: &dyn Frames, drafts: &[Draft<'_>]) -> Vec<u8> {
    frames.begin();
    let sizes: Vec<usize> =
        drafts.iter().map(|draft| frames.measure(draft).expect("it fits")).collect();
    let mut out = vec![0; sizes.iter().sum()];
    let (mut offset, mut rest) = (0, out.as_mut_slice());
    for ((draft, size), number) in drafts.iter().zip(&sizes).zip(0..) {
        let (frame, behind) = rest.split_at_mut(*size);
        let place = Place { offset, number, has_more: false };
        frames.encode(draft, place, false, frame).expect("as measured");
        (offset, rest) = (offset + *size as u64, behind);
    }
    out
}

/// What is read of it, message by message.
fn read(frames: &dyn Frames, data: &[u8], mut note: impl FnMut(&FrameView, &[u8])) {
    let mut at = 0;
    while let Step::Frame(view) = frames.step(data, at, at as u64, true) {
        let raw = data.get(at..).unwrap_or_default();
        if view.opaque {
            for inner in frames.open_frame(data, at, at as u64, &view).expect("ours") {
                note(&inner, inner.owned.as_deref().unwrap_or(raw));
            }
        } else {
            note(&view, view.owned.as_deref().unwrap_or(raw));
        }
        at += view.size;
    }
    assert_eq!(at, data.len(), "everything is read");
}

fn check(frames: &dyn Frames, bodies: &[Vec<u8>], ids: &[String]) {
    let none = String::new();
    let drafts: Vec<Draft<'_>> = bodies
        .iter()
        .zip(ids.iter().chain(std::iter::repeat(&none)))
        .map(|(body, id)| Draft { body, id: id.as_bytes(), timestamp_ns: 5, ..Draft::default() })
        .collect();
    let data = written(frames, &drafts);
    let mut found = Vec::new();
    read(frames, &data, |view, own| {
        found.push((view.body.of(own).to_vec(), view.id.of(own).to_vec()));
    });
    let wanted: Vec<_> = drafts.iter().map(|one| (one.body.to_vec(), one.id.to_vec())).collect();
    assert_eq!(found, wanted);
}

fn bodies() -> impl Strategy<Value = Vec<Vec<u8>>> {
    vec(vec(any::<u8>(), 1..400), 1..6)
}

fn ids() -> impl Strategy<Value = Vec<String>> {
    vec("[a-z0-9-]{1,20}", 0..6)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn our_own_frames_are_read_as_they_were_written(bodies in bodies(), ids in ids()) {
        let key = [3; 32];
        for (is_compressed, key) in [(false, None), (true, None), (false, Some(key.as_slice()))] {
            let frames =
                penstock_frames([1; 16], 0, is_compressed, key.is_some(), key, Some(&[2; 16]));
            check(&*frames.expect("a framing").0, &bodies, &ids);
        }
    }

    #[test]
    fn zbus_frames_are_read_as_they_were_written(bodies in bodies(), ids in ids()) {
        for (is_absolute, has_crc) in [(false, false), (true, false), (true, true)] {
            check(&*zbus_frames(0, is_absolute, has_crc).0, &bodies, &ids);
        }
    }

    #[test]
    fn beats_frames_are_read_as_they_were_written(bodies in bodies(), ids in ids()) {
        for (encoding, is_packed, key) in
            [("json", false, None), ("cbor", false, None), ("cbor", true, None)]
        {
            check(&*beats_frames(encoding, is_packed, true, key, key, 0).0, &bodies, &ids);
        }
    }

    #[test]
    fn vqs_and_mfq_frames_are_read_as_they_were_written(bodies in bodies(), ids in ids()) {
        let texts: Vec<Vec<u8>> = bodies
            .iter()
            .map(|body| String::from_utf8_lossy(body).into_owned().into_bytes())
            .collect();
        check(&*vqs_frames(false).0, &texts, &ids);
        check(&*mfq_frames(1 << 16).0, &bodies, &[]);
    }

    #[test]
    fn a_gob_is_read_as_it_was_written(
        id in "[ -~]{0,40}", body in vec(any::<u8>(), 0..5000), delay_s in 0u64..1 << 40,
    ) {
        let parts = Parts { id: id.as_bytes(), body: &body, delay_s, ..Parts::default() };
        let mut out = vec![0; gob::measure(&parts)];
        gob::encode(&parts, &mut out).expect("as measured");
        let found = gob::decode(&out).map_err(|wrong| wrong.found).expect("a record");
        prop_assert_eq!((found.id, found.body, found.delay_s), (id.as_bytes(), &*body, delay_s));
    }

    #[test]
    fn headers_are_read_as_they_were_written(
        all in vec((vec(any::<u8>(), 0..30), vec(any::<u8>(), 0..300)), 0..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut out = Vec::new();
        for (name, value) in &all {
            headers::push(&mut out, name, value).expect("short");
        }
        let found: Vec<_> =
            headers::iterate(&out).map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
        prop_assert_eq!(&found, &all);
        let short = out.get(..cut.index(out.len() + 1)).expect("inside");
        prop_assert!(headers::iterate(short).count() <= all.len());
    }

    #[test]
    fn a_tag_matches_itself_and_what_its_wildcards_stand_for(
        levels in vec("[a-z]{1,6}", 1..6), at in any::<prop::sample::Index>(),
    ) {
        let tag = levels.join(".");
        let at = at.index(levels.len());
        let mut one = levels.clone();
        one.splice(at..=at, ["*".to_owned()]);
        let rest: Vec<String> = levels.iter().take(at).cloned().chain(["#".to_owned()]).collect();
        for pattern in [tag.clone(), one.join("."), rest.join("."), format!("no.such;{tag}")] {
            prop_assert!(Filter::new(&pattern, MODERN).matches(tag.as_bytes()), "{pattern} {tag}");
        }
        let longer = format!("{tag}.more");
        prop_assert!(!Filter::new(&tag, MODERN).matches(longer.as_bytes()));
        prop_assert!(!Filter::new(&one.join("."), MODERN).matches(longer.as_bytes()));
    }

    #[test]
    fn a_journal_says_what_happened_last(
        happened in vec((0u64..12, 0u8..4), 1..80), cut in any::<prop::sample::Index>(),
    ) {
        let folder = std::env::temp_dir().join(format!("penstock-prop-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let (mut journal, mut end) = Journal::begin(&folder, 3, &[], None).expect("a journal");
        let (mut known, mut ends) = (BTreeMap::new(), vec![(end, BTreeMap::new())]);
        for (offset, what) in happened {
            let (kind, state) = match what {
                0 => (Kind::Enter, EntryState::Leased),
                1 => (Kind::Ready, EntryState::Ready),
                2 => (Kind::Delay, EntryState::Delayed),
                _ => (Kind::Done, EntryState::Free),
            };
            if kind != Kind::Enter && !known.contains_key(&offset) {
                continue;
            }
            let entry = Entry { state, ..Entry::read(offset, offset, 1) };
            let record = Record { kind, entry: &entry, next: 100 };
            end = journal.append(end, &record, 7).expect("room");
            match state {
                EntryState::Free => drop(known.remove(&offset)),
                state => drop(known.insert(offset, state)),
            }
            ends.push((end, known.clone()));
        }
        let bytes = std::fs::read(crate::group::journal::path(&folder, 3)).expect("a file");
        std::fs::remove_dir_all(&folder).expect("ours");
        let cut = cut.index(words::size(end) + 1);
        let (_, states, read_end) =
            crate::group::journal::replay_journal(3, bytes.get(..cut).expect("inside"));
        let (whole, wanted) =
            ends.iter().rfind(|(at, _)| *at <= cut as u64).cloned().unwrap_or_default();
        prop_assert_eq!(read_end, whole);
        let wanted: BTreeMap<u64, u32> =
            wanted.into_iter().map(|(at, state)| (at, state as u32)).collect();
        prop_assert_eq!(states, wanted);
    }
}
