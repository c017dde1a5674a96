"""Another size for the ring, while it is in use.

The messages are copied to where they belong in a ring of the new size, in a file of their own,
while others append and free. The native core then copies what came meanwhile and renames the file
over the old one (`VqsHeader.replace`). Offsets stay what they are. The others notice by the
generation in the control block and open the file again; should we die before it is raised, the
next append sees that the file is another one.
"""

from __future__ import annotations

from pathlib import Path

from penstock import _core
from penstock.errors import OptionError
from penstock.formats.values import End
from penstock.formats.vqs import structs
from penstock.formats.vqs.structs import Stage

COPY_BYTES = 1 << 20


def ring_bytes(stage: Stage, file_bytes: int) -> int:
    """The ring of a file of this size, rounded up to whole pages."""
    start, page = stage.start, structs.PAGE_BYTES
    ring = -(-(file_bytes - start) // page) * page
    if not page <= ring <= structs.MAX_FILE_BYTES - start:
        expected = f"{start + page} to {structs.MAX_FILE_BYTES} bytes"
        raise OptionError("file_bytes", file_bytes, expected)
    return ring


def check(stage: Stage, used: int, ring: int) -> None:
    """An error when more than `ring` bytes are in use."""
    if used > ring:
        expected = (
            f"at least {stage.start + used}: so much is in use (queue.sync() frees what is acked)"
        )
        raise OptionError("file_bytes", stage.start + ring, expected)


def copy_ring(segment: _core.Segment, to: Path, start: int, ring: int, end: End) -> None:
    """Copies the messages into a ring of this size, which begins at `start` of its file, and syncs
    that. It is not in place yet."""
    head = end.head
    while head < end.tail:
        at = head % ring
        length = min(COPY_BYTES, end.tail - head, ring - at)
        _core.write_file(to, start + at, segment.read(segment.position(head), length))
        head += length
    _core.sync_file(to)
