"""Which struct stands at which byte of a segment, for `penstock inspect`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from penstock.disk.structs import Buffer, Struct
from penstock.formats.penstock.structs import (
    FRAME,
    HEADER,
    HEADER_BYTES,
    INDEX_ENTRY,
    KEY_CHECK,
    KEY_CHECK_AT,
    SUMMARY,
    SUMMARY_AT,
)


def byte_map(path: Path, data: Buffer) -> Iterator[tuple[int, Struct]]:
    """Header, summary, then frame after frame; of the index, entry after entry."""
    if path.name == "index":
        yield from ((at, INDEX_ENTRY) for at in range(0, len(data), INDEX_ENTRY.size))
        return
    yield 0, HEADER
    if bytes(data[KEY_CHECK_AT : KEY_CHECK_AT + 8]).strip(b"\0"):
        yield KEY_CHECK_AT, KEY_CHECK
    if bytes(data[SUMMARY_AT : SUMMARY_AT + 8]).strip(b"\0"):
        yield SUMMARY_AT, SUMMARY
    yield from frames(data, HEADER_BYTES)


def frames(data: Buffer, at: int) -> Iterator[tuple[int, Struct]]:
    """Frames one after another; the last is where none can be."""
    while at + FRAME.size <= len(data):
        yield at, FRAME
        size = FRAME.unpack_field("size", data, at)
        if not FRAME.size <= size <= len(data) - at:
            return
        at += -(-size // 8) * 8
