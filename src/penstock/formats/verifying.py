"""Checking every frame of a queue, whatever its format."""

from __future__ import annotations

from penstock import _core
from penstock.formats import known_damage
from penstock.formats.contract import Format
from penstock.formats.values import Damage, Verdict


def verify(format: Format) -> Verdict:
    """Walks everything below the tail with its checksums. Changes nothing."""
    store, verdict = format.store, Verdict()
    end = store.end()
    verdict.torn.extend(store.dropped)
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
        for fault_seen, (offset, _) in zip(seen.faults, seen.bad, strict=True):
            at, found, expected, skipped = fault_seen
            verdict.corrupt.append(Damage(info.path, at, skipped, found, expected, offset))
    verdict.corrupt.extend(format.missing_segments(None))
    format.verify_extra(verdict)
    verdict.corrupt = known_damage.new_in(verdict.corrupt, store.set_aside)
    return verdict
