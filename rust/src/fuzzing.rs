//! What reads bytes that anyone may have written, by name: for the fuzzer (`rust/fuzz`), and for
//! the test that tries what it has kept. No input may do more than be answered.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::bytes::{headers, tags};
use crate::formats::beats::python::{beats_frames, fuzz_stream};
use crate::formats::mfq::mfq_frames;
use crate::formats::python::penstock_frames;
use crate::formats::vqs::gob;
use crate::formats::vqs::vqs_frames;
use crate::formats::zbus::zbus_frames;
use crate::group::journal::replay_journal;
use crate::group::table::{PARTS, Table};
use crate::segment::extras::Extras;
use crate::segment::frame::{FrameView, Frames, Step};
use crate::segment::integrity::Integrity;

/// Everything that can be run.
pub const TARGETS: [&str; 19] = [
    "penstock",
    "penstock-lz4",
    "penstock-key",
    "zbus",
    "zbus-crc",
    "beats-json",
    "beats-cbor",
    "beats-packed",
    "beats-key",
    "beats-stream",
    "vqs",
    "vqs-gzip",
    "mfq",
    "gob",
    "journal",
    "table",
    "extras",
    "integrity",
    "tags",
];
const MOST_FRAMES: usize = 64;
const KEY: [u8; 32] = [7; 32];
const SHORT_KEY: [u8; 16] = [7; 16];

/// Gives `data` to one of `TARGETS`.
pub fn run(target: &str, data: &[u8]) {
    match target {
        "gob" => drop(gob::decode(data)),
        "journal" => drop(replay_journal(1, data)),
        "tags" => match_tags(data),
        "beats-stream" => fuzz_stream(data),
        "table" | "extras" | "integrity" => open_side(target, data),
        _ => walk(&*framing(target), data),
    }
}

fn framing(target: &str) -> Arc<dyn Frames> {
    let own = |is_compressed, key: Option<&[u8]>| {
        penstock_frames([1; 16], 0, is_compressed, key.is_some(), key, Some(&[2; 16]))
            .map(|frames| frames.0)
    };
    let beats = |encoding, packed, key: Option<[u8; 16]>| {
        beats_frames(encoding, packed, true, key, key, 0).0
    };
    match target {
        "penstock-lz4" => own(true, None).expect("a framing"),
        "penstock-key" => own(true, Some(&KEY)).expect("a framing"),
        "zbus" => zbus_frames(0, false, false).0,
        "zbus-crc" => zbus_frames(0, true, true).0,
        "beats-json" => beats("json", false, None),
        "beats-cbor" => beats("cbor", false, None),
        "beats-packed" => beats("cbor", true, None),
        "beats-key" => beats("cbor", false, Some(SHORT_KEY)),
        "vqs" => vqs_frames(false).0,
        "vqs-gzip" => vqs_frames(true).0,
        "mfq" => mfq_frames(1 << 16).0,
        _ => own(false, None).expect("a framing"),
    }
}

/// Reads as a scan does: frame by frame, into opaque ones, and past damage.
fn walk(frames: &dyn Frames, data: &[u8]) {
    let mut at = 0;
    for _ in 0..MOST_FRAMES {
        match frames.step(data, at, at as u64, true) {
            Step::Frame(view) => {
                assert!(view.size > 0, "a frame of no bytes at {at}");
                touch(frames, data, at, &view);
                if view.opaque {
                    for inner in frames.open_frame(data, at, at as u64, &view).unwrap_or_default() {
                        touch(frames, data, at, &inner);
                    }
                }
                at += view.size;
            }
            Step::End => break,
            Step::CutShort(_) | Step::Bad(_) | Step::Hole(_) => {
                let Some(next) = frames.resync(data, at, 0, 0) else { break };
                assert!(next > at, "from {at} to {next}");
                at = next;
            }
        }
    }
}

fn touch(frames: &dyn Frames, data: &[u8], at: usize, view: &FrameView) {
    let own = view.owned.as_deref().or(data.get(at..)).unwrap_or_default();
    for span in [view.id, view.tag, view.key, view.headers, view.body] {
        let _ = span.of(own).len();
    }
    let _ = headers::iterate(view.headers.of(own)).count();
    let _ = frames.payload(data, at, view).len();
    let _ = frames.size_at(data, at, at as u64);
}

fn match_tags(data: &[u8]) {
    let (pattern, tag) = data.split_at(data.len() / 2);
    let pattern = String::from_utf8_lossy(pattern);
    for name in ["modern", "flag", "flag-late", "exact", "prefix"] {
        let filter = tags::dialect(name).map(|dialect| tags::Filter::new(&pattern, dialect));
        let _ = filter.is_some_and(|filter| filter.matches(tag));
    }
}

/// What lies beside a queue, opened as it was found.
fn open_side(target: &str, data: &[u8]) {
    let path = scratch(target);
    match target {
        "table" => {
            if let Ok(table) = open_table(&path, data) {
                if table.is_sound() {
                    let _ = table.outstanding().filter_map(|place| table.entry(place)).count();
                    let _ = (table.due(i64::MAX), table.first_ready(), table.attention());
                }
            }
        }
        "extras" => {
            write(&path, data);
            if let Ok(Some(extras)) = Extras::open(&path, 0, true, true) {
                let mut view = FrameView::default();
                extras.apply(0, b"frame", &mut view);
                let _ = extras.fault();
                extras.rewind(1 << 20);
            }
        }
        _ => {
            write(&path, data);
            if let Ok(Some(entries)) = Integrity::open(&path, 0, true, true) {
                let _ = entries.check(0, 0, b"frame").is_ok();
                let _ = (entries.next_after(7), entries.end());
                entries.recover(1 << 20);
            }
        }
    }
    let _ = std::fs::remove_file(&path); // In memory, where a table left behind is 118 MB.
}

fn write(path: &PathBuf, data: &[u8]) {
    std::fs::write(path, data).expect("room for a test");
}

/// A table whose parts begin with `data`, one after the other; the rest of the file is a hole.
fn open_table(path: &PathBuf, data: &[u8]) -> std::io::Result<Table> {
    let file = File::create(path)?;
    let mut rest = data;
    for (at, len) in PARTS {
        let (part, behind) = rest.split_at(len.min(rest.len()));
        file.write_all_at(part, at as u64)?;
        rest = behind;
    }
    let (keys_at, _) = PARTS.last().copied().unwrap_or_default();
    file.set_len(keys_at as u64 + (1 << 20))?;
    Table::open(path)
}

fn scratch(target: &str) -> PathBuf {
    let folder = PathBuf::from("/dev/shm");
    let folder = if folder.is_dir() { folder } else { std::env::temp_dir() };
    folder.join(format!("penstock-fuzz-{target}-{}", std::process::id()))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::formats::beats::python::fuzz_pack as beats_pack;
    use crate::group::journal::{Journal, Kind, Record};
    use crate::group::table::{Entry, EntryState};
    use crate::properties::written;
    use crate::segment::frame::{Draft, Place};
    use crate::segment::integrity::Checked as Cover;

    /// What was kept of a target, the smallest of everything that once led somewhere new.
    fn kept(target: &str) -> Vec<Vec<u8>> {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
        let mut found = vec![Vec::new()];
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        paths.sort();
        found.extend(paths.iter().filter_map(|path| std::fs::read(path).ok()));
        found
    }

    struct Random(u64);

    impl Random {
        fn below(&mut self, limit: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            usize::try_from(self.0 % (limit.max(1) as u64)).expect("small")
        }

        /// One of the inputs, with a few of its bytes changed, cut, or taken from another.
        fn mutate(&mut self, inputs: &[Vec<u8>]) -> Vec<u8> {
            let mut data = inputs.get(self.below(inputs.len())).cloned().unwrap_or_default();
            for _ in 0..1 + self.below(4) {
                let at = self.below(data.len());
                match self.below(6) {
                    0 => data.truncate(at),
                    1 => {
                        let other = inputs.get(self.below(inputs.len())).expect("one");
                        data.extend(other.iter().skip(self.below(other.len())));
                    }
                    2 => data.extend((0..8).map(|_| u8::try_from(self.below(256)).expect("byte"))),
                    3 => {
                        let value = *[0, 1, 0x7f, 0x80, 0xff].get(self.below(5)).expect("one");
                        data.iter_mut().skip(at).take(4).for_each(|byte| *byte = value);
                    }
                    _ => {
                        if let Some(byte) = data.get_mut(at) {
                            *byte ^= 1 << self.below(8);
                        }
                    }
                }
            }
            data.truncate(1 << 16);
            data
        }
    }

    /// What each target reads when nothing is wrong with it.
    fn seed(target: &str) -> Vec<u8> {
        let drafts =
            [b"{\"n\":1}".as_slice(), b"{}", b"{\"text\":\"some of it, some of it\"}"].map(
                |body| Draft { body, timestamp_ns: 1_700_000_000_000_000_000, ..Draft::default() },
            );
        match target {
            "gob" => gob_of(b"some body"),
            "vqs-gzip" => gzipped(&gob_of(b"some body")),
            "journal" => journal(),
            "table" => table(),
            "extras" => extras(),
            "integrity" => integrity(),
            "tags" => b"eu.*.created;us.#eu.shop.created".to_vec(),
            "beats-stream" => beats_pack(&written(&*framing("beats-cbor"), &drafts)),
            "penstock-lz4" => {
                let first = Place::default();
                framing(target)
                    .pack(&drafts, first)
                    .unwrap_or_else(|| written(&*framing(target), &drafts))
            }
            _ => written(&*framing(target), &drafts),
        }
    }

    fn gob_of(body: &[u8]) -> Vec<u8> {
        let parts = gob::Parts { id: b"o-17", body, ..gob::Parts::default() };
        let mut out = vec![0; gob::measure(&parts)];
        gob::encode(&parts, &mut out).expect("as measured");
        out
    }

    fn gzipped(record: &[u8]) -> Vec<u8> {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut packer, record).expect("memory");
        let packed = packer.finish().expect("memory");
        let mut out = u32::try_from(packed.len()).expect("short").to_le_bytes().to_vec();
        out.extend(packed);
        out
    }

    fn entry(offset: u64) -> Entry {
        Entry {
            key: 5,
            state: EntryState::Leased,
            deadline: 9,
            timeout: 9,
            ..Entry::read(offset, offset, 1)
        }
    }

    fn journal() -> Vec<u8> {
        let folder = scratch("journal");
        std::fs::create_dir_all(&folder).expect("a folder");
        let (mut journal, mut end) = Journal::begin(&folder, 1, &[], None).expect("a journal");
        for offset in [10, 20] {
            let record = Record { kind: Kind::Enter, entry: &entry(offset), next: 30 };
            end = journal.append(end, &record, 7).expect("room");
        }
        let bytes = std::fs::read(crate::group::journal::path(&folder, 1)).expect("a file");
        std::fs::remove_dir_all(&folder).expect("ours");
        bytes.get(..usize::try_from(end).expect("short")).expect("inside").to_vec()
    }

    fn table() -> Vec<u8> {
        let path = scratch("seed");
        let table = Table::open(&path).expect("a file");
        table.forget();
        table.clear();
        for offset in [10, 20, 30] {
            table.enter(&entry(offset)).expect("room");
        }
        let file = File::open(&path).expect("ours");
        let mut out = Vec::new();
        for (at, len) in PARTS {
            let mut part = vec![0; len];
            file.read_exact_at(&mut part, at as u64).expect("as long");
            out.extend(part);
        }
        std::fs::remove_file(&path).expect("ours");
        out
    }

    fn side(make: impl FnOnce(&PathBuf)) -> Vec<u8> {
        let path = scratch("seed");
        let _ = std::fs::remove_file(&path);
        make(&path);
        let bytes = std::fs::read(&path).expect("ours");
        std::fs::remove_file(&path).expect("ours");
        bytes.get(..512).unwrap_or(&bytes).to_vec()
    }

    fn extras() -> Vec<u8> {
        side(|path| {
            let extras = Extras::open(path, 0, true, true).expect("a file").expect("made");
            let draft = Draft { key: b"k", due_ns: 5, timestamp_ns: 3, ..Draft::default() };
            extras.append(0, [(&draft, Place::default())].into_iter()).expect("room");
        })
    }

    fn integrity() -> Vec<u8> {
        side(|path| {
            let entries = Integrity::open(path, 0, true, true).expect("a file").expect("made");
            let all = [Cover::of(0, b"frame"), Cover::of(5, b"another")];
            entries.append(0, all.into_iter()).expect("room");
        })
    }

    /// `cargo test seeds_of -- --ignored` makes those that are missing.
    #[test]
    #[ignore = "writes files of the tree"]
    fn seeds_of_what_is_to_be_tried_are_written() {
        for target in TARGETS {
            let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
            std::fs::create_dir_all(&folder).expect("a folder");
            std::fs::write(folder.join("seed"), seed(target)).expect("a file");
        }
    }

    #[test]
    fn what_the_fuzzer_kept_ends_in_an_answer() {
        for target in TARGETS {
            let inputs = kept(target);
            assert!(inputs.len() > 1, "nothing is kept of {target}");
            inputs.iter().for_each(|data| run(target, data));
        }
    }

    /// `PENSTOCK_FUZZ_MS` a target, 60 without it.
    #[test]
    fn whatever_is_made_of_it_ends_in_an_answer() {
        let given = std::env::var("PENSTOCK_FUZZ_MS").ok().and_then(|text| text.parse().ok());
        let time = Duration::from_millis(given.unwrap_or(60));
        let seed = std::env::var("PENSTOCK_SEED").ok().and_then(|text| text.parse::<u64>().ok());
        for target in TARGETS {
            let (inputs, begun) = (kept(target), Instant::now());
            let mut random = Random(seed.unwrap_or(1).wrapping_mul(0x9E37_79B9) | 1);
            let mut tried = 0u64;
            while begun.elapsed() < time {
                let data = random.mutate(&inputs);
                let one = Instant::now();
                run(target, &data);
                assert!(one.elapsed() < Duration::from_secs(5), "{target} takes long: {data:?}");
                tried += 1;
            }
            println!("{target}: {tried} inputs");
        }
    }
}
