"""`state.dat`: the position of the first event that was not acked.

A Beat that runs has its queue open, and takes no lock that would tell. But it keeps `state.dat`
open for writing as long as it runs, in every release. Two writers would write over each other, so
an opening that changes anything is refused meanwhile; reading is not.
"""

from __future__ import annotations

import time
from pathlib import Path

from penstock.disk import files, open_elsewhere
from penstock.errors import UnsupportedError
from penstock.formats.beats import structs
from penstock.records import dataclass

TRIES, PAUSE_S = 10, 0.01
"""A process that has just ended has its files open for an instant more."""


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
        """The position as an offset of ours."""
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


def refuse_running(state_path: Path) -> None:
    """Raises if a Beat has the queue open whose state is at `state_path`."""
    for left in reversed(range(TRIES)):
        if not state_path.exists() or not open_elsewhere.is_written_elsewhere(state_path):
            return
        found = list(open_elsewhere.writers(state_path))
        if found and all(one.is_penstock for one in found):
            return  # A group that outlived its queue, whose file is open, and not used.
        for one in found:
            if not one.is_penstock:
                raise _running(state_path, f"process {one.process} ({one.name})")
        if left:
            time.sleep(PAUSE_S)
    raise _running(state_path, "a process that can't be seen from here, as in another container,")


def _running(state_path: Path, who: str) -> UnsupportedError:
    return UnsupportedError(
        f"{state_path.parent}: {who} has this queue open for writing. A Beat and penstock can't "
        "write to one queue at the same time: stop the Beat first, or open the queue with "
        "read_only=True"
    )
