"""VQS read aloud: how its Go program opens, pushes and pops, with plain files.

It believes its header: nothing is looked for, nothing is repaired, nothing is synced. What it would
pop as garbage, or panic over, raises `Broken`. Its defects near a full ring are kept away from by
whoever calls it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

from tests.formats.vqs import gob
from tests.originals.zbus_twin import Broken, nothing

DOC, LATER = "<5IHIIHH", "<5IIIHHHH"
"""The header: in the ring's own file, and in one beside it."""
SLACK = 64
"""The original goes wrong when 0 to 3 bytes are left after a push: nobody comes that close."""


class Ring:
    """The queue as the program maps it."""

    def __init__(
        self, path: Path, layout: str, point: Callable[[str], None] = nothing, size: int = 65536
    ) -> None:
        self.path, self.layout, self.point = path, layout, point
        is_doc = layout == "doc"
        self.data = path if is_doc else path / "data.dat"
        self.meta = path if is_doc else path / "meta.dat"
        self.base = 16384 if is_doc else 0
        if not self.meta.exists():
            self._create(size)
        self.size = self.data.stat().st_size - self.base

    def _create(self, size: int) -> None:
        if self.layout == "doc":
            head = (0x01535156, size, 0, 16384, 16384, 0, 262144, 345600, 0, 30)
            self.path.write_bytes(struct.pack(DOC, *head).ljust(16384, b"\0") + bytes(size))
            return
        self.path.mkdir(parents=True)
        later = (0x01535156, size, 0, 0, 0, 262144, 345600, 0, 0, 30, 0xADDE)
        self.meta.write_bytes(struct.pack(LATER, *later).ljust(1 << 20, b"\0"))
        self.data.write_bytes(bytes(size))

    def words(self) -> tuple[int, int, int, int]:
        """Capacity left, count, next read, next write."""
        with self.meta.open("rb") as file:
            _, capacity, count, read, write = struct.unpack("<5I", file.read(20))
        return capacity, count, read, write

    def _set(self, at: int, value: int) -> None:
        with self.meta.open("r+b", buffering=0) as file:
            file.seek(at)
            file.write(struct.pack("<I", value))

    def _ring(self, at: int, count: int) -> bytes:
        raw = self.data.read_bytes()[self.base :]
        at -= self.base
        if not 0 <= at < self.size or not 0 <= count <= self.size:
            raise Broken(f"{count} bytes at {at} of a ring of {self.size}")
        return (raw + raw)[at : at + count]

    def push(self, body: bytes, id: str = "") -> bool:
        """Whether there was room."""
        capacity, count, _, write = self.words()
        record = gob.record(body, id)
        if len(record) + SLACK > capacity:
            return False
        at = write - self.base
        with self.data.open("r+b", buffering=0) as file:
            first = record[: self.size - at]
            file.seek(self.base + at)
            file.write(first)
            file.seek(self.base)
            file.write(record[len(first) :])
        self.point("data")
        self._set(4, capacity - len(record))
        self._set(8, count + 1)
        self._set(16, self.base + (at + len(record)) % self.size)
        self.point("header")
        return True

    def _record(self, read: int) -> tuple[bytes, int]:
        length = int.from_bytes(self._ring(read, 4), "little")
        if not 0 < length <= self.size - 4:
            raise Broken(f"a record of {length} bytes at {read}")
        return body_of(self._ring(read, 4 + length)[4:]), 4 + length

    def pop(self, about: Callable[[bytes], None] = lambda body: None) -> bytes | None:
        """The first message, gone with the call."""
        capacity, count, read, _ = self.words()
        if not count:
            return None
        body, size = self._record(read)
        about(body)
        self._set(4, capacity + size)
        self._set(8, count - 1)
        self._set(12, self.base + (read - self.base + size) % self.size)
        return body

    def everything(self) -> list[bytes]:
        """All messages; the four words must agree with each other and with the records."""
        capacity, count, read, write = self.words()
        found, at, used = [], read, 0
        for _ in range(count):
            body, size = self._record(at)
            found.append(body)
            at, used = self.base + (at - self.base + size) % self.size, used + size
        if at != write or used + capacity != self.size:
            raise Broken(
                f"{count} records end at {at} and take {used}; the header says {write}, "
                f"{capacity} left of {self.size}"
            )
        return found


def body_of(raw: bytes) -> bytes:
    """The body in a gob stream: its last message is the value, whose field 1 it is."""
    at = 0

    def uint() -> int:
        nonlocal at
        first = raw[at]
        at += 1
        if first < 128:
            return first
        size = 256 - first
        at += size
        return int.from_bytes(raw[at - size : at], "big")

    while True:
        length = uint()
        end = at + length
        if not 0 < length <= len(raw) - at:
            raise Broken(f"a gob message of {length} bytes where {len(raw) - at} are left")
        kind = uint()
        if not kind & 1:  # A positive type: the value itself.
            break
        at = end
    field, body = -1, b""
    while delta := uint():
        field += delta
        if field > 1:
            break
        size = uint()
        if field == 1:
            body = raw[at : at + size]
        at += size
    return body
