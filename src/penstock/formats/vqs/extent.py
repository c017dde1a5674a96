"""The extent record: where the ring began and ended at the last sync.

Two slots in `<sidecar>/intent`, written in turn by the native header (`_core.VqsHeader`), each with
its checksum: after a power loss the newer whole one is the truth, and the header is made from it.
"""

from __future__ import annotations

from pathlib import Path

from penstock import _core
from penstock.disk import files
from penstock.formats.values import End
from penstock.formats.vqs.structs import EXTENT
from penstock.records import dataclass
from penstock.sidecar import notes

SLOTS = (0, 4096)
CRC_AT = EXTENT.offset_of("crc")


@dataclass(frozen=True, slots=True)
class Extent:
    """What one slot says."""

    sequence: int
    end: End
    is_exact: bool
    """Nothing above the tail counts. It stands between two puts, so a list is whole."""


def read(sidecar: Path) -> Extent | None:
    """The newest whole slot; none when there is none."""
    raw = files.read_if_there(sidecar / notes.RING_EXTENT, SLOTS[-1] + EXTENT.size) or b""
    found = [slot for at in SLOTS if (slot := _parse(raw[at : at + EXTENT.size])) is not None]
    return max(found, key=lambda slot: slot.sequence, default=None)


def _parse(raw: bytes) -> Extent | None:
    if len(raw) < EXTENT.size or raw[:8] != b"VQSINTNT":
        return None
    word = EXTENT.unpack(raw)
    if word["crc"] != _core.crc32c(raw[:CRC_AT]) or word["tail"] < word["head"]:
        return None
    tail, numbers = word["tail"], (word["head"], word["head_number"])
    end = End(tail, word["next_number"], 0, *numbers, durable=tail)
    return Extent(word["sequence"], end, word["exact"] != 0)


def write(sidecar: Path, extent: Extent, words: dict[str, int], file_bytes: int) -> None:
    """Writes both slots anew. Only the process that opens the queue alone may."""
    raw, end = b"", extent.end
    for at, sequence in zip(SLOTS, (extent.sequence + 1, extent.sequence), strict=True):
        slot = EXTENT.pack(
            magic=b"VQSINTNT", sequence=sequence, head=end.head, tail=end.tail,
            head_number=end.head_number, next_number=end.next_number, **words,
            file_bytes=file_bytes, exact=int(extent.is_exact), crc=0,
        )  # fmt: skip
        slot = slot[:CRC_AT] + _core.crc32c(slot[:CRC_AT]).to_bytes(4, "little")
        raw = raw.ljust(at, b"\0") + slot
    notes.write_bytes(sidecar, notes.RING_EXTENT, raw.ljust(2 * SLOTS[1], b"\0"))
