"""The one group that a Beats queue keeps itself: the default group, in `state.dat`.

`state.dat` is written by us at every ack and by a Beat at every one of its own. Whether it is still
ours is told by comparing it with what we wrote last: after an orderly close that is noted in
`.penstock/beats.json`, after a kill it follows from the group's own files. Anything else is a
Beat's, and the group goes on there, if a Beat can have written it: the file has no checksum, but
the bookmark must be the beginning of an event, and the number of events before it must be right.
One wrong bit would else cost all events up to where it points.
"""

from __future__ import annotations

from bisect import bisect_left
from contextlib import suppress

from penstock import _core
from penstock.disk import files
from penstock.formats.beats import state
from penstock.formats.beats.queue_files import BeatsFiles
from penstock.formats.beats.state import StateFile
from penstock.formats.beats.structs import POSITION_BITS
from penstock.formats.contract import OwnGroups
from penstock.formats.values import Damage
from penstock.options import DEFAULT_GROUP
from penstock.sidecar import quarantine
from penstock.sidecar.groups import GroupProgress

RAW_MAX = 4096
"""At most so much is read, or set aside, of a file that stands in the place of `state.dat`."""


class BeatsGroups(OwnGroups):
    """The group in `state.dat`, as far as Beats (or we) have acked; all others live in the
    sidecar."""

    def __init__(self, beats: BeatsFiles) -> None:
        self._beats, self._path = beats, beats.state_path

    def bookmarks(self) -> dict[str, int]:
        """The default group, once anything was acked."""
        found = state.read(self._path)
        if found is not None:
            return {DEFAULT_GROUP: self.offset_of(found)}
        # Nothing acked yet. For a reader that is a Beat at the beginning; a writer has this group
        # from its first use on, and not before.
        is_beats = not self._beats.is_live and self._path.exists()
        return {DEFAULT_GROUP: self._beats.store.end().head} if is_beats else {}

    def offset_of(self, found: StateFile) -> int:
        """The state as an offset where a message begins, or the end of its segment."""
        offset = self._named_by(found)
        # Where no event begins: rather again than not at all.
        return offset if offset is not None else self._beats.start_of(found)

    def mirror(self, group: str) -> _core.Mirror | None:
        """`state.dat` for the default group."""
        if group != DEFAULT_GROUP:
            return None
        version = self._beats.state_version
        if state.read(self._path) is None:
            self._write(StateFile.at(version, self._beats.store.end().head, 0))
        return _core.beats_state(self._path, version, self._beats)

    def bookmark_of(self, group: str, progress: GroupProgress) -> int | None:
        return self.state_at(progress.cursor).offset if group == DEFAULT_GROUP else None

    def is_moved(self, group: str) -> bool:
        """Whether `state.dat` is not as we left it when we closed the queue."""
        return self.raw().hex() != self._beats.noted().get("state")

    def fault(self, group: str) -> Damage | None:
        """What is wrong with the bookmark in `state.dat`, if no Beat can have written it."""
        found, past = state.read(self._path), self._beats.past
        # After a power cut it may name what was lost.
        if found is None or past is None or past.is_stopped:
            return None
        if past.is_closed and not self.is_moved(group):
            return None
        offset, ours = self._named_by(found), self._beats.progress()
        if offset is not None and not past.is_closed and ours is not None and offset <= ours.cursor:
            return None  # Where we were before our last acks, or are.
        if offset is not None and not self._is_one_bit_off():
            return None
        text = f"segment {found.segment}, position {found.position}, event {found.frame}"
        return Damage(self._path, 0, self._path.stat().st_size, text, "where an event begins")

    def _is_one_bit_off(self) -> bool:
        """Whether the file is ours but for one bit. A Beat that goes on changes more than that."""
        raw, last, ours = self.raw(), self._beats.noted().get("state"), self._beats.progress()
        before = b"" if ours is None else self.state_at(ours.cursor).pack()
        if self._beats.past is not None and self._beats.past.is_closed and isinstance(last, str):
            with suppress(ValueError):
                before = bytes.fromhex(last)
        differing = int.from_bytes(raw, "little") ^ int.from_bytes(before, "little")
        return len(raw) == len(before) and differing.bit_count() == 1

    def set_bookmark(self, group: str, offset: int) -> None:
        """Writes `state.dat`; what it said is kept aside."""
        self._keep_aside(files.size_of(self._path))
        self._write(self.state_at(offset))

    # ── the file ───────────────────────────────────────────────────────────────────────────

    def raw(self) -> bytes:
        """The bytes of `state.dat`."""
        return files.read_start(self._path, RAW_MAX) if self._path.exists() else b""

    def _keep_aside(self, length: int) -> None:
        now_ns = self._beats.clock.wall_now_ns()
        quarantine.copy(self._beats.sidecar, self._path, 0, length, now_ns=now_ns)

    def _write(self, value: StateFile) -> None:
        """A file of the right length is written in place, because others may have it open."""
        raw = value.pack()
        if self._path.exists() and self._path.stat().st_size in (0, len(raw)):
            _core.write_file(self._path, 0, raw, synced=True)
        else:
            _core.replace_file(self._path, raw)

    def tidy(self) -> list[Damage]:
        """`state.dat` as something that we can write on in: a file that is no state is set aside,
        an older version becomes ours. Returns what is wrong with it. Alone, under the opening
        lock."""
        raw, found = self.raw(), state.read(self._path)
        if found is not None:
            is_ours = found.version == self._beats.state_version
            if not is_ours and self.fault(DEFAULT_GROUP) is None:
                self._write(self.state_at(self._named_by(found) or found.offset))
            return []
        ours = self._beats.progress()
        if raw:
            self._keep_aside(len(raw))
        if ours is not None and (raw or self._beats.noted().get("state")):
            self._write(self.state_at(ours.cursor))
        elif raw or not self._path.exists():
            _core.replace_file(self._path, b"")
        expected = "the 20 or 28 bytes of a state"
        return [Damage(self._path, 0, len(raw), "no state of a Beat", expected)] if raw else []

    def leave(self, segment_base: int) -> bytes:
        """Makes sure of `state.dat`, and returns what it says. Where the last segment has no event,
        it names the end of the one before."""
        found = state.read(self._path)
        if found is not None and found.offset == segment_base:
            self._write(self.state_at(found.offset))
        if self._path.exists():
            _core.sync_file(self._path)
        return self.raw()

    # ── states and offsets ─────────────────────────────────────────────────────────────────

    def state_at(self, offset: int) -> StateFile:
        """The state for an offset; for the beginning of a segment without events, the end of the
        last one that has any: Beats pass over the others, and number from 0 on where they find
        none."""
        there = self._beats.segment_numbers()
        if there and offset >> POSITION_BITS > there[-1]:
            offset = self._beats.frame_offsets(there[-1])[-1]
        number = offset >> POSITION_BITS
        begins = self._beats.frame_offsets(number) if number in there else []
        return StateFile.at(self._beats.state_version, offset, bisect_left(begins, offset))

    def _named_by(self, found: StateFile) -> int | None:
        """The offset that a state means; none when no Beat can have written it."""
        while True:
            # Before the files are listed: what is put meanwhile lies behind the offset.
            tail = self._beats.store.end().tail
            there = self._beats.segment_numbers()
            try:
                return self._named_among(there, tail, found)
            except FileNotFoundError:
                if self._beats.segment_numbers() == there:
                    raise  # Else every group was done with a segment, and a process has deleted it.

    def _named_among(self, there: list[int], tail: int, found: StateFile) -> int | None:
        beats = self._beats
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
        offset = _boundary(following, following[0] + found.offset - begins[-1], frame)
        # A session that sent those again has counted them twice: then it goes on from the end.
        return begins[-1] if offset is None and frame is not None and frame > 0 else offset


def _boundary(begins: list[int], offset: int, frame: int | None) -> int | None:
    """`offset`, if a frame begins there, or the segment ends, with `frame` of them before it."""
    index = bisect_left(begins, offset)
    is_place = index < len(begins) and begins[index] == offset
    return offset if is_place and frame in (None, index) else None
