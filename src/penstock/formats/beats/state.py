"""`state.dat`: the position of the first event that was not acked."""

from __future__ import annotations

from pathlib import Path

from penstock.disk import files
from penstock.formats.beats import structs
from penstock.records import dataclass


@dataclass(frozen=True, slots=True)
class StateFile:
    """What the file says, as a logical position."""

    version: int
    segment: int
    position: int
    frame: int | None = None

    @property
    def is_start(self) -> bool:
        """Whether it means the first frame of the segment."""
        is_first = self.version == 0 and self.position <= structs.HEADER_PLAIN.size
        return self.position == 0 or self.frame == 0 or is_first

    @property
    def offset(self) -> int:
        """The place as an offset of ours."""
        return self.segment << structs.POSITION_BITS | self.position

    def pack(self) -> bytes:
        """As it is on disk."""
        if self.version == 0:
            position = max(0, self.position - 4)
            return structs.STATE_0.pack(version=0, segment=self.segment, position=position)
        return structs.STATE_1.pack(
            version=1, segment=self.segment, position=self.position, frame=self.frame or 0
        )

    @classmethod
    def at(cls, version: int, offset: int, frame: int) -> StateFile:
        """The state for an offset of ours."""
        return cls(version, offset >> structs.POSITION_BITS, offset & structs.POSITION_MASK, frame)


def read(path: Path) -> StateFile | None:
    """The state; none when the file is missing, empty, cut short or of another version."""
    raw = files.read_if_there(path, 64) or b""
    version = int.from_bytes(raw[:4], "little")
    if version == 0 and len(raw) >= structs.STATE_0.size:
        word = structs.STATE_0.unpack(raw)
        found = StateFile(0, word["segment"], word["position"] + 4)
    elif version == 1 and len(raw) >= structs.STATE_1.size:
        word = structs.STATE_1.unpack(raw)
        found = StateFile(1, word["segment"], word["position"], word["frame"])
    else:
        return None
    return found if found.position <= structs.POSITION_MASK else None
