"""What lies beside a segment whose format has no place for it.

    .penstock/extras/<base>.ext       key and due time of messages, in frames of our own format
    .penstock/integrity/<base>.crc    a CRC-32C per frame

`base` is the offset where the segment begins, in a ring the offset where the lap begins. Both are
written under the append lock before the frame is published, and found by offset, so they outlive
neither a segment nor a crash in between: what is noted at or above the tail never happened.
"""

from __future__ import annotations

import itertools

from penstock import _core
from penstock.disk import files
from penstock.disk.structs import Field, Struct
from penstock.hints import Any
from penstock.places import Path
from penstock.sidecar import prepared

EXTRAS = Struct(
    "extras header", "<", 64,
    Field("magic", "8s", "PENSTEXT"),
    Field("version", "I", "1"),
    Field("generation", "I", "raised when records were taken back: readers begin again"),
    Field("base", "Q", "offset where the segment or lap begins; also the file's name"),
    Field("end", "Q", "bytes in use; up to 64: no record. A hint: recovery reads the records"),
    Field("next", "Q", "1 + offset of the last message that has a record"),
    Field("pad", "24x", "then records: `penstock` frames, each with the key and due time of a "
          "message, its number and its timestamp; the body is the message's offset (uint64)"),
)  # fmt: skip

INTEGRITY = Struct(
    "integrity header", "<", 64,
    Field("magic", "8s", "PENSTCRC"),
    Field("version", "I", "1"),
    Field("pad0", "4x", ""),
    Field("base", "Q", "offset where the segment or lap begins; also the file's name"),
    Field("count", "Q", "entries that follow the header"),
    Field("pad1", "32x", ""),
)  # fmt: skip

INTEGRITY_ENTRY = Struct(
    "integrity entry", "<", 16,
    Field("offset", "Q", "where the frame is; entries are in order, gaps are unchecked"),
    Field("frame_bytes", "I", "its size"),
    Field("crc", "I", "CRC-32C of all of it"),
)  # fmt: skip

STRUCTS = (EXTRAS, INTEGRITY, INTEGRITY_ENTRY)

KINDS = {"extras": ".ext", "integrity": ".crc"}


def folders(sidecar: Path, wanted: dict[str, bool], *, live: bool, covers: bool) -> dict[str, Any]:
    """Arguments for `_core.Segment`; the folders are made when the queue is open for writing."""
    found: dict[str, Any] = {}
    for kind in KINDS:
        folder = sidecar / kind
        if wanted[kind] and live:
            files.make_folder(folder)
        if wanted[kind] and (live or folder.is_dir()):
            found[kind] = folder
    return found | {"covers": covers} if found else found


def path_of(sidecar: Path, kind: str, base: int) -> Path:
    """Where notes of one kind about the segment at `base` are, if there are any."""
    return sidecar / kind / f"{base:020d}{KINDS[kind]}"


def trim(sidecar: Path, head: int) -> None:
    """Removes files that only speak of offsets below `head`."""
    for kind in KINDS:
        for base, following in itertools.pairwise(_bases(sidecar, kind)):
            if following <= head:
                _core.unlink_file(path_of(sidecar, kind, base))


def write_anew(sidecar: Path, durable: int) -> None:
    """After a failed sync: writes every file anew that speaks of an offset from `durable` on."""
    for kind in KINDS:
        for base, following in itertools.pairwise([*_bases(sidecar, kind), None]):
            if base is not None and (following is None or following > durable):
                prepared.copy_anew(sidecar, path_of(sidecar, kind, base))


def _bases(sidecar: Path, kind: str) -> list[int]:
    names = sorted(files.names_in(sidecar / kind))
    return [int(n[:20]) for n in names if n.endswith(KINDS[kind]) and n[:20].isdigit()]


def drop(sidecar: Path, kinds: dict[str, bool], base: int) -> None:
    """Removes what lies beside a segment that is gone."""
    for kind in KINDS:
        if kinds[kind]:
            _core.unlink_file(path_of(sidecar, kind, base))
