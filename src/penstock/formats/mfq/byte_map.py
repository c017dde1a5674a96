"""Which struct stands at which byte of an mfq file, for `penstock inspect`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from penstock.disk.structs import Buffer, Struct
from penstock.formats.mfq.structs import FRAME, FRAME_END, MAX_PAYLOAD_BYTES, OFFSET


def byte_map(path: Path, data: Buffer) -> Iterator[tuple[int, Struct]]:
    """Frames of a segment, or the one word of an offset file."""
    if path.suffix == ".offset":
        yield 0, OFFSET
        return
    at = 0
    while at + FRAME.size <= len(data):
        yield at, FRAME
        length = FRAME.unpack_field("length", data, at)
        end = at + FRAME.size + length
        if not 1 <= length <= MAX_PAYLOAD_BYTES or end >= len(data):
            return
        yield end, FRAME_END
        at = end + FRAME_END.size
