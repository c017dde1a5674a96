"""The standard library's `queue.Queue`, on disk and between processes.

    tasks = penstock.StandardQueue("tasks", codec="json")
    tasks.put({"n": 1})
    task = tasks.get()
    …
    tasks.task_done()

`get` takes a lease and `task_done` acks the oldest one of this thread (or, when this thread has
none, of this process). `join` returns when everything that any process put was done. What a
process had not marked done when it ended goes to another one: a program that never calls
`task_done` opens the queue with `ack="auto"`, where the get is the ack and `join` waits for gets.

There is no `LifoQueue` and no `PriorityQueue`: a queue on disk is a log, read in the order in which
it was written. Use one queue per priority and ask them in turn.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Self, Unpack

from penstock import _core
from penstock.clock import ManualClock
from penstock.engine import facts, threads
from penstock.engine.codecs import Codec
from penstock.engine.group import Group
from penstock.engine.queue import Queue
from penstock.errors import Empty, Full, GroupError, PenstockError, ShutDown
from penstock.options import DEFAULT_GROUP, MAX_IN_FLIGHT, AckMode, CodecName, QueueKeywords
from penstock.pacing import LONGEST_SLEEP_S, MANUAL_NAP_S

FOR_EVER_S = 4e9
"""A task ends by `task_done` or with its process, not by the clock."""


class StandardQueue:
    """`queue.Queue`, durable and shared by processes. Handles travel by `multiprocessing`."""

    queue: Queue

    def __init__(
        self,
        path: str | os.PathLike[str],
        maxsize: int = 0,
        *,
        codec: CodecName | Codec | type = "json",
        group: str = DEFAULT_GROUP,
        ack: AckMode = "lease",
        format: str | None = None,
        layout: str | None = None,
        create: bool = True,
        clock: ManualClock | _core.Clock | None = None,
        **options: Unpack[QueueKeywords],
    ) -> None:
        """Opens the queue at `path`; at most `maxsize` messages wait in it, 0: no limit.

        Everyone who puts or gets must say the same `maxsize`. `options` are those of `Queue`.
        """
        if maxsize < 0:
            maxsize = 0
        self.maxsize = maxsize
        how: dict[str, Any] = {
            "codec": codec, "format": format, "layout": layout, "create": create, "clock": clock,
        }  # fmt: skip
        self._given = {"group": group, "ack": ack, **how, **options}
        self.queue = Queue(path, **how, **options)
        """The queue behind it, with everything that `queue.Queue` does not have."""
        self._name, self._ack = group, ack
        self._mutex = threading.Lock()
        self._undone: deque[tuple[int, _core.Message]] = deque()
        weakref.finalize(self, _give_back, self._undone, os.getpid()).atexit = False
        self._pid = os.getpid()
        self._is_shut = self._is_shut_now = False
        self.queue.group(group, ack=ack, visibility_s=FOR_EVER_S, max_in_flight=MAX_IN_FLIGHT)

    # ── putting ────────────────────────────────────────────────────────────────────────────

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """Puts an item; `Full` when no room comes in time."""
        if timeout is not None and timeout < 0:
            raise ValueError("'timeout' must be a non-negative number")
        if self._is_shut:
            raise ShutDown(f"{self.queue.path}: put() after shutdown()")
        patience = timeout if block else 0.0
        if not self.maxsize:
            with self.queue.put_timeout(patience):
                self.queue.put(item)
            return
        until = self._until(patience)
        was_put = False

        def put() -> bool:
            nonlocal was_put
            was_put = not self._is_shut and self._put_if_room(item)
            return was_put or self._is_shut

        if not self._wait(until, put):
            raise Full(f"{self.queue.path}: {self.maxsize} messages wait already")
        if not was_put:
            raise ShutDown(f"{self.queue.path}: shutdown() while put() waited")

    def _put_if_room(self, item: Any) -> bool:
        # Count and put as one, for all processes: no two may take the last place.
        with self._at_the_door():
            if self.qsize() >= self.maxsize:
                return False
            with self.queue.put_timeout(0):
                self.queue.put(item)
            return True

    @contextmanager
    def _at_the_door(self) -> Iterator[None]:
        door = os.open(self._group().folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            threads.lock_file(door)
            yield
        finally:
            threads.unlock_file(door)

    def put_nowait(self, item: Any) -> None:
        """`put(item, block=False)`."""
        self.put(item, block=False)

    # ── getting ────────────────────────────────────────────────────────────────────────────

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """The next item; `Empty` when none comes in time."""
        if timeout is not None and timeout < 0:
            raise ValueError("'timeout' must be a non-negative number")
        self._forget_parent()
        if len(self._undone) >= MAX_IN_FLIGHT:
            raise GroupError(
                f"{self.queue.path}: {MAX_IN_FLIGHT} items were taken and not marked done; call "
                f"task_done(), or open the queue with ack='auto'"
            )
        message = self._next(self._until(timeout if block else 0.0))
        if message.receipt is not None:
            with self._mutex:
                self._undone.append((threading.get_ident(), message))
        if self.maxsize:
            self.queue.store.need_shared().signal()  # A put may wait for room.
        return message.value

    def _next(self, until: int | None) -> _core.Message:
        """The next message. Waits in pieces, to see between two whether a thread has shut down."""
        clock = self.queue.store.clock
        while not self._is_shut_now:
            left = None if until is None else max(0.0, (until - clock.boot_now_ns()) / 1e9)
            piece = LONGEST_SLEEP_S if left is None else min(left, LONGEST_SLEEP_S)
            piece = 0.0 if self._is_shut else piece
            try:
                return self._group().get(None if clock.manual and left is None else piece)
            except Empty:
                if self._is_shut:
                    break
                if left is not None and left <= piece:
                    raise
        raise ShutDown(f"{self.queue.path}: nothing is left after shutdown()")

    def shutdown(self, immediate: bool = False) -> None:
        """From now on `put` raises `ShutDown`, and `get` too once nothing is left.

        With `immediate`, `get` raises at once. It is this handle that is shut: other processes go
        on, and what waits stays in the queue for them or for the next opening.
        """
        self._is_shut, self._is_shut_now = True, immediate
        self.queue.store.need_shared().signal()

    def get_nowait(self) -> Any:
        """`get(block=False)`."""
        return self.get(block=False)

    # ── tasks ──────────────────────────────────────────────────────────────────────────────

    def task_done(self) -> None:
        """The oldest item that this thread took (else: this process) is done."""
        self._forget_parent()
        with self._mutex:
            message = self._oldest_undone()
        if message is not None:
            message.ack()

    def _oldest_undone(self) -> _core.Message | None:
        if not self._undone:
            if self._ack == "auto":
                return None
            raise ValueError("task_done() called too many times")
        me = threading.get_ident()
        mine = next((pair for pair in self._undone if pair[0] == me), self._undone[0])
        self._undone.remove(mine)
        return mine[1]

    def join(self) -> None:
        """Returns when everything that was put, by anyone, is done; or at a `shutdown` that is
        immediate."""
        self._wait(None, lambda: self._is_shut_now or self.unfinished == 0)

    @property
    def unfinished(self) -> int:
        """Items that were put and are not done."""
        return self._waiting("leased", "delayed", "blocked", "ready")

    def _waiting(self, *states: str) -> int:
        return facts.waiting(self._group(), *states)

    def _until(self, seconds: float | None) -> int | None:
        clock = self.queue.store.clock
        return None if seconds is None else clock.boot_now_ns() + int(seconds * 1e9)

    def _wait(self, until: int | None, is_over: Callable[[], bool]) -> bool:
        """Waits for signals of the queue until `is_over`; false when the time is over first."""
        clock = self.queue.store.clock
        while True:
            self.queue.ensure_open()
            shared = self.queue.store.need_shared()
            seen = shared.want_room(self.queue.offsets().tail)
            if is_over():
                return True
            nap = MANUAL_NAP_S if clock.manual else LONGEST_SLEEP_S
            if until is not None:
                left = (until - clock.boot_now_ns()) / 1e9
                if left <= 0:
                    return False
                nap = min(nap, left)
            shared.wait_room(seen, nap)

    # ── about it ───────────────────────────────────────────────────────────────────────────

    def qsize(self) -> int:
        """Items that are not taken yet."""
        return self._waiting("delayed", "blocked", "ready")

    def empty(self) -> bool:
        """Whether no item waits to be taken."""
        return self.qsize() == 0

    def full(self) -> bool:
        """Whether a put would wait."""
        return 0 < self.maxsize <= self.qsize()

    def close(self) -> None:
        """Lets go; what this process had not marked done goes to another one."""
        self.queue.close()

    def _group(self) -> Group:
        return self.queue.group(self._name)

    def _forget_parent(self) -> None:
        """Called first in a forked child: items that were taken are the parent's."""
        if self._pid != os.getpid():
            self._mutex = threading.Lock()  # The thread that had it is not in this process.
            self._undone.clear()
            self._pid = os.getpid()

    def __reduce__(self) -> tuple[Any, ...]:
        """A handle travels between processes as its path."""
        return _reopen, (str(self.queue.path), self.maxsize, self._given)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<StandardQueue {str(self.queue.path)!r}: {self.qsize()} waiting>"


def _give_back(undone: deque[tuple[int, _core.Message]], pid: int) -> None:
    """The handle was dropped without a close: what it had not marked done goes to another one."""
    while undone and pid == os.getpid():
        with suppress(PenstockError):
            undone.popleft()[1].nack()


def _reopen(path: str, maxsize: int, given: dict[str, Any]) -> StandardQueue:
    return StandardQueue(path, maxsize, **given)
