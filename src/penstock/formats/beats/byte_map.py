"""Which struct stands at which byte of a Beats file, for `penstock inspect`.

Frames of encrypted and of LZ4 stream layouts are not in the file as they are: there only the
header is shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from penstock.disk.structs import Buffer, Struct, frames_in
from penstock.formats.beats import segments, structs


def byte_map(path: Path, data: Buffer) -> Iterator[tuple[int, Struct]]:
    """The state, or the header and then frame after frame."""
    if path.name == "state.dat":
        yield 0, structs.STATE_0 if bytes(data[:4]) == bytes(4) else structs.STATE_1
        return
    found = segments.identify(path, None)
    if isinstance(found, segments.Unreadable):
        yield 0, structs.HEADER_PLAIN
        return
    yield 0, found.kind.header
    if not found.kind.is_encrypted and not found.kind.is_stream:
        begin, head, foot = found.kind.data_at, structs.FRAME_HEAD, structs.FRAME_FOOT
        yield from frames_in(data, begin, head, "size", least=structs.FRAME_BYTES, foot=foot)
