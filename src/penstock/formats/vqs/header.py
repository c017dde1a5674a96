"""The header of a VQS queue: its words, its settings, its labels."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.disk import files
from penstock.errors import CorruptError, FormatError, OptionError
from penstock.formats.vqs import structs
from penstock.formats.vqs.structs import HEADER_BYTES, SETTINGS, STAGES, Stage
from penstock.records import dataclass

MAX_LABELS = 50
MAX_NAME = 128
MAX_VALUE = 256
META_LIMIT = 1 << 20
"""No header is read beyond this."""


@dataclass(frozen=True, slots=True)
class Header:
    """What the header says."""

    values: dict[str, int]
    labels: tuple[tuple[bytes, bytes], ...]

    @property
    def settings(self) -> dict[str, int]:
        """What the queue's owner decided."""
        return {name: self.values[name] for name in SETTINGS}

    @property
    def words(self) -> dict[str, int]:
        """What changes with every message."""
        return {name: self.values[name] for name in structs.WORDS}

    def texts(self) -> dict[str, str]:
        """The labels as text; of two with one name the last counts."""
        return {n.decode("utf-8", "replace"): v.decode("utf-8", "replace") for n, v in self.labels}


def read_bytes(path: Path, stage: Stage) -> bytes:
    """The header with its labels, as it is on disk."""
    return files.read_start(stage.header_path(path), META_LIMIT if stage.meta else HEADER_BYTES)


def read_words(path: Path, stage: Stage) -> dict[str, int]:
    """The four words alone, as they are on disk now."""
    raw = files.read_start(stage.header_path(path), stage.header.size)
    if len(raw) < stage.header.size:
        found = f"a header cut off at {len(raw)} bytes"
        raise CorruptError(stage.header_path(path), len(raw), found, f"{stage.header.size}")
    values = stage.header.unpack(raw)
    return {name: values[name] for name in structs.WORDS}


def check_magic(path: Path, raw: bytes) -> None:
    """Magic, version, length: each has its own answer."""
    if raw[:3] != structs.MAGIC:
        found = f"bad magic: it begins with {raw[:4].hex(' ') or 'nothing'}"
        raise FormatError(path, found, "check the path: a VQS file begins with 56 51 53 01", at=0)
    if len(raw) < 4 or raw[3] != structs.VERSION:
        found = f"version {raw[3]}" if len(raw) > 3 else "no version"
        raise FormatError(path, f"{found} of VQS", "this release reads version 1", at=3)


def parse(path: Path, stage: Stage, raw: bytes) -> Header:
    """The header in `raw`, checked as far as it stands alone."""
    file = stage.header_path(path)
    check_magic(file, raw)
    least = stage.header.size if stage.meta else HEADER_BYTES
    if len(raw) < least:
        raise CorruptError(file, len(raw), f"a header cut off at {len(raw)} bytes", f"{least}")
    values = stage.header.unpack(raw)
    if values.get("marker", structs.MARKER) != structs.MARKER:
        at = stage.header.offset_of("marker")
        raise CorruptError(file, at, f"marker {values['marker']:#06x}", f"{structs.MARKER:#06x}")
    read = lengths_of if stage.has_lengths else strings_of
    numbers = {name: value for name, value in values.items() if isinstance(value, int)}
    return Header(numbers, tuple(read(file, raw[stage.header.size :], stage.header.size)))


def strings_of(file: Path, area: bytes, at: int) -> list[tuple[bytes, bytes]]:
    """`name 0 value 0 …` up to an empty name or the end of the area."""
    found, here = [], 0

    def text() -> bytes:
        nonlocal here
        end = area.find(0, here)
        if end < 0:
            raise CorruptError(file, at + here, "an unterminated label", "a zero byte after it")
        start, here = here, end + 1
        return area[start:end]

    while here < len(area):
        name = text()
        if not name:
            break
        found.append((name, text()))
    return found


def lengths_of(file: Path, area: bytes, at: int) -> list[tuple[bytes, bytes]]:
    """`name_len, value_len, name, value …` up to a length of 0 or the end of the area."""
    found, here = [], 0
    while here + 4 <= len(area):
        name_len, value_len = struct.unpack_from("<HH", area, here)
        if not name_len:
            break
        end = here + 4 + name_len + value_len
        if end > len(area):
            found_bytes, most = f"a label of {end - here} bytes", f"at most {len(area) - here}"
            raise CorruptError(file, at + here, found_bytes, most)
        found.append((area[here + 4 : here + 4 + name_len], area[here + 4 + name_len : end]))
        here = end
    return found


def encode_labels(option: str, labels: Any) -> dict[bytes, bytes]:
    """Labels as given, in the form that goes into the file."""
    if not isinstance(labels, Mapping):
        raise OptionError(option, labels, "a mapping of names to values (format vqs)")
    found = {}
    for name, value in labels.items():
        if not isinstance(name, str) or not 1 <= len(name) <= MAX_NAME or "\0" in name:
            raise OptionError(option, name, f"names of 1 to {MAX_NAME} characters, no NUL in them")
        if not isinstance(value, str) or len(value) > MAX_VALUE or "\0" in value:
            raise OptionError(option, value, f"values of up to {MAX_VALUE} characters without NUL")
        try:
            found[name.encode()] = value.encode()
        except UnicodeEncodeError as error:
            raise OptionError(option, name, f"text in UTF-8: {error.reason}") from error
    return found


def pack_labels(labels: dict[bytes, bytes], stage: Stage, room: int) -> bytes:
    """The labels as the stage stores them, zero-filled."""
    if len(labels) > MAX_LABELS:
        raise OptionError("labels", f"{len(labels)} of them", f"at most {MAX_LABELS}")
    out = b""
    for name, value in labels.items():
        if stage.has_lengths:
            out += struct.pack("<HH", len(name), len(value)) + name + value
        else:
            out += name + b"\0" + value + b"\0"
    if len(out) > room:
        raise OptionError("labels", f"{len(out)} bytes", f"at most {room} in all")
    return out.ljust(room, b"\0")


def check_settings(values: dict[str, Any]) -> dict[str, int]:
    """Settings as they go into the header."""
    for name, value in values.items():
        _, least, most = SETTINGS[name]
        is_right = isinstance(value, int) and not isinstance(value, bool)
        if not is_right or not least <= value <= most:
            raise OptionError(name, value, f"{least} to {most}")
    return values


def pack(stage: Stage, values: dict[str, int]) -> bytes:
    """The header without its labels."""
    known: dict[str, Any] = {"magic": structs.MAGIC, "version": structs.VERSION}
    if "marker" in {field.name for field in stage.header.fields}:
        known["marker"] = structs.MARKER
    names = [*structs.WORDS, *SETTINGS]
    return stage.header.pack(**known, **{name: values[name] for name in names})


def sniff(path: Path) -> str | None:
    """The layout of what is at `path`; an error for a VQS file that is none of ours."""
    if path.is_file():
        raw = files.read_start(path, HEADER_BYTES)
        if raw[:3] == structs.MAGIC or path.suffix == ".bin":
            if not raw:
                raise CorruptError(path, 0, "an empty file", f"a header of {HEADER_BYTES} bytes")
            check_magic(path, raw)
            return "doc"
        return None
    data, meta = path / "data.dat", path / "meta.dat"
    if not data.is_file():
        return "stage4" if meta.is_file() and (path / ".penstock" / "making").is_file() else None
    raw = files.read_start(meta if meta.is_file() else data, 64)
    if raw[:3] != structs.MAGIC:
        return None
    check_magic(meta if meta.is_file() else data, raw)
    if not meta.is_file():
        return "stage2"
    return _stage_of_records(path, raw)


def _stage_of_records(path: Path, raw: bytes) -> str:
    """Which of the two stages with a `meta.dat`: they differ in their records only.

    Gzip begins with 1f 8b. Without any record they are the same bytes: the later one is
    taken, which may be written.
    """
    values = structs.LATER_HEADER.unpack(raw) if len(raw) >= 36 else None
    if values is None or not values["count"]:
        return "stage4"
    data = STAGES["stage4"].data_path(path)
    with files.reading(data) as stream:
        stream.seek((values["read_offset"] + 4) % max(data.stat().st_size, 1))
        start = stream.read(2)
        if len(start) < 2:
            stream.seek(0)
            start += stream.read(2 - len(start))
    return "stage3" if start == b"\x1f\x8b" else "stage4"
