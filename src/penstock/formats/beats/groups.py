"""The one group that a Beats queue keeps itself: the default group, in `state.dat`."""

from __future__ import annotations

from penstock import _core
from penstock.formats.beats import following, segments, state
from penstock.formats.beats.queue_files import BeatsFiles
from penstock.formats.contract import OwnGroups
from penstock.formats.values import Damage
from penstock.options import DEFAULT_GROUP
from penstock.sidecar import quarantine
from penstock.sidecar.groups import GroupProgress


class BeatsGroups(OwnGroups):
    """The group in `state.dat`, as far as Beats (or we) have acked; all others live in the
    sidecar."""

    def __init__(self, files: BeatsFiles) -> None:
        self._files = files

    def places(self) -> dict[str, int]:
        """The default group, once anything was acked."""
        found = state.read(self._files.state_path)
        if found is not None:
            return {DEFAULT_GROUP: self.offset_of(found)}
        # Nothing acked yet. For a reader that is a Beat at the beginning; a writer has this group
        # from its first use on, and not before.
        is_beats = not self._files.is_live and self._files.state_path.exists()
        return {DEFAULT_GROUP: self._files.store.end().head} if is_beats else {}

    def offset_of(self, found: state.StateFile) -> int:
        """The state as an offset where a message begins, or the end of its segment."""
        place = following.place_of(self._files, found)
        # Where no event begins: rather again than not at all.
        return place if place is not None else self._files.start_of(found)

    def mirror(self, group: str) -> _core.Mirror | None:
        """`state.dat` for the default group."""
        if group != DEFAULT_GROUP:
            return None
        path, version = self._files.state_path, self._files.state_version
        if state.read(path) is None:
            first = state.StateFile.at(version, self._files.store.end().head, 0)
            following.write_state(self._files, first)
        return _core.beats_state(path, self._files.state_version, self._files)

    def place_of(self, group: str, progress: GroupProgress) -> int | None:
        """The place of the default group as `state.dat` has it."""
        if group != DEFAULT_GROUP:
            return None
        return following.state_at(self._files, progress.cursor).offset

    def is_moved(self, group: str) -> bool:
        return following.is_moved(self._files)

    def fault(self, group: str) -> Damage | None:
        """A state that no Beat can have written."""
        return following.fault(self._files)

    def set_place(self, group: str, offset: int) -> None:
        """Writes `state.dat`; what it said is kept aside."""
        path, now_ns = self._files.state_path, self._files.clock.wall_now_ns()
        quarantine.copy(self._files.sidecar, path, 0, segments.size_of(path), now_ns=now_ns)
        following.write_state(self._files, following.state_at(self._files, offset))
