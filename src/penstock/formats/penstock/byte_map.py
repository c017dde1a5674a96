"""Which struct stands at which byte of a segment, for `penstock inspect`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from penstock.disk.structs import Buffer, Struct, frames_in
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
    frame = structs.FRAME
    yield from frames_in(data, structs.HEADER_BYTES, frame, "size", least=frame.size, align=8)
