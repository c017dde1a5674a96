"""Damage that a repair has set aside, in `.penstock/known-damage.json`.

The segment itself is not touched: offsets must stay what they are, a sealed segment never changes,
and the other programs' formats know no frame that says "nothing here". So a repair copies the bad
bytes to `.penstock/quarantine/` and notes their range here. Every reader passes over a noted range
without an error, and `verify` no longer counts it; this file keeps saying what was lost.

    {"version": 1, "identity": "…", "set_aside": [{"segment": "0….seg", "first": 4096, …}]}
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from penstock import _core
from penstock.disk import files
from penstock.formats.values import Damage, SegmentInfo
from penstock.hints import Any
from penstock.records import asdict, dataclass, fields

FILE = "known-damage.json"


@dataclass(frozen=True, slots=True)
class SetAside:
    """One range, or one fault of a header."""

    segment: str
    """Name of the file."""
    at: int
    length: int
    found: str
    expected: str
    first: int | None = None
    """Readers pass over the offsets `[first, last)`; none: it was no frame."""
    last: int | None = None
    copy: str = ""
    """Name of the file in `quarantine/` that holds the bytes."""
    repaired_ns: int = 0


def load(sidecar: Path, identity: str) -> tuple[SetAside, ...]:
    """What was set aside in this queue; a note about an older queue at the same path is none."""
    found = files.read_json(sidecar / FILE)
    if found is None or found.get("version") != 1 or found.get("identity") != identity:
        return ()
    return tuple(filter(None, map(_parse, found.get("set_aside", []))))


def _parse(value: dict[str, Any]) -> SetAside | None:
    known = {field.name for field in fields(SetAside)}
    try:
        return SetAside(**{name: value[name] for name in value.keys() & known})
    except (TypeError, AttributeError):
        return None


def save(sidecar: Path, identity: str, entries: Iterable[SetAside]) -> None:
    """Replaces the file."""
    value = {"version": 1, "identity": identity, "set_aside": [asdict(entry) for entry in entries]}
    files.write_json(sidecar / FILE, value)


def mark(segment: _core.Segment, entries: Sequence[SetAside]) -> None:
    """Tells a segment which offsets nobody reads."""
    holes = [
        (entry.first, entry.last)
        for entry in entries
        if entry.segment == segment.path.name and entry.first is not None and entry.last is not None
    ]
    if holes:
        segment.set_holes(holes)


def is_lost(info: SegmentInfo, entries: Sequence[SetAside]) -> bool:
    """Whether nothing of a segment can be read: its header is gone and can't be made anew."""
    return any(
        entry.segment == info.path.name and entry.first == info.first and entry.last == info.end
        for entry in entries
        if entry.last is not None
    )


def new_in(found: Iterable[Damage], entries: Sequence[SetAside]) -> list[Damage]:
    """Without what is known already, and without repetitions."""
    seen: dict[tuple[Path, int], Damage] = {}
    for damage in found:
        if not any(_covers(entry, damage) for entry in entries):
            seen.setdefault((damage.path, damage.at), damage)
    return list(seen.values())


def _covers(entry: SetAside, damage: Damage) -> bool:
    if entry.segment != damage.path.name:
        return False
    if damage.offset is not None:
        return entry.first is not None and entry.first <= damage.offset < (entry.last or 0)
    return entry.at <= damage.at < entry.at + max(entry.length, 1)
