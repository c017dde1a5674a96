"""What an open queue has open: groups, groups that it only looks at, queues for dead letters.

Any thread may ask for a group. The first one opens it, and all share it: a handle that was lost
would not be closed with the queue, and its waits would not end. So groups are looked up and opened
under one lock. The maintenance thread takes that lock too, so no thread waits for it while holding
the lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from penstock.errors import ClosedError, GroupError
from penstock.hints import TYPE_CHECKING, Any, TypeVar
from penstock.places import Path

if TYPE_CHECKING:
    from penstock.engine.group import Group, OpenQueue

Q = TypeVar("Q")


class OpenGroups:
    """The groups and dead-letter queues that one open queue has open."""

    def __init__(self, queue: OpenQueue) -> None:
        self._queue = queue
        self._lock = threading.RLock()
        self._groups: dict[str, Group] = {}
        self._looked: dict[str, Group] = {}
        self._graves: dict[Path, Any] = {}
        self._is_closed = False
        self._told: set[str] = set()

    def is_news(self, name: str) -> bool:
        """Whether this is the first time that the group is reported as unreadable."""
        with self._lock:
            is_news = name not in self._told
            self._told.add(name)
            return is_news

    def group(self, name: str, options: dict[str, Any]) -> tuple[Group, bool]:
        """The group of this name, and whether it had to be opened."""
        with self._lock:
            self._ensure_open()
            found = self._groups.get(name)
            if found is not None and not found.core.is_gone:
                return found, False
            if found is not None:
                self._queue.forget_group(name)
            from penstock.engine.group import Group

            self._queue.store.ensure_in_place()
            found = self._groups[name] = Group(self._queue, name, **options)
            return found, True

    def look(self, name: str) -> Group | None:
        """A group to look at; `None` if there is no such group. A damaged one is an error."""
        from penstock.engine.group import Group, folder_of, has_progress

        with self._lock:
            self._ensure_open()
            found = self._groups.get(name) or self._looked.get(name)
            if found is None or (found.core.is_gone and name not in self._groups):
                self._queue.store.ensure_in_place()
                try:
                    found = self._looked[name] = Group(self._queue, name, create=False, look=True)
                except (GroupError, FileNotFoundError):
                    if has_progress(folder_of(self._queue.store, name)):
                        raise  # The group exists, but can't be read.
                    return None  # It was deleted meanwhile.
            return found

    def grave(self, path: Path, open_it: Callable[[], Q]) -> Q:
        """The queue for dead letters at `path`."""
        with self._lock:
            self._ensure_open()
            if path not in self._graves:
                self._graves[path] = open_it()
            found: Q = self._graves[path]
            return found

    def has(self, group: Group) -> bool:
        """Whether the group is still open."""
        with self._lock:
            return not self._is_closed and self._groups.get(group.name) is group

    def groups(self) -> list[Group]:
        """The groups that this process consumes through."""
        with self._lock:
            return list(self._groups.values())

    def all_groups(self) -> list[tuple[Group, bool]]:
        """All open groups, each with whether this process consumes through it."""
        with self._lock:
            consumed = [(group, True) for group in self._groups.values()]
            return consumed + [(group, False) for group in self._looked.values()]

    def keep(self, group: Group) -> None:
        """Remembers a group under its new name."""
        with self._lock:
            self._groups[group.name] = group

    def forget(self, name: str) -> None:
        """Forgets a group that was closed, deleted or renamed."""
        with self._lock:
            self._groups.pop(name, None)

    def close(self) -> tuple[list[Group], list[OpenQueue]]:
        """From now on nothing is opened; returns what must be closed."""
        with self._lock:
            self._is_closed = True
            for looked in self._looked.values():
                looked.let_go()
            self._looked.clear()
            return list(self._groups.values()), list(self._graves.values())

    def reopen(self) -> None:
        """Called in a forked child: opens the groups again, except those of one consumer alone."""
        with self._lock:
            shared = [group for group in self._groups.values() if not group.options.exclusive]
            self._groups = {group.name: group for group in shared}
            for group in shared:
                group._open()

    def after_fork(self) -> None:
        """Called in a forked child: the thread that held the lock is not in this process."""
        self._lock = threading.RLock()
        for group in self._groups.values():
            group.after_fork()
        self._looked.clear()

    def _ensure_open(self) -> None:
        if self._is_closed:
            raise ClosedError()
