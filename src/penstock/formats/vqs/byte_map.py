"""Which struct stands at which byte of a VQS file, for `penstock inspect`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from penstock.disk import files
from penstock.disk.structs import Buffer, Struct
from penstock.formats.vqs.structs import HEADER, HEADER_BYTES, LATER_HEADER, MAGIC, MARKER, RECORD


def byte_map(path: Path, data: Buffer) -> Iterator[tuple[int, Struct]]:
    """The header, where the file has one, then the records by their place in the file."""
    if path.name == "data.dat" and (path.parent / "meta.dat").exists():
        head = files.read_start(path.parent / "meta.dat", LATER_HEADER.size)
        yield from _records(LATER_HEADER, head, data, 0)
        return
    if bytes(data[:3]) != MAGIC or len(data) < LATER_HEADER.size:
        return
    is_later = LATER_HEADER.unpack_field("marker", data) == MARKER and path.suffix == ".dat"
    struct = LATER_HEADER if is_later else HEADER
    yield 0, struct
    if len(data) > HEADER_BYTES and path.name != "meta.dat":
        yield from _records(struct, bytes(data[: struct.size]), data, HEADER_BYTES)


def _records(struct: Struct, head: bytes, data: Buffer, start: int) -> Iterator[tuple[int, Struct]]:
    """Followed from the oldest on; a record that runs past the end goes on at `start`."""
    ring = len(data) - start
    if len(head) < struct.size or ring < RECORD.size:
        return
    words = struct.unpack(head)
    found, at, left = [], words["read_offset"], ring
    for _ in range(words["count"]):
        if not start <= at <= len(data) - RECORD.size:
            break
        found.append(at)
        size = RECORD.size + RECORD.unpack_field("record_bytes", data, at)
        left -= size
        if left < 0:
            break
        at = start + (at - start + size) % ring
    for at in sorted(found):
        yield at, RECORD
