"""zbus read aloud: how its Java and Go programs open, write, read and restart, with plain files.

Written from the description of their behaviour, in none of penstock's code. Nothing is forgiven:
where the original throws, goes round in circles or hands out garbage, the twin raises `Broken`.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SLOTS, ENTRY, HEADER = 10240, 28, 1024
INDEX_BYTES = HEADER + SLOTS * ENTRY
RECORD = 204
NOW_MS = 1_700_000_000_000


class Broken(Exception):
    """What the original would throw, or a state in which it would go wrong without a word."""


def nothing(point: str) -> None:
    """Nobody is killed."""


@dataclass(frozen=True)
class History:
    """What differs between the programs of one file format."""

    name: str
    has_mask: bool = True
    """The common header of 1,024 bytes; before it a flag at 16 and the count at 20."""
    entry: str = ">qqiq"
    order: tuple[str, ...] = ("created", "base", "end", "updated")
    is_crc: bool = False
    is_absolute: bool = False
    first_number: int = 0
    late_created: bool = False
    write_order: str = "data-end-count"

    @property
    def count_at(self) -> int:
        return 16 if self.has_mask else 20


HISTORIES = {
    history.name: history
    for history in (
        History("flag", has_mask=False, first_number=1, write_order="half-count-half-end"),
        History("flag-late", has_mask=False, late_created=True),
        History("corr"),
        History("corr-go", write_order="count-data-end"),
        History("corr-abs", is_absolute=True),
        History("crc", is_crc=True, is_absolute=True),
        # No program ever wrote these two: their pages, in the hands of the same program.
        History(
            "doc000", entry=">qqiq", order=("base", "created", "end", "updated"), is_absolute=True
        ),
        History(
            "doc001", has_mask=False, entry=">qiqq", order=("base", "end", "created", "updated"),
            is_absolute=True, first_number=1,
        ),
    )
}  # fmt: skip


class Words:
    """A small file that the original maps: each word is stored by itself."""

    def __init__(self, path: Path, size: int) -> None:
        self.path = path
        self.is_new = not path.exists()
        if self.is_new:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(bytes(size))

    def get(self, at: int, code: str) -> int:
        with self.path.open("rb") as file:
            file.seek(at)
            (value,) = struct.unpack(">" + code, file.read(struct.calcsize(">" + code)))
        return int(value)

    def set(self, at: int, code: str, value: int) -> None:
        self.put(at, struct.pack(">" + code, value))

    def put(self, at: int, data: bytes) -> None:
        with self.path.open("r+b", buffering=0) as file:
            file.seek(at)
            file.write(data)


class Index:
    """`<folder>.idx`: counts are remembered from opening on, entries are read as they stand."""

    def __init__(self, folder: Path, history: History) -> None:
        self.folder, self.history = folder, history
        # The name is the folder's: under another one the original begins a new queue.
        self.file = Words(folder / f"{folder.name}.idx", INDEX_BYTES)
        if self.file.is_new:
            self.file.set(0, "i", 1)
            if history.has_mask:
                self.file.set(368, "q", NOW_MS)
                self.file.set(376, "q", NOW_MS)
            elif history.late_created:
                self.file.set(28, "q", NOW_MS)
        if self.file.path.stat().st_size != INDEX_BYTES or self.file.get(0, "i") != 1:
            raise Broken("an index of another size or version")
        self.count = self.file.get(history.count_at, "q")
        self.blocks = self.file.get(4, "i")
        self.start = self.file.get(8, "q")

    def entry(self, block: int) -> dict[str, int]:
        if not self.start <= block < self.start + self.blocks:
            raise Broken(f"block {block} of {self.start} to {self.start + self.blocks}")
        with self.file.path.open("rb") as file:
            file.seek(HEADER + block % SLOTS * ENTRY)
            values = struct.unpack(self.history.entry, file.read(ENTRY))
        return dict(zip(self.history.order, values, strict=True))

    def set_entry(self, block: int, **values: int) -> None:
        at = HEADER + block % SLOTS * ENTRY
        for name, code in zip(self.history.order, self.history.entry[1:], strict=True):
            if name in values:
                self.file.set(at, code, values[name])
            at += struct.calcsize(">" + code)

    def begin_block(self, point: Callable[[str], None]) -> None:
        last = self.entry(self.last) if self.blocks else {"base": 0, "end": 0}
        self.blocks += 1
        self.file.set(4, "i", self.blocks)
        point("block-count")
        base = last["base"] + last["end"]
        self.set_entry(self.last, created=NOW_MS, base=base, end=0, updated=NOW_MS)
        point("block-entry")

    @property
    def last(self) -> int:
        return self.start + self.blocks - 1

    def data(self, block: int) -> Path:
        return self.folder / "data" / f"{self.entry(block)['base']:020d}.zbus"

    def set_count(self, count: int) -> None:
        self.count = count
        self.file.set(self.history.count_at, "q", count)


def can_step_on(folder: Path, history: History) -> bool:
    """Whether a reader of the original gets past every block: an empty one behind others, which the
    original also leaves itself, makes it throw."""
    if not (folder / f"{folder.name}.idx").exists():
        return True
    index = Index(folder, history)
    return index.blocks < 2 or index.entry(index.last)["end"] > 0


class Writer:
    """Appends to the last block; a full one is followed by a new one, also on opening."""

    def __init__(
        self, folder: Path, history: History, limit: int, point: Callable[[str], None] = nothing
    ) -> None:
        self.index, self.history, self.limit, self.point = (
            Index(folder, history), history, limit, point
        )  # fmt: skip
        self._room()

    def _room(self) -> None:
        index = self.index
        if not index.blocks or index.entry(index.last)["end"] >= self.limit:
            index.begin_block(self.point)
        path = index.data(index.last)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()

    def write(self, body: bytes, id: str = "", tag: str = "") -> None:
        self._room()
        index, history = self.index, self.history
        entry, block = index.entry(index.last), index.last
        at = entry["end"]
        number = index.count + history.first_number
        data = self.record(entry["base"], at, number, body, id, tag)
        path = index.data(block)
        if history.write_order == "half-count-half-end":
            self._store(path, at, data[:64])
            index.set_count(index.count + 1)
            self._store(path, at + 64, data[64:])
        elif history.write_order == "count-data-end":
            index.set_count(index.count + 1)
            self._store(path, at, data)
        else:
            self._store(path, at, data)
        self.point("data")
        index.set_entry(block, end=at + len(data), updated=NOW_MS)
        if history.write_order == "data-end-count":
            self.point("end")
            index.set_count(index.count + 1)
        self.point("count")

    def record(self, base: int, at: int, number: int, body: bytes, id: str, tag: str) -> bytes:
        history = self.history
        offset = base + at if history.is_absolute else at
        name, label = id.encode(), tag.encode()
        rest = struct.pack(">40p", name)
        rest += struct.pack(">q", NOW_MS if history.is_crc else 0)
        rest += struct.pack(">q128p", number, label)
        second = zlib.crc32(rest) if history.is_crc else NOW_MS
        return struct.pack(">qq", offset, second) + rest + struct.pack(">i", len(body)) + body

    @staticmethod
    def _store(path: Path, at: int, data: bytes) -> None:
        with path.open("r+b", buffering=0) as file:
            file.seek(at)
            file.write(data)


class Reader:
    """A group: the place is stored before its caller sees the message."""

    def __init__(self, folder: Path, group: str, history: History) -> None:
        self.index, self.history = Index(folder, history), history
        size = HEADER if history.has_mask else 256
        self.file = Words(folder / "reader" / f"{group}.rdx", size)
        if self.file.is_new and history.has_mask:
            self.file.set(368, "q", NOW_MS)
            self.file.set(376, "q", NOW_MS)
        if self.file.path.stat().st_size != size:
            raise Broken(f"a reader of {self.file.path.stat().st_size} bytes, not {size}")
        self.block, self.at = self.file.get(0, "q"), self.file.get(8, "i")
        if self.block < self.index.start:
            self.block, self.at = self.index.start, 0
            self._store()
        if self.index.blocks and self.block > self.index.last:
            self.block, self.at = self.index.last, self.index.entry(self.index.last)["end"]
        if self._is_there():
            self._parse()  # The number is read from the record; garbage throws here.

    def _store(self) -> None:
        # One mapping, two words: block first.
        self.file.set(0, "q", self.block)
        self.file.set(8, "i", self.at)

    def _is_there(self) -> bool:
        """Whether a message is next; steps into the next block, which may not be empty."""
        index = self.index
        if not index.blocks:
            return False
        while self.at >= index.entry(self.block)["end"]:
            if self.at > index.entry(self.block)["end"]:
                raise Broken(f"reads block {self.block} at {self.at}, behind its end")
            if self.block == index.last:
                return False
            self.block, self.at = self.block + 1, 0
            if index.entry(self.block)["end"] == 0:
                raise Broken("the last block is empty: the original throws and can't be opened")
        return True

    def _parse(self) -> tuple[bytes, int]:
        entry = self.index.entry(self.block)
        raw = self.index.data(self.block).read_bytes()[self.at : entry["end"]]
        if len(raw) < RECORD:
            raise Broken(f"{len(raw)} bytes at {self.at} of block {self.block}, no record")
        offset, second = struct.unpack_from(">qq", raw)
        wanted = entry["base"] + self.at if self.history.is_absolute else self.at
        if offset != wanted:
            raise Broken(f"a record that says offset {offset} at {wanted}")
        if self.history.is_crc and second != zlib.crc32(raw[16:200]):
            raise Broken(f"read position={self.at} invalid")
        (length,) = struct.unpack_from(">i", raw, 200)
        if not 0 <= length <= len(raw) - RECORD:
            raise Broken(f"a body of {length} bytes at {self.at}, {len(raw) - RECORD} are there")
        return raw[RECORD : RECORD + length], RECORD + length

    def read(self, about: Callable[[bytes], None] = lambda body: None) -> bytes | None:
        """The next message; `about` hears of it before the place is stored."""
        if not self._is_there():
            return None
        body, size = self._parse()
        about(body)
        self.at += size
        self._store()
        return body


def everything(folder: Path, history: History) -> list[bytes]:
    """All messages as the original finds them, the index checked against them."""
    index, found = Index(folder, history), list[bytes]()
    for block in range(index.start, index.start + index.blocks):
        entry = index.entry(block)
        if block > index.start:
            before = index.entry(block - 1)
            if entry["base"] != before["base"] + before["end"]:
                raise Broken(f"block {block} begins at {entry['base']}")
        raw, at = index.data(block).read_bytes(), 0
        while at < entry["end"]:
            (length,) = struct.unpack_from(">i", raw, at + 200)
            found.append(raw[at + RECORD : at + RECORD + length])
            at += RECORD + length
        if at != entry["end"]:
            raise Broken(f"block {block} ends at {at}, its entry says {entry['end']}")
    return found
