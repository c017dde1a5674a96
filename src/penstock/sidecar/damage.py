"""`.penstock/known-damage.json`: damage that a repair has set aside.

The segment itself is not touched: offsets must stay what they are, a sealed segment never changes,
and the other programs' formats know no frame that says "nothing here". So a repair copies the bad
bytes to `.penstock/quarantine/` and notes their range here. Every reader passes over a noted range
without an error, and `verify` no longer counts it; this file keeps saying what was lost.

    {"version": 1, "identity": "…", "set_aside": [{"segment": "0….seg", "first": 4096, …}]}
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.hints import Any
from penstock.places import Path
from penstock.records import asdict, dataclass, fields
from penstock.sidecar import notes


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
    found = notes.read(sidecar, notes.KNOWN_DAMAGE)
    if found is None or found.get("version") != 1 or found.get("identity") != identity:
        return ()
    entries = found.get("set_aside")
    return tuple(filter(None, map(_parse, entries if isinstance(entries, list) else ())))


def _parse(value: dict[str, Any]) -> SetAside | None:
    known = {field.name for field in fields(SetAside)}
    try:
        found = SetAside(**{name: value[name] for name in value.keys() & known})
    except (TypeError, AttributeError):
        return None
    places = (found.at, found.length, found.repaired_ns, found.first, found.last)
    known_of = [one for one in places if one is not None]
    is_sound = all(type(one) is int and 0 <= one < 1 << 63 for one in known_of)
    return found if is_sound and isinstance(found.segment, str) else None


def save(sidecar: Path, identity: str, entries: Iterable[SetAside]) -> None:
    """Replaces what is known of this queue."""
    value = {"version": 1, "identity": identity, "set_aside": [asdict(entry) for entry in entries]}
    notes.write(sidecar, notes.KNOWN_DAMAGE, value)
