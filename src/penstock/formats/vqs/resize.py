"""Another size for the ring, while it is in use.

The messages are copied to where they belong in a ring of the new size, in a file of their own;
that is synced and renamed over the old one while nobody appends. Offsets stay what they are. The
others notice by the generation in the control block and open the file again; should we die before
it is raised, whoever appends next sees that the file is another one (`VqsHeader`).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from penstock import _core
from penstock.errors import OptionError
from penstock.formats.vqs import header, layouts
from penstock.sidecar import prepared

if TYPE_CHECKING:
    from penstock.formats.vqs.format import VqsFormat

COPY_BYTES = 1 << 20


def resize(format: VqsFormat, file_bytes: int) -> None:
    """Does it; the size is rounded up to whole pages."""
    start, page = format.stage.start, layouts.PAGE_BYTES
    ring = -(-(file_bytes - start) // page) * page
    if not page <= ring <= layouts.MAX_FILE_BYTES - start:
        expected = f"{start + page} to {layouts.MAX_FILE_BYTES} bytes"
        raise OptionError("file_bytes", file_bytes, expected)
    format.alone(lambda segment: _replace(format, segment, ring))


def _replace(format: VqsFormat, segment: _core.Segment, ring: int) -> None:
    end, stage = format.store.end(), format.stage
    if end.tail - end.head > ring:
        least = stage.start + end.tail - end.head
        expected = f"at least {least}: so much is in use (queue.sync() frees what is acked)"
        raise OptionError("file_bytes", stage.start + ring, expected)
    words = format.words()
    used = format.ring_bytes - words["capacity_left"]
    words |= {
        "capacity_left": ring - used,
        "read_offset": stage.start + (end.tail - used) % ring,
        "write_offset": stage.start + end.tail % ring,
    }
    raw = header.read_bytes(format.path, stage)
    raw = header.pack(stage, format.header.values | words) + raw[stage.header.size :]
    head = None if stage.meta else raw
    fresh = prepared.make(format.sidecar, stage.start + ring, head=head, suffix=".bin")
    try:
        _copy(segment, fresh, stage.start, ring, end.head, end.tail)
        _core.sync_file(fresh)
    except BaseException:
        prepared.drop(fresh)
        raise
    # Everyone looks again from here on: before the rename they find the old file and wait for us.
    format.store.need_shared().bump_generation()
    prepared.place(fresh, format.data_path)
    if stage.meta:
        _core.write_file(stage.header_path(format.path), 0, raw[: stage.header.size], synced=True)


def _copy(segment: _core.Segment, to: Path, start: int, ring: int, head: int, tail: int) -> None:
    while head < tail:
        at = head % ring
        length = min(COPY_BYTES, tail - head, ring - at)
        prepared.write(to, start + at, segment.read(segment.position(head), length))
        head += length
