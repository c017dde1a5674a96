"""Groups whose last opener was killed: no process syncs what it had acked.

Every process syncs the groups that it has open. Those of others are only looked at, by a read of
their table's first words and without their lock: what stays unsynced for a whole interval is synced
here.
"""

from __future__ import annotations

import contextlib

from penstock.errors import GroupError
from penstock.hints import TYPE_CHECKING
from penstock.sidecar import groups

if TYPE_CHECKING:
    from penstock.engine.group import OpenQueue


class Orphans:
    """What was unsynced at the last look."""

    def __init__(self, queue: OpenQueue) -> None:
        self._queue = queue
        self._unsynced: dict[str, tuple[int, int, int]] = {}

    def tend(self) -> bool:
        """Syncs what was not synced since the last look. True: look again in an interval."""
        before, self._unsynced = self._unsynced, self._look()
        for name in [name for name, mark in self._unsynced.items() if before.get(name) == mark]:
            del self._unsynced[name]
            self._sync(name)
        return bool(self._unsynced)

    def _look(self) -> dict[str, tuple[int, int, int]]:
        folder = self._queue.store.sidecar / "groups"
        boot = self._queue.store.run
        ours = self._queue.known_groups()
        try:
            others = [entry for entry in folder.iterdir() if entry.name not in ours]
        except FileNotFoundError:
            return {}
        marks = {entry.name: groups.unsynced(entry, boot) for entry in others}
        return {name: mark for name, mark in marks.items() if mark is not None}

    def _sync(self, name: str) -> None:
        from penstock.engine.group import Group

        # They are closed again: each has files, and there may be one per consumer that ever was.
        with contextlib.suppress(GroupError, FileNotFoundError):  # Another process deleted it.
            Group(self._queue, name, create=False, look=True).core.sync()
