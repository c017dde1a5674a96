"""MappedFileQueues.Stream read aloud: one producer, one consumer, as the .NET ones start and go on.

The producer believes `producer.offset`. The consumer never looks at it: the length word at its own
place decides, so that bytes behind the end are a message to it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

from tests.originals.zbus_twin import Broken, nothing

SMALLEST = 6
"""A frame with one byte; with less room left no end of a segment is marked."""
END, SEGMENT_END = 0xFF, 0xEE


class Files:
    """What both sides share."""

    def __init__(self, path: Path, segment_size: int) -> None:
        self.log, self.offsets, self.size = path / "commitlog", path / "offset", segment_size
        self.log.mkdir(parents=True, exist_ok=True)
        self.offsets.mkdir(exist_ok=True)

    def offset(self, name: str) -> int:
        """Made with 0 by whoever asks first."""
        path = self.offsets / name
        if not path.exists():
            path.write_bytes(bytes(8))
        raw = path.read_bytes()
        if len(raw) != 8:
            raise Broken(f"{name} has {len(raw)} bytes")
        (value,) = struct.unpack("<q", raw)
        return int(value)

    def set_offset(self, name: str, value: int) -> None:
        with (self.offsets / name).open("r+b", buffering=0) as file:
            file.write(struct.pack("<q", value))

    def bases(self) -> list[int]:
        try:
            return sorted(int(entry.name) for entry in self.log.iterdir())
        except ValueError as error:
            raise Broken(f"a file in commitlog that is no segment: {error}") from error

    def segment(self, offset: int) -> Path | None:
        """The file that holds `offset`: the newest that begins at or below it."""
        held = [base for base in self.bases() if base <= offset]
        if not held or offset - held[-1] > self.size:
            return None
        path = self.log / f"{held[-1]:020d}"
        if path.stat().st_size != self.size:
            raise Broken(f"{path.name} has {path.stat().st_size} bytes, not {self.size}")
        return path

    def begin(self, offset: int) -> Path:
        path = self.log / f"{offset:020d}"
        path.write_bytes(bytes(self.size))
        return path

    def raw(self, path: Path, at: int, count: int) -> bytes:
        with path.open("rb") as file:
            file.seek(at)
            return file.read(count)


class Producer(Files):
    """Frame first, then `producer.offset`."""

    def __init__(
        self, path: Path, segment_size: int, point: Callable[[str], None] = nothing
    ) -> None:
        super().__init__(path, segment_size)
        self.point = point
        self.next = self.offset("producer.offset")

    def produce(self, body: bytes) -> None:
        path = self.segment(self.next) or self.begin(self.next)
        at = self.next - int(path.name)
        if at + len(body) + 5 > self.size:
            if self.size - at >= SMALLEST:
                self._store(path, at, bytes([SEGMENT_END]))
            self.point("segment-end")
            path, at = self.begin(self.next), 0
            self.point("segment")
        self._store(path, at, struct.pack("<i", len(body)) + body + bytes([END]))
        self.point("data")
        self.next += len(body) + 5
        self.set_offset("producer.offset", self.next)
        self.point("offset")

    @staticmethod
    def _store(path: Path, at: int, data: bytes) -> None:
        with path.open("r+b", buffering=0) as file:
            file.seek(at)
            file.write(data)


class Consumer(Files):
    """Polls the length word; the same message comes until it is committed."""

    def __init__(self, path: Path, segment_size: int) -> None:
        super().__init__(path, segment_size)
        self.next = self.offset("consumer.offset")
        self.pending = 0

    def consume(self) -> bytes | None:
        """The next message; None: the original would wait."""
        path = self.segment(self.next)
        if path is None:
            if self.next != 0 and self.bases():
                raise Broken(f"no segment holds offset {self.next}")
            return None
        at = self.next - int(path.name)
        left = self.size - at
        # With 4 or 5 bytes left the original waits for ever, whoever wrote them: its own defect.
        if left < SMALLEST or self.raw(path, at, 1)[0] == SEGMENT_END:
            path = self.log / f"{self.next:020d}"
            if not path.exists() or left == self.size:
                return None
            at = 0
        (length,) = struct.unpack("<i", self.raw(path, at, 4))
        if length <= 0:
            return None
        if length + 5 > self.size - at:
            raise Broken(f"a length of {length} at {at} of {path.name}")
        frame = self.raw(path, at, length + 5)
        if frame[-1] != END:
            raise Broken(f"a frame of {length} bytes at {at} of {path.name} without its end")
        self.pending = length + 5
        return frame[4:-1]

    def commit(self) -> None:
        assert self.pending, "Commit without a pending message is an error"
        self.next, self.pending = self.next + self.pending, 0
        self.set_offset("consumer.offset", self.next)


def everything(path: Path, segment_size: int) -> list[bytes]:
    """From the first segment on, as a consumer that begins there would see it.

    That may be more than `producer.offset` says: a frame whose producer was killed before its word.
    """
    reader, found = Consumer(path, segment_size), []
    reader.next = reader.bases()[0] if reader.bases() else 0
    while (body := reader.consume()) is not None:
        found.append(body)
        reader.next += reader.pending
    end = reader.offset("producer.offset")
    if reader.next < end:
        raise Broken(f"a consumer gets to {reader.next}, producer.offset is {end}")
    return found
