"""What we note about a queue when we leave it, and what is gone when we come back.

Beats number segments without gaps and delete from the oldest on, and so do we. So what is missing
between two segments was lost, and so was the first or the last one that we left, if it was not
acked since: the note `.penstock/beats.json` names both, and the ids that never had a segment.
"""

from __future__ import annotations

from itertools import chain, islice

from penstock.formats.beats import segments, state
from penstock.formats.beats.groups import BeatsGroups
from penstock.formats.beats.queue_files import BeatsFiles
from penstock.formats.beats.structs import MAX_ID, POSITION_BITS
from penstock.formats.past import Past
from penstock.formats.values import Damage
from penstock.sidecar import control, notes

LOST_MAX = 1000
"""How many segments that are gone are told one by one."""


def identify(beats: BeatsFiles) -> None:
    """Gives the queue an identity; notes its layout and what tells its key. Alone, under the lock
    of openings."""
    found, key = beats.noted(), beats.options.key
    check = None if key is None else segments.key_check(key)
    told = {"id": beats.identity, "key_check": check, "layout": beats.kind.name}
    if any(found.get(name, "") != value for name, value in told.items()):
        notes.write(beats.sidecar, notes.BEATS, found | told)


def remember(beats: BeatsFiles, raw: bytes) -> None:
    """Notes what `state.dat` says when we leave, and which segments there are: another content
    later is a Beat's, and a segment that is gone without it is lost."""
    there, found = beats.segment_numbers(), beats.noted()
    listed = [number for number, _ in segments.listed(beats.path)]
    gaps = [number for number in _gaps_of(found) if listed and listed[0] < number < listed[-1]]
    found |= {"state": raw.hex(), "segments": there[:1] + there[-1:], "gaps": gaps}
    notes.write(beats.sidecar, notes.BEATS, found)


def _gaps_of(found: dict[str, object]) -> list[int]:
    gaps = found.get("gaps")
    return [one for one in gaps if isinstance(one, int)] if isinstance(gaps, list) else []


def note_gaps(beats: BeatsFiles, numbers: list[int]) -> None:
    """Ids that no segment has or will have: their segments were set aside."""
    found = beats.noted()
    notes.write(beats.sidecar, notes.BEATS, found | {"gaps": sorted({*_gaps_of(found), *numbers})})


def missing(beats: BeatsFiles, group: BeatsGroups, past: Past) -> list[Damage]:
    """Segments that should be there."""
    there = [number for number, _ in segments.listed(beats.path)]
    found = beats.noted()
    between = range(there[0], there[-1]) if there else range(0)
    left = _left(beats, group, past, found)
    outside = (number for number in left or () if number not in between)
    known_of = {*there, *_gaps_of(found)}
    lost = islice((n for n in chain(between, outside) if n not in known_of), LOST_MAX)
    paths = ((number, segments.path_of(beats.path, number)) for number in sorted(lost))
    gone = [(number, path) for number, path in paths if not path.exists()]
    # Others trim and begin segments while we look: what is lost stays lost.
    oldest = segments.listed(beats.path)
    if left is not None:
        words = control.peek(beats.sidecar) if past.is_killed else None
        first = words.head >> POSITION_BITS if words is not None else 0
    else:
        first = oldest[0][0] if oldest else MAX_ID + 1
    expected = "a segment that was not acked"
    return [Damage(path, 0, 0, "no such file", expected) for n, path in gone if n >= first]


def _left(
    beats: BeatsFiles, group: BeatsGroups, past: Past, found: dict[str, object]
) -> range | None:
    """The ids that were there when we left the queue, but for those that a Beat has acked since."""
    last, words = found.get("segments"), control.peek(beats.sidecar)
    if past.is_closed and isinstance(last, list) and all(isinstance(one, int) for one in last):
        left = range(last[0], last[-1] + 1) if last else None
        before = found.get("state")
    elif past.is_killed and words is not None:
        # Asked for after the files: others move the head before they unlink.
        # The last one counts once it has events: a roll that was cut short lost nothing.
        number, has_events = words.segment_base >> POSITION_BITS, words.tail > words.segment_base
        left = range(words.head >> POSITION_BITS, number + has_events)
        ours = beats.progress()
        before = None if ours is None else group.state_at(ours.cursor).pack().hex()
    else:
        return None
    acked = state.read(beats.state_path)
    if left is None or acked is None or group.raw().hex() == before:
        return left
    return range(max(acked.segment, left.start), left.stop)


def had_events(beats: BeatsFiles, number: int) -> bool:
    """Whether events were in this segment when we left the queue, by what we noted or by the words
    of the control block: a close leaves no segment without any."""
    last, words = beats.noted().get("segments"), control.peek(beats.sidecar)
    if isinstance(last, list) and number in last:
        return True
    if words is None or words.segment_base >> POSITION_BITS != number:
        return False
    return words.tail > words.segment_base
