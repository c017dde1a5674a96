"""Headers and summaries of segment files: writing, reading, sealing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

from penstock import _core
from penstock.disk import files
from penstock.errors import CorruptError, FormatError
from penstock.formats.penstock import structs
from penstock.formats.values import SegmentInfo
from penstock.hints import Any
from penstock.options import KIB, QueueOptions
from penstock.places import Path
from penstock.records import dataclass, replace
from penstock.sidecar import prepared

CRC_AT, VERSION_AT, FLAGS_AT = map(structs.HEADER.offset_of, ("crc", "version", "flags"))
FIRST_BYTES = 1 << 20
GROWTH = 8


def limit_of(options: QueueOptions) -> int:
    """How large a segment gets. A queue with a limit has at least eight: only whole ones go."""
    most, total = options.segment_bytes, options.max_bytes
    return most if total == 0 else min(most, max(16 * KIB, total // 8))


def next_size(previous: int, needed: int, limit: int) -> int:
    """Segments grow from 1 MiB to the limit, so that small queues stay small."""
    size = min(limit, FIRST_BYTES if previous == 0 else previous * GROWTH)
    page = structs.HEADER_BYTES
    return max(size, -(-(needed + 2 * page) // page) * page)


def make_file(path: Path, size: int, needed: int, *, zeroed: int = 0, synced: bool = False) -> int:
    """Creates the file of a new segment, smaller than `size` where the disk has little left, but
    with room for `needed` bytes; returns its size."""
    page = structs.HEADER_BYTES
    least = min(size, max(4, 2 - -needed // page) * page)
    return prepared.make_fitting(path, size, least, page, zeroed=zeroed, synced=synced)


@dataclass(frozen=True, slots=True)
class Header:
    """What the first page of a segment says."""

    queue_id: bytes
    base: int
    base_number: int
    flags: int
    salt: bytes
    created_ns: int
    segment_bytes: int
    previous: int = 0

    def pack(self, key: bytes | None = None) -> bytes:
        """The 4 KiB page. With `key` it carries a proof by which a key can be checked."""
        raw = structs.HEADER.pack(
            magic=structs.MAGIC, version=structs.VERSION, flags=self.flags, queue_id=self.queue_id,
            base=self.base, base_number=self.base_number, created_ns=self.created_ns,
            segment_bytes=self.segment_bytes, previous=self.previous, salt=self.salt, crc=0,
        )  # fmt: skip
        raw = raw[:CRC_AT] + _core.crc32c(raw[:CRC_AT]).to_bytes(4, "little")
        if key is not None:
            raw += structs.KEY_CHECK.pack(magic=b"KEYCHK01", check=self._check(key, raw))
        return raw.ljust(structs.HEADER_BYTES, b"\0")

    def _check(self, key: bytes, raw: bytes) -> bytes:
        return _core.penstock_key_check(key, self.queue_id, self.base, self.salt, raw)

    def is_proved(self, key: bytes, page: bytes) -> bool | None:
        """Whether `key` is the one that the segment's frames are encrypted with; none when its page
        does not tell."""
        found = structs.KEY_CHECK.unpack(page[structs.KEY_CHECK_AT :].ljust(structs.KEY_CHECK.size))
        if found["magic"] != b"KEYCHK01":
            return None
        from hmac import compare_digest  # Only queues with a key need it.

        return compare_digest(found["check"], self._check(key, page[: structs.HEADER.size]))

    @classmethod
    def unpack(cls, raw: bytes, path: Path) -> Header:
        """Checks magic, checksum, version, flags, name: each has its own answer."""
        if raw[:8] != structs.MAGIC:
            found = f"begins with {raw[:8].hex(' ') or 'nothing'}"
            raise FormatError(path, found, "this is no segment: move it out of the queue", at=0)
        if len(raw) < structs.HEADER.size:
            raise CorruptError(path, len(raw), f"{len(raw)} bytes", "a header of 96 bytes")
        word = structs.HEADER.unpack(raw)
        crc = _core.crc32c(raw[:CRC_AT])
        if word["version"] != structs.VERSION and crc == word["crc"]:
            advice = "this release reads version 1; use the one that wrote it"
            raise FormatError(path, f"version {word['version']}", advice, at=VERSION_AT)
        if crc != word["crc"]:
            raise CorruptError(path, CRC_AT, f"header checksum {word['crc']:08x}", f"{crc:08x}")
        if word["flags"] & ~(structs.ENCRYPTED | structs.COMPRESSED):
            found = f"unknown flags {word['flags']:#x}"
            raise FormatError(path, found, "use a newer penstock", at=FLAGS_AT)
        if path.stem.isdigit() and int(path.stem) != word["base"]:
            raise CorruptError(path, 32, f"base {word['base']}", f"the name's {int(path.stem)}")
        return cls(
            word["queue_id"], word["base"], word["base_number"], word["flags"], word["salt"],
            word["created_ns"], word["segment_bytes"], word["previous"],
        )  # fmt: skip


def last_possible(info: SegmentInfo) -> int:
    """Where frames end at the latest, by the file's size, which may be cut short in its page, and
    by the segment after it."""
    most = info.base + max(0, info.size - structs.HEADER_BYTES)
    return most if info.end is None else min(most, info.end)


def read_page(path: Path) -> bytes:
    """The first page of a file."""
    return files.read_start(path, structs.HEADER_BYTES)


def read_summary(page: bytes) -> dict[str, Any] | None:
    """The summary of a sealed segment; none while it is open or when it does not check."""
    raw = page[structs.SUMMARY_AT :]
    if raw[:8] != b"SEALED01":
        return None
    word = structs.SUMMARY.unpack(raw)
    tags = raw[structs.SUMMARY.size : structs.SUMMARY.size + word["tags_bytes"]]
    if word["crc"] != _core.crc32c(raw[: structs.SUMMARY.size - 4] + bytes(4) + tags):
        return None
    word["tags"] = [tag.decode("utf-8", "replace") for tag in tags.split(b"\0")[:-1]]
    return word


def pack_summary(seen: _core.Walked, *, is_secret: bool = False) -> bytes:
    """What a full segment says about itself; of an encrypted one no tag."""
    tags, more = b"", seen.more_tags or (is_secret and bool(seen.tags))
    count = 0
    for tag in () if is_secret else seen.tags:
        one = tag.encode() + b"\0"
        if len(tags) + len(one) > structs.HEADER_BYTES - structs.SUMMARY_AT - structs.SUMMARY.size:
            more = True
            break
        tags += one
        count += 1
    raw = structs.SUMMARY.pack(
        magic=b"SEALED01", end=seen.end, next_number=seen.next_number or 0, frames=seen.frames,
        messages=seen.messages, first_ns=seen.first_ns or 0, last_ns=seen.last_ns or 0,
        checksum=seen.checksum, tags_bytes=len(tags), more_tags=int(more), tag_count=count,
        corrupt=len(seen.faults), crc=0,
    )  # fmt: skip
    crc = _core.crc32c(raw + tags).to_bytes(4, "little")
    return raw[:-4] + crc + tags


def with_facts(info: SegmentInfo, first_number: int, word: dict[str, Any]) -> SegmentInfo:
    """`info` with what its summary says, or its entry in the index; an empty one says nothing."""
    names = ("next_number", "messages", "first_ns", "last_ns")
    facts: dict[str, Any] = {name: word.get(name) for name in names}
    return replace(info, first_number=first_number, **facts)


def entries(folder: Path) -> Iterator[tuple[int, str]]:
    """Base and path of each segment, by name, in no order."""
    with suppress(FileNotFoundError):  # Not by a call: every plan of a micro-batch comes here.
        for entry in list(os.scandir(folder / "log")):
            stem, dot, suffix = entry.name.partition(".")
            if suffix == "seg" and dot and stem.isdigit() and entry.is_file(follow_symlinks=False):
                yield int(stem), entry.path


def list_segments(folder: Path) -> list[SegmentInfo]:
    """Segments by name; a segment ends where the next one begins."""
    found = [(base, Path(path), None) for base, path in sorted(entries(folder))]
    return SegmentInfo.in_a_row(found)
