"""VQS files made by hand, and what is read back from them."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from penstock import Message, Queue

START = 16384


def header(path: Path) -> dict[str, int]:
    """The fixed part of a file of layout `doc`, read without any of our code."""
    raw = path.read_bytes()[:34]
    names = (
        "magic", "capacity_left", "count", "read_offset", "write_offset", "delay_seconds",
        "max_message_size", "retention_period", "wait_seconds", "visibility_timeout",
    )  # fmt: skip
    return dict(zip(names, struct.unpack("<5IHIIHH", raw), strict=True))


def make(path: Path, records: list[bytes], ring: int, at: int = 0, **fields: int) -> Path:
    """A file of layout `doc` whose first record begins `at` bytes into the ring."""
    data = bytearray(ring)
    used = b"".join(records)
    assert len(used) <= ring
    for index, byte in enumerate(used):
        data[(at + index) % ring] = byte
    values = {
        "magic": 0x01535156, "capacity_left": ring - len(used), "count": len(records),
        "read_offset": START + at % ring, "write_offset": START + (at + len(used)) % ring,
        "delay_seconds": 0, "max_message_size": 262144, "retention_period": 345600,
        "wait_seconds": 0, "visibility_timeout": 30,
    } | fields  # fmt: skip
    head = struct.pack("<5IHIIHH", *values.values())
    path.write_bytes(head.ljust(START, b"\0") + data)
    return path


def ring_of(path: Path) -> bytes:
    return path.read_bytes()[START:]


def read(path: Path, **options: Any) -> list[Message]:
    with Queue(path, read_only=True, **options) as queue:
        return list(queue.scan())
