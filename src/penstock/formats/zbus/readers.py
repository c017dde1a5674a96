"""A group's own files in a zbus queue: `.rdx`, where it reads next, and `.nak`, what it owes.

The originals move the bookmark before the consumer sees the message, and only the NAK file knows
what was not acked. So a group whose leases fit into a NAK file (layouts crc and corr-abs, a
window of at most 999) keeps the next unread message in its `.rdx`, every other group the lowest
unacked one: an original program that opens the folder then repeats messages and loses none.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from penstock import _core
from penstock.disk import files
from penstock.disk.structs import Struct
from penstock.errors import UnsupportedError
from penstock.formats.zbus import structs
from penstock.formats.zbus.structs import NAK, NAK_RECORDS, ZbusLayout
from penstock.logs import logger
from penstock.records import dataclass
from penstock.sidecar import notes

FILTER_BYTES = 127


@dataclass(frozen=True, slots=True)
class ReaderFile:
    """What a `.rdx` says."""

    block: int
    offset: int
    filter: str


@dataclass(frozen=True, slots=True)
class Naks:
    """What a `.nak` says."""

    window: int
    timeout_ms: int
    out: tuple[tuple[int, int], ...]
    """Offset and how often it was handed out, for every message that is out."""


def rdx_path(queue: Path, group: str) -> Path:
    """A group's reader file."""
    return queue / "reader" / f"{group}.rdx"


def nak_path(queue: Path, group: str) -> Path:
    """A group's NAK file."""
    return queue / "reader" / f"{group}.nak"


def names(queue: Path) -> list[str]:
    """Groups that have a reader file."""
    found = [entry for entry in files.entries(queue / "reader") if entry.name.endswith(".rdx")]
    return sorted(one.name[:-4] for one in found if one.is_file(follow_symlinks=False))


def bookmarks(queue: Path) -> dict[str, str]:
    """Block and offset of every reader file, as they stand there."""
    return {name: files.read_start(rdx_path(queue, name), 12).hex() for name in names(queue)}


def moved(queue: Path, sidecar: Path) -> set[str]:
    """Groups whose reader file says something else than when the last process left: that is where
    a zbus program has moved them."""
    known = (notes.read(sidecar, notes.ZBUS_PLACES) or {}).get("readers")
    if not isinstance(known, dict):
        return set()
    return {name for name, raw in bookmarks(queue).items() if known.get(name, raw) != raw}


def read_reader(path: Path) -> ReaderFile | None:
    """Where the group is; none when the file is missing or too short to say."""
    raw = files.read_if_there(path)
    table = structs.READER_FLAG  # Its fields are the beginning of every layout's.
    if raw is None or len(raw) < table.size:
        return None
    word = table.unpack(raw)
    return ReaderFile(word["block"], word["offset"], word["filter"].decode("utf-8", "replace"))


def read_naks(path: Path, layout: ZbusLayout) -> Naks | None:
    """What is out; the status byte decides, which the original forgot when it read its file."""
    table, raw = layout.nak_record, files.read_if_there(path)
    if table is None or raw is None or len(raw) < NAK.size + NAK_RECORDS * table.size:
        return None
    head = NAK.unpack(raw)
    out = sorted((offset, max(1, tries)) for _, offset, tries in _out(table, raw) if offset >= 0)
    return Naks(head["window"], head["timeout_ms"], tuple(out))


def _out(table: Struct, raw: bytes) -> Iterator[tuple[int, int, int]]:
    """The records whose messages are out: byte, offset, and how often it was handed out."""
    for at in range(NAK.size, NAK.size + NAK_RECORDS * table.size, table.size):
        if table.unpack_field("status", raw, at) == 1:
            yield at, *(table.unpack_field(name, raw, at) for name in ("offset", "retries"))


def set_back(queue: Path, layout: ZbusLayout, end: tuple[int, int], tail: int) -> None:
    """Bookmarks beyond the end of the queue, its last block and the byte in it, are set back to it;
    nothing is out there. Alone, under the opening lock."""
    for name in names(queue):
        path, nak = rdx_path(queue, name), nak_path(queue, name)
        mark, owed = read_reader(path), read_naks(nak, layout)
        if mark is not None and (mark.block, mark.offset) > end:
            logger("zbus").warning("%s: block %d, byte %d lies beyond the end; set back to %d, %d",
                        path, mark.block, mark.offset, *end)  # fmt: skip
            write_reader(path, *end)
        if owed is not None and any(offset >= tail for offset, _ in owed.out):
            _drop_naks(nak, layout, tail)


def write_reader(path: Path, block: int, offset: int) -> None:
    """Stores where a group reads next, for good."""
    table = structs.READER_FLAG
    raw = table.pack_field("block", block) + table.pack_field("offset", offset)
    _core.write_file(path, table.offset_of("block"), raw, synced=True)


def _drop_naks(path: Path, layout: ZbusLayout, tail: int) -> None:
    table, raw = layout.nak_record, files.read_bytes(path)
    assert table is not None
    for at, offset, _ in _out(table, raw):
        if offset >= tail:
            _core.write_file(path, at + table.offset_of("status"), b"\0")
    _core.sync_file(path)


def _make(path: Path, raw: bytes) -> None:
    """Makes a file, unless it is there, whole. One that was cut short says nothing: it is made
    anew, and what we know of the group ourselves is stored there again."""
    files.make_folder(path.parent)
    found, size = files.size_of(path), len(raw)
    if found < size and path.exists():
        logger("zbus").warning("%s: %d bytes, expected %d; it is made anew", path, found, size)
    if found < size:
        _core.replace_file(path, raw)


def make_reader(path: Path, layout: ZbusLayout, now_ms: int) -> None:
    """An `.rdx` at the beginning, if there is none yet."""
    _make(path, structs.pack_new(layout.reader, now_ms))


def make_naks(path: Path, layout: ZbusLayout, window: int, timeout_s: float, now_ms: int) -> None:
    """A `.nak` with nothing out, if there is none yet."""
    assert layout.nak_record is not None
    head = structs.pack_new(NAK, now_ms, window=window, timeout_ms=int(timeout_s * 1000))
    _make(path, head.ljust(NAK.size + NAK_RECORDS * layout.nak_record.size, b"\0"))


def write_filter(path: Path, layout: ZbusLayout, tags: str) -> None:
    """Stores the group's filter where the originals look for it."""
    raw = tags.encode()
    if len(raw) > FILTER_BYTES:
        raise UnsupportedError(
            f"the filter has {len(raw)} bytes, format zbus holds {FILTER_BYTES}; "
            f"format penstock holds 4096, or open the group with native_cursor=False"
        )
    mark = read_reader(path)
    if mark is None or mark.filter != tags:
        table = layout.reader
        _core.write_file(path, table.offset_of("filter"), table.pack_field("filter", raw))
