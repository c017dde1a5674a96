"""Names, sizes and the two offset files of an `mfq` queue."""

from __future__ import annotations

import hashlib
import itertools
import os
from contextlib import suppress
from pathlib import Path

from penstock import _core
from penstock.disk import files
from penstock.errors import CorruptError, FormatError
from penstock.formats.mfq import structs
from penstock.formats.segment_list import LISTINGS_MAX
from penstock.formats.values import SegmentInfo
from penstock.sidecar import control, notes, prepared

LOG, OFFSETS = "commitlog", "offset"
PRODUCER, CONSUMER = "producer.offset", "consumer.offset"
FEW = 8
"""Up to so many files are always asked for their size."""


def segment_path(queue: Path, base: int) -> Path:
    """The file of the segment that begins at `base`."""
    return queue / LOG / f"{base:020d}"


def offset_path(queue: Path, name: str) -> Path:
    """One of the two offset files."""
    return queue / OFFSETS / name


def read_offset(queue: Path, name: str) -> int:
    """What an offset file says; one that never came to be says 0, as a new queue's does."""
    path = offset_path(queue, name)
    raw = files.read_if_there(path, structs.OFFSET.size)
    if not raw:
        return 0
    if len(raw) < structs.OFFSET.size:
        raise CorruptError(path, 0, f"{len(raw)} bytes", "the 8 bytes of an offset")
    found: int = structs.OFFSET.unpack(raw)["offset"]
    if found < 0:
        raise CorruptError(path, 0, f"offset {found}", "0 or more")
    return found


def write_offset(queue: Path, name: str, offset: int) -> None:
    """Stores an offset, for good. Alone, under the opening lock."""
    path = offset_path(queue, name)
    data = structs.OFFSET.pack(offset=offset)
    if files.size_of(path) >= len(data):
        _core.write_file(path, 0, data, synced=True)
    else:
        _core.replace_file(path, data)


def is_made(queue: Path, name: str) -> bool:
    """Whether an offset file is there and has a value."""
    return files.size_of(offset_path(queue, name)) > 0


def list_segments(queue: Path, sidecar: Path) -> list[SegmentInfo]:
    """Segments by name, all of one size; a segment ends where the next one begins.

    An empty newest file is one that never came to be, and no segment.
    """
    while True:
        with suppress(FileNotFoundError):  # Another process trims: list what is left.
            return _list(queue, sidecar)


def _entries(log: Path) -> list[os.DirEntry[str]]:
    """What is in the folder, listed until nothing comes meanwhile. Of two segments that another
    program begins during one listing the first may be missing: a hole that is none."""
    found = files.entries(log)
    for _ in range(LISTINGS_MAX):
        seen, found = {entry.name for entry in found}, files.entries(log)
        if seen == {entry.name for entry in found}:
            break
    return found


def _list(queue: Path, sidecar: Path) -> list[SegmentInfo]:
    entries = _entries(queue / LOG)
    for entry in entries:
        is_segment = len(entry.name) == 20 and entry.name.isascii() and entry.name.isdigit()
        if not is_segment or not entry.is_file(follow_symlinks=False):
            what = "is no file named by an offset of 20 digits"
            raise FormatError(entry.path, what, "move it away: everything in there is a segment")
    found = _sized(sorted(entries, key=lambda entry: entry.name), sidecar)
    found = found[: _came_to_be(found, sidecar)]
    for base, path, size in found:
        if size != found[0][2] or size < structs.SMALLEST_FRAME_BYTES:
            what = f"has {size} bytes, the segment at {found[0][0]} has {found[0][2]}"
            raise FormatError(path, what, f"all segments have one size: is {base} a stray copy?")
    return SegmentInfo.in_a_row(found)


def _sized(entries: list[os.DirEntry[str]], sidecar: Path) -> list[tuple[int, Path, int]]:
    """With the size of each. Thousands of files are not asked for theirs: all have one size.

    Only what ends below the durable offset is surely there, whole; `check_size` compares the size
    when such a segment is opened.
    """
    words = control.peek(sidecar) if len(entries) > FEW else None
    durable = words.durable if words is not None else 0
    size = entries[0].stat().st_size if entries else 0
    found = []
    for entry, after in itertools.zip_longest(entries, entries[1:]):
        base, end = int(entry.name), int(after.name) if after is not None else durable + 1
        is_told = end <= durable and end - base <= size
        found.append((base, Path(entry.path), size if is_told else entry.stat().st_size))
    return found


def check_size(info: SegmentInfo) -> None:
    """Refuses a segment that has another size than the first one: the listing did not look."""
    size = info.path.stat().st_size
    if info.end is not None and size != info.size:
        advice = "all segments have one size: is it a stray copy?"
        raise FormatError(info.path, f"has {size} bytes, the others have {info.size}", advice)


def _came_to_be(found: list[tuple[int, Path, int]], sidecar: Path) -> int:
    """How many there really are: a power loss may have kept the names of several and not the bytes.

    Nothing behind an empty file was ever synced, if the queue is ours and did not say that it was.
    """
    empty = next((at for at, (_, _, size) in enumerate(found) if size == 0), len(found))
    if empty < len(found) - 1:
        words = control.peek(sidecar)
        is_ours = notes.exists(sidecar, notes.IDENTITY)
        if not is_ours or (words is not None and found[empty][0] < words.durable):
            return len(found)
    return empty


def make_segment(queue: Path, sidecar: Path, base: int, size: int) -> None:
    """A new segment of zeros, whole and synced before it has its name."""
    prepared.place(prepared.make(sidecar, size, synced=True), segment_path(queue, base))


def is_unused(info: SegmentInfo) -> bool:
    """Whether nothing was ever written at a segment's beginning."""
    return info.base == 0 and not any(files.read_start(info.path, structs.FRAME.size))


def identity_of(queue: Path, sidecar: Path) -> str:
    """The id kept in the sidecar; without one, a fingerprint of the oldest frame."""
    known = notes.read(sidecar, notes.IDENTITY) or {}
    if isinstance(known.get("id"), str):
        return str(known["id"])
    infos = list_segments(queue, sidecar)
    head = b""
    if infos and read_offset(queue, PRODUCER) > infos[0].base:
        with files.reading(infos[0].path) as stream:
            head = stream.read(structs.FRAME.size)
            length = structs.FRAME.unpack(head)["length"] if len(head) == 4 else 0
            head += stream.read(max(0, min(length, 4096)))
    base = infos[0].base if infos else 0
    return hashlib.sha256(base.to_bytes(8, "little") + head).hexdigest()[:32]


def keep_identity(sidecar: Path, identity: str) -> None:
    """Writes the id down, so that it stays when the oldest frame goes."""
    if not notes.exists(sidecar, notes.IDENTITY):
        notes.write(sidecar, notes.IDENTITY, {"format": "mfq", "layout": "1", "id": identity})
