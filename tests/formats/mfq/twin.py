"""The format read aloud: what the published description says, byte by byte, with plain files.

`produce` and `poll` do what the original's producer and consumer do, `messages` reads by the rule
that always works.
"""

from __future__ import annotations

import struct
from pathlib import Path


class Twin:
    """A store, by the book."""

    def __init__(self, path: Path, segment_size: int | None = None) -> None:
        self.log, self.offsets = path / "commitlog", path / "offset"
        if segment_size is not None:
            self.log.mkdir(parents=True)
            self.offsets.mkdir()
            (self.log / f"{0:020d}").write_bytes(bytes(segment_size))
            for name in ("producer.offset", "consumer.offset"):
                self.set(name, 0)
        self.size = self._file(0).stat().st_size

    def get(self, name: str) -> int:
        (value,) = struct.unpack("<q", (self.offsets / name).read_bytes())
        return int(value)

    def set(self, name: str, value: int) -> None:
        with (self.offsets / name).open("r+b" if (self.offsets / name).exists() else "wb") as file:
            file.write(struct.pack("<q", value))

    def bases(self) -> list[int]:
        return sorted(int(file.name) for file in self.log.iterdir())

    def _file(self, offset: int) -> Path:
        bases = self.bases()
        return self.log / f"{max([b for b in bases if b <= offset] or bases[:1]):020d}"

    def _write(self, offset: int, data: bytes) -> None:
        file = self._file(offset)
        with file.open("r+b") as stream:
            stream.seek(offset - int(file.name))
            stream.write(data)

    def raw(self, offset: int, count: int) -> bytes:
        file = self._file(offset)
        at = offset - int(file.name)
        return file.read_bytes()[at : at + count]

    def produce(self, body: bytes) -> int:
        """One frame, then the offset; a frame that does not fit begins a new segment."""
        offset = self.get("producer.offset")
        left = self.size - (offset - int(self._file(offset).name))
        if len(body) + 5 > left:
            if left >= 6:
                self._write(offset, b"\xee")
            (self.log / f"{offset:020d}").write_bytes(bytes(self.size))
        self._write(offset, struct.pack("<i", len(body)) + body + b"\xff")
        self.set("producer.offset", offset + len(body) + 5)
        return offset

    def poll(self, offset: int) -> bytes | None:
        """What the original's consumer sees: the length word alone decides."""
        head = self.raw(offset, 4)
        length = struct.unpack("<i", head)[0] if len(head) == 4 else 0
        if length <= 0:
            return None
        frame = self.raw(offset, length + 5)
        assert frame[-1] == 0xFF
        return frame[4:-1]

    def messages(self) -> list[tuple[int, bytes]]:
        """By the rule: names and producer.offset, never the first byte."""
        found, offset = [], self.bases()[0]
        while offset < self.get("producer.offset"):
            body = self.poll(offset)
            assert body is not None
            found.append((offset, body))
            offset += len(body) + 5
        return found
