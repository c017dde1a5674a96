"""The index of segments: what each full one says about itself, in one file.

A hint: a time or a number is found by one read instead of one page of every segment. Whatever it
does not know, or what does not check, is read from the segment; a lost index is written anew.
After an unclean start of the machine it is dropped, since segments may not be what they were.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock import _core
from penstock.disk import files
from penstock.formats.penstock.segments import with_facts
from penstock.formats.penstock.structs import INDEX_ENTRY
from penstock.formats.values import SegmentInfo
from penstock.hints import Any
from penstock.places import Path
from penstock.sidecar import notes

SLACK = 64
"""Entries of segments that are gone, before the file is written anew."""
NONE = 1 << 64
"""A number above every base."""
LOOK_BYTES: int = 64 * INDEX_ENTRY.size
"""What is read first, from the end: most who ask want to know about the newest."""


class Index:
    """The index of one open queue; others may add to it meanwhile."""

    path: Path

    def __init__(self, sidecar: Path, queue_id: bytes) -> None:
        """Remembers where the index is; nothing is read yet."""
        self.path, self._sidecar = sidecar / notes.SEGMENT_INDEX, sidecar
        self._queue_id = queue_id
        self._known: dict[int, dict[str, Any]] = {}
        self._oldest = NONE
        self._first = self._read = 0
        """Entries between these two bytes of the file are known."""

    def find(self, info: SegmentInfo) -> SegmentInfo | None:
        """`info` with what is known about the segment; none when nothing is."""
        if info.base not in self._known:
            self._refresh()
        # An entry may stand before those that are known, though most are in order.
        while info.base not in self._known and self._first > 0 and info.base < self._oldest:
            self._look_back()
        entry = self._known.get(info.base)
        if entry is None or entry["end"] != info.end:
            return None
        return with_facts(info, entry["base_number"], entry)

    def add(self, infos: Iterable[SegmentInfo]) -> None:
        """Notes full segments. Two who add at once may lose an entry, which is then added again."""
        raw = b"".join(self._pack(info) for info in infos)
        notes.append_bytes(self._sidecar, notes.SEGMENT_INDEX, raw, INDEX_ENTRY.size)

    def forget(self) -> None:
        """Deletes the index, which may be wrong; no power cut brings it back."""
        self._begin_anew()
        notes.drop(self._sidecar, notes.SEGMENT_INDEX, synced=True)

    def tidy(self, infos: Iterable[SegmentInfo]) -> None:
        """Leaves out segments that are gone, once they are many."""
        self._refresh()
        while self._first > 0:
            self._look_back()
        found = [known for info in infos if (known := self.find(info)) is not None]
        if self._read // INDEX_ENTRY.size > len(found) + SLACK:
            raw = b"".join(self._pack(info) for info in found)
            notes.write_bytes(self._sidecar, notes.SEGMENT_INDEX, raw, synced=False)
            self._begin_anew()

    def _check(self, raw: bytes) -> int:
        return _core.crc32c(self._queue_id + raw[4:])

    def _pack(self, info: SegmentInfo) -> bytes:
        raw = INDEX_ENTRY.pack(
            check=0, base=info.base, end=info.end, base_number=info.first_number or 0,
            next_number=info.next_number or 0, messages=info.messages or 0,
            first_ns=info.first_ns or 0, last_ns=info.last_ns or 0,
        )  # fmt: skip
        return self._check(raw).to_bytes(4, "little") + raw[4:]

    def _begin_anew(self) -> None:
        self._known, self._oldest, self._first, self._read = {}, NONE, 0, 0

    def _look_back(self) -> None:
        """Learns the entries before those that are known, twice as many as are known."""
        stop = self._first
        start = max(0, stop - max(self._read - stop, LOOK_BYTES))
        self._learn(self._bytes(start, stop - start))
        self._first = start

    def _refresh(self) -> None:
        size = files.size_of(self.path)
        size -= size % INDEX_ENTRY.size
        if size < self._read:
            self._begin_anew()  # Another process has written the index anew.
        start = self._read or max(0, size - LOOK_BYTES)
        if self._read == 0:
            self._first = start
        raw = self._bytes(start, size - start)
        self._learn(raw)
        # Other threads may do the same: each goes on from where it began itself.
        self._read = start + len(raw) - len(raw) % INDEX_ENTRY.size

    def _bytes(self, start: int, length: int) -> bytes:
        try:
            with files.reading(self.path) as stream:
                stream.seek(start)
                return stream.read(length)
        except (FileNotFoundError, NotADirectoryError):
            return b""

    def _learn(self, raw: bytes) -> None:
        for at in range(0, len(raw) - INDEX_ENTRY.size + 1, INDEX_ENTRY.size):
            one = raw[at : at + INDEX_ENTRY.size]
            entry = INDEX_ENTRY.unpack(one)
            if entry["check"] == self._check(one):
                self._known[entry["base"]] = entry
                self._oldest = min(self._oldest, entry["base"])
