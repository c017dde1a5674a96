"""A group whose cursor follows a stream, so that retention waits and lag tools see it.

Spark tells a source neither its query nor its checkpoint. What has to be remembered between its
runs is kept with the group:

    .penstock/groups/<group>/spark.json    {"start": where the stream began, "advanced": …}
    .penstock/groups/<group>/spark.lock    held while a query follows

A group that never advanced gives its start again, because Spark asks for it again when the very
first micro-batch has to be repeated. A group that advanced means a new checkpoint.
"""

from __future__ import annotations

import fcntl
import os
import time

from penstock.engine.group import Group, folder_of
from penstock.engine.queue import Queue
from penstock.errors import GroupError
from penstock.sidecar import groups
from penstock.spark.options import SourceOptions

PATIENCE_S = 10.0
"""How long the query before this one in the same session may take to let go."""


class Follower:
    """One queue's group, open in the driver."""

    queue: Queue
    is_new: bool
    has_advanced: bool

    def __init__(self, path: str, options: SourceOptions) -> None:
        """Opens queue and group; a second query on the same group is refused."""
        key = options.queue_options().key
        self.queue = Queue(path, format=options.queue_format, create=False, key=key)
        self._options = options
        folder = folder_of(self.queue.store, options.group)
        groups.make(folder)
        self._folder = folder
        self._lock = self._take()
        state = groups.read_query(folder)
        self.is_new = state is None
        """Whether nothing held the queue back for the stream until now."""
        self.start: int | None = None if state is None else int(state["start"])
        self.has_advanced = state is not None and bool(state["advanced"])

    def _take(self) -> int:
        handle = groups.open_query_lock(self._folder)
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return handle
            except BlockingIOError:
                if time.monotonic() > deadline:
                    os.close(handle)
                    self.queue.close()
                    raise GroupError(
                        f"{self.queue.path}: another query follows with group "
                        f"{self._options.group!r}; stop it or use another group"
                    ) from None
                time.sleep(0.1)

    @property
    def cursor(self) -> int | None:
        """Where the group stands; none if it is new."""
        if self._options.group not in self.queue.groups() or self.start is None:
            return None
        return self._group(self.start).cursor

    def _group(self, start: int) -> Group:
        return self.queue.group(
            self._options.group,
            start=start,
            native_cursor=False,
            retain_unread=self._options.retain_unread,
        )

    def begin(self, start: int, head: int) -> int:
        """The stream begins here: remembered before Spark hears of it. Returns where that is.

        `head` is where the queue begins as its files have it. Where what all groups have read is
        deleted, the queue that is open may already begin later.
        """
        if start == head < self.queue.offsets().head:
            start = self.queue.offsets().head
            self.queue.sync()  # What others have read may be ahead of what is durable.
        groups.write_query(self._folder, {"start": start, "advanced": False})
        self.start, self.has_advanced, self.is_new = start, False, False
        group = self._group(start)
        if group.cursor != start:
            group.core.seek(start)
        group.core.sync()
        return start

    def advance(self, offset: int) -> None:
        """Spark is done with everything below; never moves back."""
        group = self._group(offset if self.start is None else self.start)
        if offset == self.start and not self.has_advanced:
            return
        if offset > group.cursor:
            group.core.seek(offset)
            group.core.sync()
        if not self.has_advanced:
            start = offset if self.start is None else self.start
            groups.write_query(self._folder, {"start": start, "advanced": True})
            self.start, self.has_advanced = start, True

    def close(self) -> None:
        """Lets go of the group; its cursor stays."""
        os.close(self._lock)
        self.queue.close()
