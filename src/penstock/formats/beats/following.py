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
from typing import TYPE_CHECKING

from penstock import _core
from penstock.disk import files, groups
from penstock.formats.base import Damage
from penstock.formats.beats import closing, segments, state
from penstock.formats.beats.layouts import POSITION_BITS
from penstock.formats.past import Past

if TYPE_CHECKING:
    from penstock.formats.beats.reading import BeatsFiles

GROUP = "default"
"""The group that a Beat knows."""


def known(store: BeatsFiles) -> dict[str, object]:
    """What we noted about the queue when we left it."""
    return files.read_json(store.sidecar / "beats.json") or {"id": store.identity}


def identify(store: BeatsFiles) -> None:
    """Gives the queue an identity, and notes what tells its key. Alone, under the opening lock."""
    found = known(store)
    check = None if store.options.key is None else segments.key_check(store.options.key)
    if "id" not in found or found.get("key_check") != check:
        found |= {"id": store.identity, "key_check": check}
        files.write_json(store.sidecar / "beats.json", found)


def tidy(store: BeatsFiles) -> list[Damage]:
    """`state.dat` as something that we can write on in: a file that is no state is set aside, an
    older version becomes ours. Answers what is wrong with it. Alone, under the opening lock."""
    path = store.state_path
    raw = _raw(store)
    found = state.read(path)
    if found is not None:
        if found.version != store.state_version and fault(store) is None:
            write_state(store, state_at(store, place_of(store, found) or found.offset))
        return []
    ours = progress(store)
    if raw:
        closing.set_aside(store, path, 0, len(raw))
    if ours is not None and (raw or known(store).get("state")):
        write_state(store, state_at(store, ours.cursor))
    elif raw or not path.exists():
        _core.replace_file(path, b"")
    expected = "the 20 or 28 bytes of a state"
    return [Damage(path, 0, len(raw), "no state of a Beat", expected)] if raw else []


def progress(store: BeatsFiles) -> groups.Progress | None:
    """Where the default group is, by our own files."""
    return groups.peek(store.sidecar / "groups" / GROUP, store.clock.boot_id())


def is_moved(store: BeatsFiles) -> bool:
    """Whether `state.dat` is not as we left it when we closed the queue."""
    return _raw(store).hex() != known(store).get("state")


def fault(store: BeatsFiles) -> Damage | None:
    """What is wrong with the place in `state.dat`, if no Beat can have written it."""
    found, past = state.read(store.state_path), store.past
    # After a power cut it may name what was lost.
    if found is None or past is None or past.is_stopped:
        return None
    if past.is_closed and not is_moved(store):
        return None
    place, ours = place_of(store, found), progress(store)
    if place is not None and not past.is_closed and ours is not None and place <= ours.cursor:
        return None  # Where we were before our last acks, or are.
    if place is not None and not _is_one_bit_off(store):
        return None
    text = f"segment {found.segment}, position {found.position}, event {found.frame}"
    size = store.state_path.stat().st_size
    return Damage(store.state_path, 0, size, text, "a place where an event begins")


def _raw(store: BeatsFiles) -> bytes:
    return files.read_bytes(store.state_path) if store.state_path.exists() else b""


def _is_one_bit_off(store: BeatsFiles) -> bool:
    """Whether the file is ours but for one bit. A Beat that goes on changes more than that."""
    raw, last, ours = _raw(store), known(store).get("state"), progress(store)
    if store.past is not None and store.past.is_closed and isinstance(last, str):
        before = bytes.fromhex(last)
    elif ours is not None:
        before = state_at(store, ours.cursor).pack()
    else:
        return False
    differing = int.from_bytes(raw, "little") ^ int.from_bytes(before, "little")
    return len(raw) == len(before) and differing.bit_count() == 1


# ── the place ──────────────────────────────────────────────────────────────────────────────


def place_of(store: BeatsFiles, found: state.State) -> int | None:
    """The offset that a state means; none when no Beat can have written it."""
    there = store.segment_numbers()
    if not there or found.segment < there[0]:
        return store.end().head  # What it names was read and deleted.
    if found.segment not in there:
        is_next = found.segment == there[-1] + 1 and found.is_start
        later = [number for number in there if number > found.segment]
        return store.end().tail if is_next else store.first_of(later[0]) if later else None
    if found.is_start:
        return store.first_of(found.segment)
    begins = store.frame_offsets(found.segment)
    if found.offset <= begins[-1] or found.segment + 1 not in there:
        return _boundary(begins, found.offset, found.frame)
    # Releases up to 2026: the first acks of a session that began at the end of a segment were
    # counted on in that segment instead of the next one.
    following = store.frame_offsets(found.segment + 1)
    frame = None if found.frame is None else found.frame - (len(begins) - 1)
    place = _boundary(following, following[0] + found.offset - begins[-1], frame)
    # A session that sent those again has counted them twice: then it goes on from the end.
    return begins[-1] if place is None and frame is not None and frame > 0 else place


def _boundary(begins: list[int], offset: int, frame: int | None) -> int | None:
    """`offset`, if a frame begins there, or the segment ends, with `frame` of them before it."""
    index = bisect_left(begins, offset)
    is_place = index < len(begins) and begins[index] == offset
    return offset if is_place and frame in (None, index) else None


def state_at(store: BeatsFiles, offset: int) -> state.State:
    """The state for an offset; for the beginning of a segment without events, the end of the last
    one that has any: Beats pass over the others, and number from 0 on where they find none."""
    there = store.segment_numbers()
    if there and offset >> POSITION_BITS > there[-1]:
        offset = store.frame_offsets(there[-1])[-1]
    number = offset >> POSITION_BITS
    frame = bisect_left(store.frame_offsets(number), offset) if number in there else 0
    return state.State.at(store.state_version, offset, frame)


def write_state(store: BeatsFiles, value: state.State) -> None:
    """Makes `state.dat` say `value`.

    A file of the right length is written in place, because others may have it open.
    """
    path, raw = store.state_path, value.pack()
    if path.exists() and path.stat().st_size in (0, len(raw)):
        _core.write_file(path, 0, raw, synced=True)
    else:
        _core.replace_file(path, raw)


def remember(store: BeatsFiles) -> None:
    """What `state.dat` says when we leave, and which segments there are: another content later is a
    Beat's, and a segment that is gone without it is lost."""
    found = known(store)
    raw = b""
    if store.state_path.exists():
        _core.sync_file(store.state_path)
        raw = _raw(store)
    there = store.segment_numbers()
    gaps = [number for number in _gaps_of(found) if there and there[0] < number < there[-1]]
    found |= {"state": raw.hex(), "segments": there[:1] + there[-1:], "gaps": gaps}
    files.write_json(store.sidecar / "beats.json", found)


# ── segments that are gone ─────────────────────────────────────────────────────────────────


def _gaps_of(found: dict[str, object]) -> list[int]:
    gaps = found.get("gaps")
    return [int(number) for number in gaps] if isinstance(gaps, list) else []


def note_gaps(store: BeatsFiles, numbers: list[int]) -> None:
    """Ids that nobody has or will have: their segments were set aside."""
    found = known(store)
    files.write_json(
        store.sidecar / "beats.json", found | {"gaps": sorted({*_gaps_of(found), *numbers})}
    )


def missing(store: BeatsFiles, past: Past) -> list[Damage]:
    """Segments that should be there. Beats number without gaps and delete from the oldest on, and
    so do we: what is missing between two was lost, and so was the first or last one that we left if
    nobody has acked it since."""
    there = [number for number, _ in segments.listed(store.path)]
    found = known(store)
    last = found.get("segments")
    wanted = set(range(there[0], there[-1])) if there else set()
    if past.is_closed and isinstance(last, list) and last:
        raw = _raw(store)
        acked = state.read(store.state_path)
        is_same = raw.hex() == found.get("state")
        start = int(last[0]) if is_same or acked is None else max(acked.segment, int(last[0]))
        wanted |= set(range(start, int(last[-1]) + 1))
    lost = sorted(wanted - set(there) - set(_gaps_of(found)))
    paths = [segments.path_of(store.path, number) for number in lost]
    # Others trim and begin segments while we look: what is lost stays lost.
    oldest = segments.listed(store.path)
    return [
        Damage(path, 0, 0, "no such file", "a segment that nobody has acked")
        for number, path in zip(lost, paths, strict=True)
        if not path.exists() and (past.is_closed or (oldest and oldest[0][0] < number))
    ]
