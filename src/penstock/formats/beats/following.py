"""What a Beat did with the queue while we were away: its place is followed, damage is not.

`state.dat` is the place of the group `default`, written by us at every ack and by a Beat at every
one of its own. Whether it is still ours is told by comparing it with what we wrote last: after an
orderly close that is noted in `.penstock/beats.json`, after a kill it follows from the group's own
files. Anything else is a Beat's, and the group goes on there, if a Beat can have written it: the
file has no checksum, but the place must be the beginning of an event, and the number of events
before it must be right. One wrong bit would else cost all events up to where it points.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import chain, islice

from penstock import _core
from penstock.disk import files
from penstock.formats.beats import segments, state
from penstock.formats.beats.queue_files import BeatsFiles
from penstock.formats.beats.structs import MAX_ID, POSITION_BITS
from penstock.formats.past import Past
from penstock.formats.values import Damage
from penstock.sidecar import control, groups, notes, quarantine

RAW_MAX = 4096
"""Of a file in the place of `state.dat` so much is looked at, and kept aside."""
LOST_MAX = 1000
"""How many segments that are gone are told one by one."""
GROUP = "default"
"""The group that a Beat knows."""


def known(beats: BeatsFiles) -> dict[str, object]:
    """What we noted about the queue when we left it."""
    return notes.read(beats.sidecar, notes.BEATS) or {"id": beats.identity}


def identify(beats: BeatsFiles) -> None:
    """Gives the queue an identity, and notes what tells its key. Alone, under the opening lock."""
    found = known(beats)
    check = None if beats.options.key is None else segments.key_check(beats.options.key)
    if "id" not in found or found.get("key_check") != check:
        found |= {"id": beats.identity, "key_check": check}
        notes.write(beats.sidecar, notes.BEATS, found)


def tidy(beats: BeatsFiles) -> list[Damage]:
    """`state.dat` as something that we can write on in: a file that is no state is set aside, an
    older version becomes ours. Returns what is wrong with it. Alone, under the opening lock."""
    path = beats.state_path
    raw = _raw(beats)
    found = state.read(path)
    if found is not None:
        if found.version != beats.state_version and fault(beats) is None:
            write_state(beats, state_at(beats, place_of(beats, found) or found.offset))
        return []
    ours = progress(beats)
    if raw:
        quarantine.copy(beats.sidecar, path, 0, len(raw), now_ns=beats.clock.wall_now_ns())
    if ours is not None and (raw or known(beats).get("state")):
        write_state(beats, state_at(beats, ours.cursor))
    elif raw or not path.exists():
        _core.replace_file(path, b"")
    expected = "the 20 or 28 bytes of a state"
    return [Damage(path, 0, len(raw), "no state of a Beat", expected)] if raw else []


def progress(beats: BeatsFiles) -> groups.GroupProgress | None:
    """Where the default group is, by our own files."""
    return groups.peek(beats.sidecar / "groups" / GROUP, beats.store.run)


def is_moved(beats: BeatsFiles) -> bool:
    """Whether `state.dat` is not as we left it when we closed the queue."""
    return _raw(beats).hex() != known(beats).get("state")


def fault(beats: BeatsFiles) -> Damage | None:
    """What is wrong with the place in `state.dat`, if no Beat can have written it."""
    found, past = state.read(beats.state_path), beats.past
    # After a power cut it may name what was lost.
    if found is None or past is None or past.is_stopped:
        return None
    if past.is_closed and not is_moved(beats):
        return None
    place, ours = place_of(beats, found), progress(beats)
    if place is not None and not past.is_closed and ours is not None and place <= ours.cursor:
        return None  # Where we were before our last acks, or are.
    if place is not None and not _is_one_bit_off(beats):
        return None
    text = f"segment {found.segment}, position {found.position}, event {found.frame}"
    size = beats.state_path.stat().st_size
    return Damage(beats.state_path, 0, size, text, "a place where an event begins")


def _raw(beats: BeatsFiles) -> bytes:
    return files.read_start(beats.state_path, RAW_MAX) if beats.state_path.exists() else b""


def _is_one_bit_off(beats: BeatsFiles) -> bool:
    """Whether the file is ours but for one bit. A Beat that goes on changes more than that."""
    raw, last, ours = _raw(beats), known(beats).get("state"), progress(beats)
    if beats.past is not None and beats.past.is_closed and isinstance(last, str):
        before = bytes.fromhex(last)
    elif ours is not None:
        before = state_at(beats, ours.cursor).pack()
    else:
        return False
    differing = int.from_bytes(raw, "little") ^ int.from_bytes(before, "little")
    return len(raw) == len(before) and differing.bit_count() == 1


# ── the place ──────────────────────────────────────────────────────────────────────────────


def place_of(beats: BeatsFiles, found: state.StateFile) -> int | None:
    """The offset that a state means; none when no Beat can have written it."""
    while True:
        # Before the files are listed: what is put meanwhile lies behind the place.
        tail = beats.store.end().tail
        there = beats.segment_numbers()
        try:
            return _place_among(beats, there, tail, found)
        except FileNotFoundError:
            if beats.segment_numbers() == there:
                raise  # Else every group was done with a segment, and a process has deleted it.


def _place_among(
    beats: BeatsFiles, there: list[int], tail: int, found: state.StateFile
) -> int | None:
    if not there or found.segment < there[0]:
        return beats.store.end().head  # What it names was read and deleted.
    if found.segment not in there:
        is_next = found.segment == there[-1] + 1 and found.is_start
        later = [number for number in there if number > found.segment]
        return tail if is_next else beats.first_of(later[0]) if later else None
    if found.is_start:
        return beats.first_of(found.segment)
    begins = beats.frame_offsets(found.segment)
    if found.offset <= begins[-1] or found.segment + 1 not in there:
        return _boundary(begins, found.offset, found.frame)
    # Releases up to 2026: the first acks of a session that began at the end of a segment were
    # counted on in that segment instead of the next one.
    following = beats.frame_offsets(found.segment + 1)
    frame = None if found.frame is None else found.frame - (len(begins) - 1)
    place = _boundary(following, following[0] + found.offset - begins[-1], frame)
    # A session that sent those again has counted them twice: then it goes on from the end.
    return begins[-1] if place is None and frame is not None and frame > 0 else place


def _boundary(begins: list[int], offset: int, frame: int | None) -> int | None:
    """`offset`, if a frame begins there, or the segment ends, with `frame` of them before it."""
    index = bisect_left(begins, offset)
    is_place = index < len(begins) and begins[index] == offset
    return offset if is_place and frame in (None, index) else None


def state_at(beats: BeatsFiles, offset: int) -> state.StateFile:
    """The state for an offset; for the beginning of a segment without events, the end of the last
    one that has any: Beats pass over the others, and number from 0 on where they find none."""
    there = beats.segment_numbers()
    if there and offset >> POSITION_BITS > there[-1]:
        offset = beats.frame_offsets(there[-1])[-1]
    number = offset >> POSITION_BITS
    frame = bisect_left(beats.frame_offsets(number), offset) if number in there else 0
    return state.StateFile.at(beats.state_version, offset, frame)


def write_state(beats: BeatsFiles, value: state.StateFile) -> None:
    """Makes `state.dat` say `value`.

    A file of the right length is written in place, because others may have it open.
    """
    path, raw = beats.state_path, value.pack()
    if path.exists() and path.stat().st_size in (0, len(raw)):
        _core.write_file(path, 0, raw, synced=True)
    else:
        _core.replace_file(path, raw)


def remember(beats: BeatsFiles) -> None:
    """What `state.dat` says when we leave, and which segments there are: another content later is a
    Beat's, and a segment that is gone without it is lost."""
    found = known(beats)
    raw = b""
    if beats.state_path.exists():
        _core.sync_file(beats.state_path)
        raw = _raw(beats)
    there = beats.segment_numbers()
    listed = [number for number, _ in segments.listed(beats.path)]
    gaps = [number for number in _gaps_of(found) if listed and listed[0] < number < listed[-1]]
    found |= {"state": raw.hex(), "segments": there[:1] + there[-1:], "gaps": gaps}
    notes.write(beats.sidecar, notes.BEATS, found)


# ── segments that are gone ─────────────────────────────────────────────────────────────────


def _gaps_of(found: dict[str, object]) -> list[int]:
    gaps = found.get("gaps")
    return [one for one in gaps if isinstance(one, int)] if isinstance(gaps, list) else []


def note_gaps(beats: BeatsFiles, numbers: list[int]) -> None:
    """Ids that no segment has or will have: their segments were set aside."""
    found = known(beats)
    notes.write(beats.sidecar, notes.BEATS, found | {"gaps": sorted({*_gaps_of(found), *numbers})})


def missing(beats: BeatsFiles, past: Past) -> list[Damage]:
    """Segments that should be there. Beats number without gaps and delete from the oldest on, and
    so do we: what is missing between two was lost, and so was the first or last one that we left if
    it was not acked since."""
    there = [number for number, _ in segments.listed(beats.path)]
    found = known(beats)
    ranges = [range(there[0], there[-1])] if there else []
    left = _left(beats, past, found)
    if left is not None and there:
        ranges.insert(0, range(left.start, min(left.stop, there[0])))
        ranges.append(range(max(left.start, there[-1] + 1), left.stop))
    elif left is not None:
        ranges = [left]
    known_of = {*there, *_gaps_of(found)}
    lost = islice((n for n in chain.from_iterable(ranges) if n not in known_of), LOST_MAX)
    paths = ((number, segments.path_of(beats.path, number)) for number in lost)
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


def _left(beats: BeatsFiles, past: Past, found: dict[str, object]) -> range | None:
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
        ours = progress(beats)
        before = None if ours is None else state_at(beats, ours.cursor).pack().hex()
    else:
        return None
    acked = state.read(beats.state_path)
    if left is None or acked is None or _raw(beats).hex() == before:
        return left
    return range(max(acked.segment, left.start), left.stop)


def had_events(beats: BeatsFiles, number: int) -> bool:
    """Whether events were in this segment when we left the queue, by what we noted or by the words
    of the control block: a close leaves no segment without any."""
    last, words = known(beats).get("segments"), control.peek(beats.sidecar)
    if isinstance(last, list) and number in last:
        return True
    if words is None or words.segment_base >> POSITION_BITS != number:
        return False
    return words.tail > words.segment_base
