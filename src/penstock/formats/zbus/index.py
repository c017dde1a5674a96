"""The index of a zbus queue: its header and its table of blocks, as values."""

from __future__ import annotations

import os
from bisect import bisect_left
from pathlib import Path
from typing import Any

from penstock import _core
from penstock.disk import files
from penstock.errors import CorruptError, FormatError
from penstock.formats.values import SegmentInfo
from penstock.formats.zbus import structs
from penstock.formats.zbus.structs import ENTRY_BYTES, HEADER_BYTES, SLOTS, ZbusLayout
from penstock.records import dataclass

NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class Block:
    """One entry: a segment of the queue."""

    number: int
    created_ms: int
    base: int
    end: int
    """How many bytes of the block are used."""
    updated_ms: int
    queue: Path
    """The folder of its queue."""

    @property
    def is_unborn(self) -> bool:
        """Counted, and then the machine stopped: nothing was ever written to it."""
        return self.created_ms == 0 and self.base == 0 and self.end == 0

    @property
    def path(self) -> Path:
        """The file of the block."""
        return block_path(self.queue, self.base)

    @property
    def tail(self) -> int:
        """The offset at which its last frame ends, by its entry."""
        return self.base + self.end

    def info(self, end: int | None) -> SegmentInfo:
        """The block as a segment that ends at `end`."""
        return SegmentInfo(self.path, self.base, self.base, end, 0)


@dataclass(frozen=True, slots=True)
class IndexHead:
    """What the header of an index file says. Entries are read one by one where they are needed: a
    roll and a trim cost the same with ten thousand of them."""

    path: Path
    layout: ZbusLayout
    header: dict[str, Any]

    @property
    def start(self) -> int:
        """Number of the oldest block."""
        return int(self.header["block_start"])

    @property
    def count(self) -> int:
        """How many blocks there are."""
        return int(self.header["block_count"])

    @property
    def message_count(self) -> int:
        """Messages ever written, as it was last counted."""
        return int(self.header["message_count"])

    def find(self, base: int) -> Block | None:
        """The block that begins at `base`."""
        file = files.descriptor(self.path)
        try:

            def block(number: int) -> Block:
                raw = files.read_at(file, ENTRY_BYTES, slot_at(number))
                return _block(self.path, self.layout, number, raw, 0)

            def place(number: int) -> int:
                # Counted, and not entered yet: behind all that are.
                known = block(number)
                return known.base if number == self.start or not known.is_unborn else 1 << 64

            numbers = range(self.start, self.start + self.count)
            at = bisect_left(numbers, base, key=place)
            found = block(numbers[at]) if at < len(numbers) else None
        finally:
            os.close(file)
        return found if found is not None and found.base == base else None

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
        _core.write_file(self.path, slot_at(block.number), raw)


@dataclass(frozen=True, slots=True)
class Index(IndexHead):
    """What all of an index file says."""

    blocks: tuple[Block, ...]

    @property
    def born(self) -> tuple[Block, ...]:
        """The blocks without those at the end that were counted before their entry was written.
        There is always a first one, though it may not have begun yet."""
        blocks = self.blocks or (Block(self.start, 0, 0, 0, 0, self.path.parent),)
        while len(blocks) > 1 and blocks[-1].is_unborn:
            blocks = blocks[:-1]
        return blocks


def slot_at(number: int) -> int:
    """Where the entry of block `number` is."""
    return HEADER_BYTES + number % SLOTS * ENTRY_BYTES


def block_path(queue: Path, base: int) -> Path:
    """The file of the block that begins at `base`."""
    return queue / "data" / f"{base:020d}.zbus"


def find(folder: Path) -> Path | None:
    """The one `.idx` of a folder; its name does not matter, so a renamed folder still opens."""
    names = [n for n in files.names_in(folder) if n.endswith(".idx") and not n.startswith(".")]
    if len(names) > 1:
        seen = ", ".join(sorted(names))
        raise FormatError(folder, f"several index files: {seen}", "move all but one away")
    return folder / names[0] if names else None


def look(path: Path, layout: ZbusLayout) -> IndexHead:
    """Reads and checks the header alone."""
    file = files.descriptor(path)
    try:
        return _head(path, layout, files.read_at(file, HEADER_BYTES, 0), os.fstat(file).st_size)
    finally:
        os.close(file)


def _head(path: Path, layout: ZbusLayout, raw: bytes, size: int) -> IndexHead:
    if size != structs.INDEX_BYTES:
        raise CorruptError(path, size, f"{size} bytes", f"the {structs.INDEX_BYTES} of an index")
    header = layout.index.unpack(raw)
    if header["version"] != 1:
        raise FormatError(path, f"version {header['version']}", "zbus wrote version 1 only", at=0)
    start, count = header["block_start"], header["block_count"]
    if start < 0 or not 0 <= count <= SLOTS:
        found = f"block start {start}, block count {count}"
        raise CorruptError(path, 4, found, f"a start from 0 on and at most {SLOTS} blocks")
    return IndexHead(path, layout, header)


def _block(path: Path, layout: ZbusLayout, number: int, raw: bytes, at: int) -> Block:
    word = layout.entry.unpack(raw, at)
    if word["base"] < 0 or word["end"] < 0:
        found = f"base {word['base']}, end {word['end']}"
        raise CorruptError(path, slot_at(number), found, "0 or more")
    return Block(
        number, word["created_ms"], word["base"], word["end"], word["updated_ms"], path.parent
    )


def read(path: Path, layout: ZbusLayout) -> Index:
    """Reads and checks the whole file."""
    raw = files.read_bytes(path)
    head = _head(path, layout, raw, len(raw))
    blocks: list[Block] = []
    for number in range(head.start, head.start + head.count):
        block = _block(path, layout, number, raw, slot_at(number))
        if blocks and not block.is_unborn and block.base <= blocks[-1].base:
            found = f"block {number} begins at {block.base}"
            raise CorruptError(path, slot_at(number), found, f"more than {blocks[-1].base}")
        blocks.append(block)
    return Index(path, layout, head.header, tuple(blocks))


def pack_new(layout: ZbusLayout, now_ms: int) -> bytes:
    """The index of an empty queue: one empty block."""
    head = structs.pack_new(layout.index, now_ms, version=1, block_count=1)
    return (head + structs.pack_new(layout.entry, now_ms)).ljust(structs.INDEX_BYTES, b"\0")
