"""Which struct stands at which byte of a zbus file, for `penstock inspect`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from penstock.disk.structs import Buffer, Struct, frames_in
from penstock.formats.zbus import sniffing, structs
from penstock.formats.zbus.structs import ZbusLayout


def byte_map(path: Path, data: Buffer) -> Iterator[tuple[int, Struct]]:
    """By the file's suffix, with the layout of the queue that it belongs to."""
    folder = path.parent if path.suffix == ".idx" else path.parent.parent
    layout = structs.TABLE[sniffing.sniff(folder) or "doc000"]
    match path.suffix:
        case ".idx":
            yield from _index(layout, data)
        case ".zbus":
            frame, head = layout.frame, layout.frame.size
            yield from frames_in(data, 0, frame, "length", beside=head, least=head)
        case ".rdx":
            yield 0, layout.reader
        case ".nak":
            yield from _unacked(layout, data)


def _index(layout: ZbusLayout, data: Buffer) -> Iterator[tuple[int, Struct]]:
    yield 0, layout.index
    if len(data) < layout.index.size:
        return
    header = layout.index.unpack(data)
    for block in range(max(0, min(header["block_count"], structs.SLOTS))):
        slot = (header["block_start"] + block) % structs.SLOTS
        yield structs.HEADER_BYTES + slot * structs.ENTRY_BYTES, layout.entry


def _unacked(layout: ZbusLayout, data: Buffer) -> Iterator[tuple[int, Struct]]:
    yield 0, structs.NAK
    record = layout.nak_record
    for number in range(structs.NAK_RECORDS if record is not None else 0):
        assert record is not None
        at = structs.HEADER_BYTES + number * record.size
        if at + record.size <= len(data) and data[at]:
            yield at, record
