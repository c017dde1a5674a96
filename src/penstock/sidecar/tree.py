"""The tree of `.penstock/`: every file that may be in it, and who may write it.

The folder stands inside a queue (beside one that is a single file: `<name>.penstock/`), where the
original programs never look. This table is its only list: the page docs/formats/sidecar.md is made
from it, and a test compares it with what queues of every format really leave there.
"""

from __future__ import annotations

from penstock.hints import Literal
from penstock.records import dataclass

Trust = Literal["truth", "cache", "hint", "temporary"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One file, or one kind of files."""

    path: str
    """Below `.penstock/`; `<x>` stands for any name."""
    holds: str
    writer: str
    """The modules that write it: one of Python at most, and one of the core where it has to."""
    trust: Trust
    """`truth`: it can't be made again; `cache`: of this boot, made again from the truth; `hint`:
    may be missing or old; `temporary`: gets its real name, or is deleted by the next opener."""


ENTRIES = (
    Entry("control", "words that all openers share: tail, head, durable, locks, waiters",
          "`rust/src/shared/control.rs`", "cache"),
    Entry("lock", "one byte per opener, locked for as long as it lives: how the dead are noticed",
          "`rust/src/shared/opening_lock.rs`", "cache"),
    Entry("options.json", "the options that the queue keeps", "`sidecar/notes.py`", "truth"),
    Entry("groups/<group>/group.json", "the options of a group", "`sidecar/groups.py`", "truth"),
    Entry("groups/<group>/journal-<n>", "what happened to the group's messages, record by record",
          "`rust/src/group/journal.rs`", "truth"),
    Entry("groups/<group>/table", "which messages are out now, their deadlines and keys",
          "`rust/src/group/table/`", "cache"),
    Entry("groups/<group>/spark.json", "which query follows the group",
          "`sidecar/groups.py`", "hint"),
    Entry("index", "what full segments say about themselves (format `penstock`)",
          "`sidecar/notes.py`", "hint"),
    Entry("extras/<base>.ext", "key and due time of messages, where the format has no place",
          "`rust/src/segment/extras.rs`", "truth"),
    Entry("integrity/<base>.crc", "a checksum per frame, where the format has none",
          "`rust/src/segment/integrity.rs`", "truth"),
    Entry("known-damage.json", "ranges that a repair has set aside", "`sidecar/damage.py`",
          "truth"),
    Entry("quarantine/<bytes>", "bytes that were set aside: a repair's, a recovery's",
          "`sidecar/quarantine.py`", "truth"),
    Entry("purged.json", "up to where `purge` was asked for", "`sidecar/notes.py`", "truth"),
    Entry("sinks/<application>", "batches that land once: what was committed, what is under way",
          "`sidecar/sinks.py`", "truth"),
    Entry("sinks/<application>/<file>", "rows that tasks of a sink left for its commit",
          "`sidecar/sinks.py`", "temporary"),
    Entry("zbus.json", "identity, layout and bases of a zbus queue", "`sidecar/notes.py`",
          "truth"),
    Entry("zbus-places.json", "where zbus readers were when we left", "`sidecar/notes.py`",
          "hint"),
    Entry("beats.json", "identity and layout of a beats queue, what state.dat said last",
          "`sidecar/notes.py`", "truth"),
    Entry("plain/<segment>", "plain bytes of a compressed segment while it is open (beats)",
          "`sidecar/plain_copies.py`, `rust/src/formats/beats/publish.rs`", "cache"),
    Entry("queue.json", "identity of an mfq or vqs queue", "`sidecar/notes.py`",
          "truth"),
    Entry("unchecked.json", "says that frames without checksums came in between (mfq)",
          "`sidecar/notes.py`", "truth"),
    Entry("ages.json", "when messages of a ring were put (vqs)", "`sidecar/notes.py`", "hint"),
    Entry("intent", "where the ring began and ended at the last sync (vqs)",
          "`sidecar/notes.py`, `rust/src/formats/vqs/`", "truth"),
    Entry("making", "a ring is being made (vqs)", "`sidecar/notes.py`", "temporary"),
    Entry("header.new", "a header that is being changed (vqs)", "`sidecar/notes.py`",
          "truth"),
    Entry("next.seg", "the next segment, prepared in the background", "`sidecar/prepared.py`",
          "temporary"),
    Entry("new-<random>", "a segment or an index that is being prepared",
          "`sidecar/prepared.py`", "temporary"),
    Entry("zero-<random>", "the same, while it is filled with zeros", "`sidecar/prepared.py`",
          "temporary"),
    Entry("copy-<segment>", "a segment that is written anew after a failed sync",
          "`sidecar/prepared.py`", "temporary"),
)  # fmt: skip
