"""Which struct stands at which byte of a segment, for `penstock inspect`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from penstock.disk.structs import Buffer, Struct
from penstock.formats.penstock import structs


def byte_map(path: Path, data: Buffer) -> Iterator[tuple[int, Struct]]:
    """Header, summary, then frame after frame; of the index, entry after entry."""
    if path.name == "index":
        yield from (
            (at, structs.INDEX_ENTRY) for at in range(0, len(data), structs.INDEX_ENTRY.size)
        )
        return
    yield 0, structs.HEADER
    if bytes(data[structs.KEY_CHECK_AT : structs.KEY_CHECK_AT + 8]).strip(b"\0"):
        yield structs.KEY_CHECK_AT, structs.KEY_CHECK
    if bytes(data[structs.SUMMARY_AT : structs.SUMMARY_AT + 8]).strip(b"\0"):
        yield structs.SUMMARY_AT, structs.SUMMARY
    yield from frames(data, structs.HEADER_BYTES)


def frames(data: Buffer, at: int) -> Iterator[tuple[int, Struct]]:
    """Frames one after another; the last is where none can be."""
    while at + structs.FRAME.size <= len(data):
        yield at, structs.FRAME
        size = structs.FRAME.unpack_field("size", data, at)
        if not structs.FRAME.size <= size <= len(data) - at:
            return
        at += -(-size // 8) * 8
