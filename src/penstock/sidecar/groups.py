"""The files of a group as data, and a look at them that changes nothing.

.penstock/groups/<name>/group.json       its options
.penstock/groups/<name>/journal-NNNNNN   what happened, record by record: the truth
.penstock/groups/<name>/table            what is out now: a cache of this boot
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from penstock import _core
from penstock.disk import files
from penstock.disk.structs import Buffer, Field, Struct
from penstock.hints import Any
from penstock.places import Path
from penstock.records import dataclass, field
from penstock.sidecar import prepared

MAGIC = b"PENSTGR2"
PAUSED = 0xA5A5
GONE = 0xA5A5 << 16

TABLE = Struct(
    "group table", "<", 280,
    Field("magic", "8s", "PENSTGR2"),
    Field("boot", "Q", "which run of the machine wrote the words below"),
    Field("lock", "I", "the group's lock, as the append lock in the control block"),
    Field("flags", "I", "a5a5 below: paused; above: deleted or renamed"),
    Field("sync_lock", "I", "the same for the one who syncs the journal"),
    Field("version", "I", "raised when group.json was changed"),
    Field("next", "Q", "next unread offset"),
    Field("delivered", "Q", "handed out since the group was made; moves at once with `next`"),
    Field("attention", "q", "boot time at which the next lease ends or message is due"),
    Field("token", "Q", "newest proof of a lease"),
    Field("journal_end", "Q", "bytes of the journal that hold whole records"),
    Field("journal_synced", "Q", "bytes of the journal that were synced"),
    Field("journal_name", "Q", "number of the journal"),
    Field("skew", "q", "wall time minus boot time, ns"),
    Field("synced_next", "Q", "`next` when it was last synced"),
    Field("broken", "I", "1: something failed half-way; made anew from the journal before use"),
    Field("sync_asked", "I", "odd: progress was made since the last sync began, and was said"),
    Field("looked_for_dead", "q", "boot time of the last look for dead consumers"),
    Field("journaled_next", "Q", "`next` as the journal has it"),
    Field("capacity", "I", "entries that the file has room for"),
    Field("used", "I", "entries ever used"),
    Field("free", "I", "first free entry"),
    Field("lane_first", "I", "entry with the first deadline of the lane; all ones: none"),
    Field("lane_last", "I", "entry with the last deadline of the lane"),
    Field("heap_len", "I", "deadlines that came out of order: entries in the heap"),
    Field("ready_len", "I", "messages that may be handed out again: entries in `ready`"),
    Field("gaps", "I", "places in the ring of messages that are done"),
    Field("order_first", "Q", "front of the ring of entries by offset"),
    Field("order_len", "Q", "places in the ring, gaps included"),
    Field("leased", "I", "messages handed out"),
    Field("delayed", "I", "messages not due yet"),
    Field("blocked", "I", "messages that wait for one with the same key"),
    Field("pad1", "4x", ""),
    Field("cursor", "Q", "lowest unacked offset"),
    Field("acked", "Q", "acked since the group was made"),
    Field("expired", "Q", "leases that ran out"),
    Field("dead", "Q", "messages that went to the dead letters"),
    Field("skipped", "Q", "messages that were gone before they were read"),
    Field("idle", "q", "ns for which nothing had happened when retention last looked"),
    Field("idle_at", "q", "boot time of that look"),
    Field("idle_check", "Q", "hash of these two and of what had happened; 0: nothing to read"),
    Field("next_check", "Q", "hash of `next`, left by the last one who closed it; 0 while open"),
    Field("openers", "I", "handles that are open, or were when their process died"),
    Field("syncs_begun", "I", "how many syncs of this group have begun"),
    Field("synced", "I", "the last of them that is over"),
    Field("syncs_ended", "I", "raised when a turn at the sync lock has ended; others sleep on it"),
)  # fmt: skip

ENTRY = Struct(
    "group table entry", "<", 96,
    Field("offset", "Q", "the message"),
    Field("frame", "Q", "its frame, which is another offset only inside a compressed one"),
    Field("deadline", "q", "boot time at which the lease ends or the message is due"),
    Field("token", "Q", "proof of the current lease; 0: none"),
    Field("key", "Q", "hash of its key; 0: none"),
    Field("state", "I", "0 free, 1 leased, 2 delayed, 3 ready, 4 blocked"),
    Field("receives", "I", "how often it was handed out"),
    Field("owner", "I", "opener that has it; all ones: none in particular"),
    Field("place", "I", "where it is in the heap; all ones - 1: in the lane; all ones: in neither"),
    Field("lane_before", "I", "entry before it in the lane"),
    Field("lane_after", "I", "entry after it in the lane"),
    Field("key_next", "I", "entry that waits for it with the same key; free: the next free entry"),
    Field("pad0", "4x", ""),
    Field("timeout", "q", "ns that the deadline was away when it was set"),
    Field("order", "Q", "its place in the ring of entries by offset"),
    Field("pad1", "8x", ""),
)  # fmt: skip

KEY = Struct(
    "group table key", "<", 16,
    Field("key", "Q", "hash of a key; 0: the slot is free"),
    Field("first", "I", "entry of the oldest message with it, the only one that may be out"),
    Field("last", "I", "entry of the newest one"),
)  # fmt: skip

PARTS = {
    "entries": 4096,
    "order": 100667392,
    "heap": 109056000,
    "ready": 113250304,
    "keys": 117444608,
    "end": 150999040,
}
"""Bytes where the parts behind the header begin. Each has room for the largest table; the file
has only as much of each as was ever used. `order` is a ring of entry numbers (8 bytes each) by
offset, all ones where a message is done; `heap` and `ready` are binary heaps of entry numbers
(4 bytes each), by deadline and by offset; `keys` is a hash table with linear probing."""

_SHORT_FIELDS = (
    Field("check", "I", "CRC-32C of the rest, begun with the journal's number in its register"),
    Field("kind", "B", "1 enter, 2 lease, 3 ready, 4 delay, 5 extend, 6 done, 7 seek"),
    Field("state", "B", "1 leased, 2 delayed, 3 ready, 4 blocked; of kinds 6 and 7: nothing"),
    Field("size", "H", "bytes of the record: 24 (kinds 3 and 6), 64, or 80"),
    Field("offset", "Q", "the message"),
    Field("next", "Q", "where reading goes on"),
)
_USUAL_FIELDS = (
    *_SHORT_FIELDS,
    Field("token", "Q", "proof of the lease"),
    Field("wall_ns", "q", "when the deadline was set, ns since 1970"),
    Field("deadline", "q", "boot time"),
    Field("timeout", "q", "ns"),
    Field("owner", "I", "opener that has it; all ones: none in particular"),
    Field("receives", "I", "how often it was handed out"),
)
SHORT_RECORD = Struct("group journal record, short", "<", 24, *_SHORT_FIELDS)
RECORD = Struct("group journal record", "<", 64, *_USUAL_FIELDS)
LONG_RECORD = Struct(
    "group journal record, long", "<", 80,
    *_USUAL_FIELDS,
    Field("frame", "Q", "its frame, where that is not the message's offset"),
    Field("key", "Q", "hash of its key; 0: none"),
)  # fmt: skip
RECORDS = {one.size: one for one in (SHORT_RECORD, RECORD, LONG_RECORD)}

STRUCTS = (TABLE, ENTRY, KEY, *RECORDS.values())
STATES = {1: "leased", 2: "delayed", 3: "ready", 4: "blocked"}
COUNTS = ("delivered", "acked", "expired", "dead", "skipped")


@dataclass(slots=True)
class GroupProgress:
    """Where a group stands, by its files alone."""

    next: int
    outstanding: dict[int, str] = field(default_factory=dict)
    """Offset → state, of messages that were read and are not done."""
    is_paused: bool = False
    counts: dict[str, int] = field(default_factory=dict)
    """Since the group was made; empty after a restart of the machine."""

    @property
    def cursor(self) -> int:
        """The lowest unacked offset."""
        return min(self.outstanding, default=self.next)


def peek(folder: Path, boot: int, *, is_auto: bool = False) -> GroupProgress | None:
    """What the group's files say; none when there is no group. Changes nothing."""
    # First the table: what was handed out before `next` moved is then in the journal, and what
    # comes later is known by its offset.
    words = _table(folder / "table")
    progress = _newest(folder)
    if progress is None or words is None:
        return progress
    if words["boot"] == boot:
        progress.is_paused = words["flags"] & PAUSED == PAUSED
        progress.counts = {name: words[name] for name in COUNTS}
        progress.next = words["next"]  # What a filter passed over is in no record.
        known = progress.outstanding.items()
        progress.outstanding = {offset: state for offset, state in known if offset < progress.next}
    elif is_auto:
        progress.next = max(progress.next, words["next"])  # A get that is its ack has no record.
    return progress


def _table(path: Path) -> dict[str, int] | None:
    raw = files.read_if_there(path, TABLE.size) or b""
    return TABLE.unpack(raw) if len(raw) == TABLE.size and raw[:8] == MAGIC else None


def _journals(folder: Path) -> list[str]:
    return [n for n in files.names_in(folder) if n[:8] == "journal-" and n[8:].isdigit()]


def _newest(folder: Path) -> GroupProgress | None:
    """What the newest journal says. When a journal is full, its file becomes that of a later one:
    so what was read counts only if the file has kept its name meanwhile."""
    while names := _journals(folder):
        path = folder / max(names)
        try:
            with files.reading(path) as stream:
                raw = stream.read()
                is_same = os.fstat(stream.fileno()).st_ino == path.stat().st_ino
        except FileNotFoundError:
            continue
        if is_same:
            next_unread, states, _ = _core.replay_journal(number_of(path), raw)
            outstanding = {offset: STATES.get(state, "ready") for offset, state in states.items()}
            return GroupProgress(next_unread, outstanding)
    return None


def number_of(journal: Path) -> int:
    """Which journal a file is."""
    return int(journal.name.partition("-")[2])


def records(journal: Path, data: Buffer) -> Iterator[tuple[int, Struct]]:
    """Where each record of a journal begins, and which it is."""
    at, end = 0, _core.replay_journal(number_of(journal), bytes(data))[2]
    while at < end:
        one = RECORDS[SHORT_RECORD.unpack_field("size", data, at)]
        yield at, one
        at += one.size


# ── writing ────────────────────────────────────────────────────────────────────────────────────


def make(folder: Path) -> None:
    """Makes the folder of a group."""
    files.make_folder(folder)


def write_options(folder: Path, value: dict[str, Any]) -> None:
    """Replaces the group's options."""
    files.write_json(folder / "group.json", value)


def drop_table(folder: Path) -> None:
    """Drops the table; the next opener of the group makes it anew from the journal."""
    _core.unlink_file(folder / "table")


def sync_table(folder: Path) -> None:
    """Syncs the table: a group that acks by getting goes by it, too, and no older one must come
    back."""
    _core.sync_file(folder / "table")


def write_anew(sidecar: Path) -> None:
    """After a failed sync: a record that is not on the disk would hide those that follow it after
    a power cut, also records that were synced since. The tables are made from the journals."""
    folders = map((sidecar / "groups").joinpath, files.names_in(sidecar / "groups"))
    for journal in [folder / name for folder in folders for name in _journals(folder)]:
        prepared.copy_anew(sidecar, journal)


def rename(folder: Path, to: Path) -> None:
    """Gives the group another name. The table is a cache with the sign of the old handles in it."""
    _core.rename_file(folder, to)
    drop_table(to)


def remove(folder: Path) -> None:
    """Takes the group's name away at once, then its files."""
    doomed = folder.with_name(f".{folder.name}.{os.urandom(4).hex()}")
    try:
        _core.rename_file(folder, doomed)
    except FileNotFoundError:
        return  # Another process was first.
    import shutil

    shutil.rmtree(doomed)


# ── a query that follows the group ─────────────────────────────────────────────────────────────


def read_query(folder: Path) -> dict[str, Any] | None:
    """Where the query that follows the group began; none before it did."""
    return files.read_json(folder / "spark.json")


def write_query(folder: Path, value: dict[str, Any]) -> None:
    """Notes where the query began, and whether it has got on since."""
    files.write_json(folder / "spark.json", value)


def open_query_lock(folder: Path) -> int:
    """The file that the query locks for as long as it runs."""
    return _core.open_or_create(folder / "spark.lock")
