"""Checking every frame of a queue, whatever its format."""

from __future__ import annotations

from penstock import _core
from penstock.formats import known_damage
from penstock.formats.contract import Format
from penstock.formats.values import Damage, SegmentInfo, Verdict


def around(format: Format, start: int | None = None) -> Verdict:
    """What is wrong with a queue beside its frames, which it does not read: what a crash cut off,
    and files that are gone or are no segments; with `start`, only from there on. The one rule of
    `cat`, `verify` and Spark."""
    verdict, known = Verdict(), format.store.set_aside
    for damage, is_torn in format.unreadable_segments(start or 0):
        (verdict.torn if is_torn else verdict.corrupt).append(damage)
    verdict.corrupt = known_damage.new_in(
        [*verdict.corrupt, *format.missing_segments(start), *format.noticed(start or 0)], known
    )  # fmt: skip
    lost = {damage.path for damage in verdict.corrupt if not damage.at}
    dropped = (damage for damage in format.store.dropped if damage.path not in lost)
    verdict.torn = known_damage.new_in([*dropped, *verdict.torn], known)
    return verdict


def faults(info: SegmentInfo, seen: _core.Walked) -> list[Damage]:
    """What a walk through a segment met."""
    return [
        Damage(info.path, at, length, found, expected, offset)
        for (at, found, expected, length), (offset, _) in zip(seen.faults, seen.bad, strict=True)
    ]


def verify(format: Format) -> Verdict:
    """Walks everything below the tail with its checksums. Changes nothing."""
    store, verdict = format.store, around(format)
    end = store.end()
    done, total = 0, sum(info.size for info in store.segments(fresh=True))
    for info, first, last in store.ranges(end.head, end.tail):
        store.on_verified(done, total)
        done += info.size
        segment, damage = store.open_tolerantly(info)
        if damage is not None:
            verdict.corrupt.append(damage)
        if segment is None:
            continue
        seen = _core.walk(segment, first, last, past_damage=True, open_frames=True)
        verdict.frames += seen.frames
        verdict.messages += seen.messages
        verdict.unchecked += seen.unchecked
        if (fault := segment.extras_fault()) is not None:
            verdict.corrupt.append(Damage(*fault, 0, "a broken record", "key and due time"))
        verdict.corrupt += faults(info, seen)
    format.verify_extra(verdict)
    verdict.corrupt = known_damage.new_in(verdict.corrupt, store.set_aside)
    return verdict
