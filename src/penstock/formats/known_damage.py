"""How damage that a repair has set aside counts: readers pass over it, `verify` leaves it out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock import _core
from penstock.formats.values import Damage, SegmentInfo
from penstock.places import Path
from penstock.records import replace
from penstock.sidecar.damage import SetAside


def mark(segment: _core.Segment, entries: Sequence[SetAside]) -> None:
    """Tells a segment which offsets its readers skip."""
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


def met(info: SegmentInfo, seen: _core.Walked) -> list[Damage]:
    """What a walk through a segment met."""
    return [
        Damage(info.path, at, length, found, expected, offset)
        for (at, found, expected, length), (offset, _) in zip(seen.faults, seen.bad, strict=True)
    ]


def below(entries: Sequence[SetAside], tail: int) -> tuple[SetAside, ...]:
    """What is noted as far as it lies below `tail`: offsets above it are given anew, and what is
    put there is no damage."""
    return tuple(
        entry if entry.last is None else replace(entry, last=min(entry.last, tail))
        for entry in entries
        if entry.first is None or entry.first < tail
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
