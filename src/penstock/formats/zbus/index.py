"""The index of a zbus queue: its header and its table of blocks, as values."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock import _core
from penstock.errors import CorruptError, FormatError
from penstock.formats.zbus import layouts
from penstock.formats.zbus.layouts import ENTRY_BYTES, HEADER_BYTES, SLOTS, ZbusLayout

NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class Block:
    """One entry: a segment of the queue."""

    number: int
    created_ms: int
    base: int
    end: int
    """Bytes used."""
    updated_ms: int

    @property
    def is_unborn(self) -> bool:
        """Counted, and then the machine stopped: nothing was ever written to it."""
        return self.created_ms == 0 and self.base == 0 and self.end == 0

    @property
    def slot_at(self) -> int:
        """Where its entry is in the file."""
        return slot_at(self.number)


@dataclass(frozen=True, slots=True)
class Index:
    """What an index file says."""

    path: Path
    layout: ZbusLayout
    header: dict[str, Any]
    blocks: tuple[Block, ...]

    @property
    def start(self) -> int:
        """Number of the oldest block."""
        return int(self.header["block_start"])

    @property
    def message_count(self) -> int:
        """Messages ever written, as it was last counted."""
        return int(self.header["message_count"])

    def write(self, field: str, value: int | bytes) -> None:
        """Stores one field of the header."""
        table = self.layout.index
        _core.write_file(self.path, table.offset_of(field), table.pack_field(field, value))

    def write_range(self, start: int, count: int) -> None:
        """Stores which blocks there are, with one write: both or none."""
        table = self.layout.index
        raw = table.pack_field("block_count", count) + table.pack_field("block_start", start)
        _core.write_file(self.path, table.offset_of("block_count"), raw)

    def write_block(self, block: Block) -> None:
        """Stores a block's entry."""
        raw = self.layout.entry.pack(
            created_ms=block.created_ms, base=block.base, end=block.end, updated_ms=block.updated_ms
        )
        _core.write_file(self.path, block.slot_at, raw)

    def write_end(self, block: Block, end: int) -> None:
        """Stores where a block ends."""
        at = block.slot_at + self.layout.entry.offset_of("end")
        _core.write_file(self.path, at, self.layout.entry.pack_field("end", end))


def slot_at(number: int) -> int:
    """Where the entry of block `number` is."""
    return HEADER_BYTES + number % SLOTS * ENTRY_BYTES


def find(folder: Path) -> Path | None:
    """The one `.idx` of a folder; its name does not matter, so a renamed folder still opens."""
    try:
        names = [p for p in folder.iterdir() if p.suffix == ".idx" and not p.name.startswith(".")]
    except (FileNotFoundError, NotADirectoryError):
        return None
    if len(names) > 1:
        seen = ", ".join(sorted(path.name for path in names))
        raise FormatError(folder, f"several index files: {seen}", "a zbus queue has one")
    return names[0] if names else None


def read(path: Path, layout: ZbusLayout) -> Index:
    """Reads and checks the whole file."""
    raw = path.read_bytes()
    if len(raw) != layouts.INDEX_BYTES:
        raise CorruptError(path, len(raw), f"{len(raw)} bytes", f"{layouts.INDEX_BYTES}")
    header = layout.index.unpack(raw)
    if header["version"] != 1:
        raise FormatError(path, f"version {header['version']}", "zbus wrote 1 only", at=0)
    start, count = header["block_start"], header["block_count"]
    if start < 0 or not 0 <= count <= SLOTS:
        found = f"block start {start}, block count {count}"
        raise CorruptError(path, 4, found, f"a start from 0 on and at most {SLOTS} blocks")
    blocks: list[Block] = []
    for number in range(start, start + count):
        word = layout.entry.unpack(raw, slot_at(number))
        if word["base"] < 0 or word["end"] < 0:
            at = slot_at(number)
            raise CorruptError(path, at, f"base {word['base']}, end {word['end']}", "0 or more")
        block = Block(number, word["created_ms"], word["base"], word["end"], word["updated_ms"])
        if blocks and not block.is_unborn and block.base <= blocks[-1].base:
            found = f"block {number} begins at {block.base}"
            raise CorruptError(path, block.slot_at, found, f"more than {blocks[-1].base}")
        blocks.append(block)
    return Index(path, layout, header, tuple(blocks))


def pack_new(layout: ZbusLayout, now_ms: int) -> bytes:
    """The index of an empty queue: one empty block."""
    values: dict[str, Any] = {"version": 1, "block_count": 1, "block_start": 0, "message_count": 0}
    values |= dict.fromkeys((f"ext{n}" for n in (1, 2, 3, 4)), b"")
    if layout.has_mask:
        values |= {"mask": 0, "updated_ms": now_ms, "created_ms": now_ms, "creator": b""}
    else:
        values |= {"flag": 0}
    entry = layout.entry.pack(created_ms=now_ms, base=0, end=0, updated_ms=now_ms)
    return (layout.index.pack(**values) + entry).ljust(layouts.INDEX_BYTES, b"\0")
