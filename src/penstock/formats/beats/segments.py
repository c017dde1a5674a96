"""Segment files: which layout each one has, told by its bytes.

Versions 0 and 1 say so. Version 2 has two layouts, as documented and as released, and version 3
two more behind the cipher: these are told apart by what stands where the frames should be.
"""

from __future__ import annotations

import hmac
import os
import re
import zlib
from contextlib import suppress
from pathlib import Path

from penstock import _core
from penstock.disk import files
from penstock.errors import FormatError
from penstock.formats.beats import structs
from penstock.formats.beats.structs import KINDS, Kind
from penstock.formats.values import SegmentInfo
from penstock.records import dataclass
from penstock.sidecar import notes

NAME = re.compile(r"(0|[1-9][0-9]{0,19})\.seg\Z")
MAX_FRAME_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Header:
    """A segment, and what its first bytes say."""

    path: Path
    kind: Kind
    iv: bytes = b""
    fits: bool = True
    """Whether the first frame (or the stream) is what it should be."""

    @property
    def number(self) -> int:
        """The id in the file's name."""
        return int(self.path.stem)

    @property
    def base(self) -> int:
        """The offset of the first frame."""
        return self.kind.base(self.number)

    @property
    def size(self) -> int:
        """The bytes of the file now."""
        return self.path.stat().st_size

    def position(self, offset: int) -> int:
        """The byte of the file where the frame at `offset` begins. Streams have no such byte."""
        return self.kind.data_at + offset - self.base

    def end_of(self, size: int) -> int:
        """The offset at which frames end in a file of `size` bytes."""
        return self.base + size - self.kind.data_at

    def info(self, end: int | None, size: int | None = 0) -> SegmentInfo:
        """The segment as one that ends at `end`."""
        return SegmentInfo(self.path, self.base, self.base, end, size)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A file that is no segment; `is_torn` when a crash explains it."""

    found: str
    is_torn: bool


def listed(folder: Path) -> list[tuple[int, int]]:
    """Id and inode of each segment file, in order, without asking any of them."""
    entries = files.entries(folder)
    found = sorted((int(e.name[:-4]), e.inode()) for e in entries if NAME.match(e.name))
    if found and found[-1][0] > structs.MAX_ID:
        advice = f"ids up to {structs.MAX_ID} fit into an offset"
        raise FormatError(folder, f"segment id {found[-1][0]}", advice)
    return found


def path_of(folder: Path, number: int) -> Path:
    """The file of the segment `number`."""
    return folder / f"{number}.seg"


def find(folder: Path) -> dict[int, Path]:
    """Segment files by id, in order."""
    return {number: path_of(folder, number) for number, _ in listed(folder)}


class _Bytes:
    """A file that is looked into here and there."""

    def __init__(self, file: int) -> None:
        self._file = file
        self.size = os.fstat(file).st_size

    def read(self, at: int, length: int) -> bytes:
        return files.read_at(self._file, length, at)

    def word(self, at: int) -> int:
        return int.from_bytes(self.read(at, 4), "little")


def identify(path: Path, key: bytes | None) -> Header | Unreadable:
    """The layout of one segment, as far as it can be told without a key where none is given."""
    file = files.descriptor(path)
    try:
        return _identify(_Bytes(file), key if key and len(key) == structs.KEY_BYTES else None, path)
    finally:
        os.close(file)


def _identify(raw: _Bytes, key: bytes | None, path: Path) -> Header | Unreadable:
    if raw.size < 4:
        return Unreadable(f"{raw.size} bytes", is_torn=True)
    version = raw.word(0)
    if version > 3:
        return Unreadable(f"version {version}", is_torn=False)
    kind = KINDS[str(version)]
    if version == 2:
        return _version_2(raw, key, path)
    if raw.size < kind.data_at:
        return Unreadable(f"{raw.size} bytes of version {version}", is_torn=True)
    if version == 3:
        return _version_3(raw, key, path)
    return Header(path, kind, fits=_fits(raw, kind, None))


def key_check(key: bytes) -> str:
    """What tells the right key from another one, and tells nothing about it."""
    return hmac.digest(key, b"penstock: the key of a beats queue", "sha256")[:8].hex()


def _version_2(raw: _Bytes, key: bytes | None, path: Path) -> Header | Unreadable:
    documented = KINDS["2"]
    if raw.size < 12:
        return Unreadable(f"{raw.size} bytes of version 2", is_torn=True)
    options = raw.word(8)
    if options & ~7 and raw.size >= documented.data_at:
        iv = raw.read(4, structs.IV_BYTES)
        return Header(path, documented, iv, _fits(raw, documented, key))
    if options & ~3:
        return Unreadable(f"options {options:#x} of version 2", is_torn=False)
    kind = next(k for k in KINDS.values() if k.version == 2 and k.header_bytes == 12
                and k.options == options)  # fmt: skip
    if raw.size < kind.data_at:
        return Unreadable(f"{raw.size} bytes of layout {kind.name}", is_torn=True)
    iv = raw.read(12, structs.IV_BYTES) if kind.is_encrypted else b""
    if _fits(raw, kind, key):
        return Header(path, kind, iv)
    # An IV whose bytes happen to look like options: once in 2^29 segments.
    if key is not None and raw.size > documented.data_at and _fits(raw, documented, key):
        return Header(path, documented, raw.read(4, structs.IV_BYTES))
    return Header(path, kind, iv, fits=False)


def _version_3(raw: _Bytes, key: bytes | None, path: Path) -> Header:
    iv = raw.read(4, structs.IV_BYTES)
    for name in ("3-stream", "3"):
        if raw.size > KINDS[name].data_at and _fits(raw, KINDS[name], key):
            return Header(path, KINDS[name], iv)
    return Header(path, KINDS["3"], iv, fits=raw.size == KINDS["3"].data_at)


def _fits(raw: _Bytes, kind: Kind, key: bytes | None) -> bool:
    """Whether frames or a stream of this layout begin where they should, or nothing does."""
    if raw.size == kind.data_at:
        return True
    if kind.is_encrypted and key is None:
        return False  # Only the key could tell.

    def plain(length: int) -> bytes:
        found = raw.read(kind.data_at, length)
        if kind.is_encrypted and key is not None:
            return _core.beats_crypt(
                key, raw.read(kind.data_at - structs.IV_BYTES, structs.IV_BYTES), found
            )
        return found

    if kind.is_stream:
        return _core.beats_is_stream(plain(9))
    size = int.from_bytes(plain(4), "little")
    if not structs.FRAME_BYTES < size <= min(raw.size - kind.data_at, MAX_FRAME_BYTES):
        return False
    frame = plain(size)
    crc, again = int.from_bytes(frame[-8:-4], "little"), int.from_bytes(frame[-4:], "little")
    return again == size and zlib.crc32(frame[:-8]) == crc


def bare_layout(path: Path) -> str | None:
    """What a queue goes on as in which nothing is yet: the folder of a Beat with a state and no
    segment, or ours after a power cut that left no segment its header. None for all others."""
    kind = KINDS.get(str((notes.read(path / ".penstock", notes.BEATS) or {}).get("layout")))
    name, least = (kind.name, kind.data_at) if kind is not None else ("2-released", 0)
    if found := find(path).values():
        return name if all(files.size_of(one) < least for one in found) else None
    state = path / "state.dat"
    sizes = (0, structs.STATE_0.size, structs.STATE_1.size)
    return name if state.is_file() and files.size_of(state) in sizes else None


def sniff(path: Path) -> str | None:
    """The layout of the newest readable segment, as far as it can be told without a key. None when
    nothing here looks like a Beats queue."""
    while found := listed(path):
        for number, _ in reversed(found):
            with suppress(FileNotFoundError):  # Others delete what was read.
                header = identify(path_of(path, number), None)
                if isinstance(header, Header):
                    return header.kind.name
        if listed(path) == found:
            break
    return bare_layout(path)


def mac_path(path: Path) -> Path:
    """The tags of a tamper-evident segment."""
    return path.with_name(path.name + ".mac")
