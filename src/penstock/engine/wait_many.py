"""Waiting for many queues at once, by file descriptor.

Each queue that is waited for has a native watch, whose eventfd becomes readable when the queue is
worth another look. One epoll watches them all, together with an eventfd of our own: a thread sleeps
on it, or an event loop watches it as one descriptor. Libraries of green threads (gevent, eventlet)
take `epoll` away and make `poll` or `select` their own: then those are used, and wait without
holding the other green threads up.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from time import monotonic
from typing import Any, Protocol

from penstock import _core
from penstock.engine.folder import Folder, Jobs
from penstock.engine.queue import Queue


class Poller(Protocol):
    """What `epoll`, `poll` and `select` have in common here."""

    def register(self, descriptor: int) -> None:
        """Begins to watch a descriptor."""

    def unregister(self, descriptor: int) -> None:
        """Ceases to watch a descriptor."""

    def poll(self, seconds: float | None) -> list[int]:
        """Those that are readable, after at most `seconds`."""

    def close(self) -> None:
        """Closes what it has open."""


class Epoll:
    """The poller of Linux, used unless threads are green."""

    def __init__(self) -> None:
        self._inner: Any = select.epoll()

    def register(self, descriptor: int) -> None:
        self._inner.register(descriptor, select.EPOLLIN)

    def unregister(self, descriptor: int) -> None:
        self._inner.unregister(descriptor)

    def fileno(self) -> int:
        """One descriptor for all of them."""
        return int(self._inner.fileno())

    def close(self) -> None:
        self._inner.close()

    def poll(self, seconds: float | None) -> list[int]:
        return [descriptor for descriptor, _ in self._inner.poll(seconds)]


class Green:
    """For green threads, by `poll` or `select` as their library has them."""

    def __init__(self) -> None:
        self._watched: set[int] = set()

    def register(self, descriptor: int) -> None:
        self._watched.add(descriptor)

    def unregister(self, descriptor: int) -> None:
        self._watched.discard(descriptor)

    def close(self) -> None:
        self._watched.clear()

    def poll(self, seconds: float | None) -> list[int]:
        if not hasattr(select, "poll"):  # eventlet's `select`, which has no highest descriptor.
            return select.select(list(self._watched), [], [], seconds)[0]
        inner = select.poll()
        for descriptor in self._watched:
            inner.register(descriptor, select.POLLIN)
        limit = None if seconds is None else seconds * 1000
        return [descriptor for descriptor, _ in inner.poll(limit)]


class Inbox:
    """One queue (or a part of one) that a connection consumes from."""

    name: str
    part: str

    def __init__(self, folder: Folder, poll: QueuePoll, name: str, part: str) -> None:
        self.name, self.part, self._folder, self._poll = name, part, folder, poll
        self._queue: Queue | None = None
        self.watch: _core.Watch | None = None
        self._is_armed = False

    def get(self, visibility_s: float) -> _core.Message | None:
        """The next message, leased; none when there is none now."""
        found = self.jobs().group.get_many(1, 0, visibility=visibility_s)
        if not found:
            return None
        return found[0]

    def get_in(self, seconds: float, visibility_s: float) -> _core.Message | None:
        """The next message; none when none comes in time. Green threads go on meanwhile."""
        if self._poll.is_green:
            return _first(lambda: self.get(visibility_s), lambda: [self], self._poll, seconds)
        # The core wakes a thread of the operating system itself, which is the shortest way.
        found = self.jobs().group.get_many(1, seconds, visibility=visibility_s)
        return found[0] if found else None

    def jobs(self) -> Jobs:
        """The queue as it is now: it may have been deleted and made again."""
        jobs = self._folder.jobs(self.name, self.part)
        if jobs.queue is not self._queue:
            self.close()
            self._queue = jobs.queue
        return jobs

    def arm(self) -> bool:
        """From now on a put raises the descriptor. True: only from now on, so look once more."""
        jobs = self.jobs()
        if self.watch is None:
            self.watch = _core.Watch(jobs.queue.store.need_shared())
            self._poll.add(self.watch.fileno())
        if self._is_armed:
            return False
        self.watch.arm()
        self._is_armed = True
        return True

    def disarm(self) -> None:
        """There is more than enough to do: producers need not wake us."""
        if self._is_armed and self.watch is not None:
            self.watch.disarm()
            self._is_armed = False

    def wake_in(self) -> float | None:
        """Seconds until a delay or a lease runs out, or until the dead are looked for."""
        return self.jobs().group.core.wake_in()

    def close(self) -> None:
        if self.watch is not None:
            # By hand: forked children have the descriptor too, so it would not leave the epoll.
            self._poll.drop(self.watch.fileno())
            self.watch.close()
        self.watch, self._is_armed, self._queue = None, False, None


class QueuePoll:
    """What a connection sleeps on."""

    def __init__(self) -> None:
        self._poller: Poller = Epoll() if hasattr(select, "epoll") else Green()
        self._own = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poller.register(self._own)
        self._pid = os.getpid()

    def fileno(self) -> int:
        """One descriptor for everything, for an event loop."""
        if not isinstance(self._poller, Epoll):
            raise RuntimeError("green threads have no event loop to give a descriptor to")
        return self._poller.fileno()

    @property
    def is_green(self) -> bool:
        """Whether those who wait here are green threads."""
        return not isinstance(self._poller, Epoll)

    def wake(self) -> None:
        """Ends a wait, from any thread."""
        if self._pid == os.getpid():
            os.eventfd_write(self._own, 1)

    def wait(self, seconds: float | None) -> None:
        """Sleeps until a queue is worth a look, or `wake`, at most for `seconds`."""
        until = None if seconds is None else monotonic() + seconds
        while True:
            left = None if until is None else max(0.0, until - monotonic())
            try:
                self._clear(self._poller.poll(left))
                return
            except InterruptedError:
                continue

    def clear(self) -> None:
        """Forgets what has made the descriptor readable."""
        self._clear(self._poller.poll(0))

    def _clear(self, readable: list[int]) -> None:
        for descriptor in readable:
            try:
                os.eventfd_read(descriptor)
            except BlockingIOError:
                continue
            except OSError:  # A watch that was closed meanwhile.
                self.drop(descriptor)

    def add(self, descriptor: int) -> None:
        """It is watched from now on."""
        self._poller.register(descriptor)

    def drop(self, descriptor: int) -> None:
        """It is watched no more."""
        try:
            self._poller.unregister(descriptor)
        except (OSError, KeyError, ValueError):
            return

    def close(self) -> None:
        self._poller.close()
        if self._pid == os.getpid():
            os.close(self._own)


class PartsInbox:
    """All parts of one queue, for one thread that takes from the most urgent part first."""

    folder: Folder

    def __init__(self, folder: Folder, name: str, urgency: Callable[[str], int]) -> None:
        """`urgency` says of a part how early it comes: the highest number is the first."""
        self.folder, self._name, self._urgency = folder, name, urgency
        self._poll, self._inboxes = QueuePoll(), dict[str, Inbox]()
        folder.jobs(name)

    def inboxes(self) -> list[Inbox]:
        """One for each part that there is now, the most urgent first."""
        for part in self.folder.parts(self._name):
            if part not in self._inboxes:
                self._inboxes[part] = Inbox(self.folder, self._poll, self._name, part)
        return [self._inboxes[part] for part in sorted(self._inboxes, key=self._urgency)[::-1]]

    def get(self, visibility_s: float) -> _core.Message | None:
        """The next message, leased; none when there is none now."""
        for inbox in self.inboxes():
            found = inbox.get(visibility_s)
            if found is not None:
                return found
        return None

    def get_in(self, seconds: float, visibility_s: float) -> _core.Message | None:
        """The next message; none when none comes in time."""
        return _first(lambda: self.get(visibility_s), self.inboxes, self._poll, seconds)


def _first(
    get: Callable[[], _core.Message | None],
    inboxes: Callable[[], list[Inbox]],
    poll: QueuePoll,
    seconds: float,
) -> _core.Message | None:
    """What `get` gives as soon as it gives something, at most `seconds` from now."""
    until = monotonic() + seconds
    while (found := get()) is None and (left := until - monotonic()) > 0:
        watched = inboxes()
        if not sum(inbox.arm() for inbox in watched):  # All are armed; news since are looked at.
            due = [one for inbox in watched if (one := inbox.wake_in()) is not None]
            poll.wait(min([left, *due]))
    return found
