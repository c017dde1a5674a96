"""Which struct stands at which byte of an mfq file, for `penstock inspect`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from penstock.disk.structs import Buffer, Struct, frames_in
from penstock.formats.mfq.structs import FRAME, FRAME_END, MAX_PAYLOAD_BYTES, OFFSET

BESIDE = FRAME.size + FRAME_END.size


def byte_map(path: Path, data: Buffer) -> Iterator[tuple[int, Struct]]:
    """Frames of a segment, or the one word of an offset file."""
    if path.suffix == ".offset":
        return iter([(0, OFFSET)])
    return frames_in(
        data, 0, FRAME, "length", beside=BESIDE, least=BESIDE + 1, most=BESIDE + MAX_PAYLOAD_BYTES,
        foot=FRAME_END,
    )  # fmt: skip
