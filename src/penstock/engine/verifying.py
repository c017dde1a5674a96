"""What is wrong with a queue: one rule for `verify`, `cat` and Spark, whatever the format."""

from __future__ import annotations

from penstock import _core
from penstock.formats import known_damage
from penstock.formats.store import Store
from penstock.formats.values import Damage, Verdict


def around(store: Store, start: int | None = None) -> Verdict:
    """What is wrong with a queue beside its frames, which it does not read: what a crash cut off,
    files that are gone or are no segments, and words that do not fit together; with `start`, only
    from there on."""
    format, verdict, known = store.format, Verdict(), store.set_aside
    for damage, is_torn in format.unreadable_segments(start or 0):
        (verdict.torn if is_torn else verdict.corrupt).append(damage)
    verdict.corrupt += format.missing_segments(start)
    if odd := format.contradictions(start or 0):
        # Seen twice: others may have put, read and rolled between one word and the next.
        verdict.corrupt += [one for one in format.contradictions(start or 0) if one in odd]
    verdict.corrupt += format.noticed(start or 0)
    verdict.corrupt = known_damage.new_in(verdict.corrupt, known)
    lost = {damage.path for damage in verdict.corrupt if not damage.at}
    dropped = (damage for damage in store.dropped if damage.path not in lost)
    verdict.torn = known_damage.new_in([*dropped, *verdict.torn], known)
    return verdict


def verify(store: Store) -> Verdict:
    """Walks everything below the tail with its checksums. Changes nothing."""
    store.format.need_key()
    verdict = around(store)
    _verify_frames(store, verdict)
    verdict.corrupt += store.format.noticed()  # What was unpacked for it may be odd.
    verdict.corrupt = known_damage.new_in(verdict.corrupt, store.set_aside)
    verdict.torn = known_damage.new_in(verdict.torn, store.set_aside)
    return verdict


def _verify_frames(store: Store, verdict: Verdict) -> None:
    end, has_gaps = store.end(), store.capabilities.gaps
    infos = store.segments(fresh=True)
    done, total = 0, sum(info.size for info in infos)
    for info in infos:
        first, last = info.first, end.tail if info.end is None else info.end
        if not has_gaps:  # Else a file says itself how many frames it has: all of them are walked.
            first, last = max(first, end.head), min(last, end.tail)
        if first > last or (first == last and not has_gaps):
            continue
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
        store.format.judge(info, segment, last, seen, verdict)
