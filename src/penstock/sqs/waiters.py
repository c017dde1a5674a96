"""Long poll: receives that wait for a message, the longest waiting first.

A queue that somebody waits for has a native watch: its descriptor becomes readable when anyone, in
any process, puts or gives back. A timer looks again when a delay or a lease runs out, which nobody
signals.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from penstock import _core
from penstock.sqs.queues import SqsQueue

MANUAL_NAP_S = 0.005
"""Only a test moves a manual clock, and nothing tells when."""


class Waiter:
    """One receive that waits."""

    count: int
    future: asyncio.Future[list[_core.Message]]
    queue: SqsQueue
    until_ns: int
    visibility_s: int | None

    __slots__ = ("count", "future", "queue", "timer", "until_ns", "visibility_s", "waiters")

    def __init__(
        self, waiters: Waiters, queue: SqsQueue, count: int, visibility_s: int | None,
        until_ns: int, future: asyncio.Future[list[_core.Message]],
    ) -> None:  # fmt: skip
        """Waits until `until_ns` of the boot clock."""
        self.waiters: Waiters = waiters
        self.queue, self.count, self.visibility_s = queue, count, visibility_s
        self.until_ns, self.future = until_ns, future
        self.timer: asyncio.TimerHandle | None = None

    def give_back(self) -> None:
        """What has come is for the next one, who gets it as if nobody had received it."""
        if self.future.done() and not self.future.cancelled() and not self.future.exception():
            self.queue.group.core.take_back(self.future.result())

    def leave(self) -> None:
        """Ends this wait; the others go on."""
        self.waiters.leave(self)


class Waiters:
    """All receives of an endpoint that wait."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Waits on `loop`, which must be the endpoint's."""
        self._loop = loop
        self._timers: dict[SqsQueue, asyncio.TimerHandle] = {}

    def wait(self, queue: SqsQueue, count: int, visibility_s: int | None, wait_s: int) -> Waiter:
        """Waits for up to `count` messages; the future has what came in time."""
        until_ns = queue.clock.boot_now_ns() + wait_s * 1_000_000_000
        waiter = Waiter(self, queue, count, visibility_s, until_ns, self._loop.create_future())
        queue.waiting.append(waiter)
        if not queue.clock.manual:
            waiter.timer = self._loop.call_later(wait_s, self._expire, waiter)
        self._arm(queue)
        self.look(queue)
        return waiter

    def leave(self, waiter: Waiter) -> None:
        """Ends the wait of one receive."""
        queue = waiter.queue
        if waiter.timer is not None:
            waiter.timer.cancel()
        if waiter in queue.waiting:
            queue.waiting.remove(waiter)
        if not waiter.future.done():
            waiter.future.cancel()
        if not queue.waiting:
            self._rest(queue)

    def _expire(self, waiter: Waiter) -> None:
        if not waiter.future.done():
            waiter.future.set_result([])

    def look(self, queue: SqsQueue) -> None:
        """Hands what is there to those who wait."""
        try:
            while queue.waiting:
                waiter = queue.waiting[0]
                if not waiter.future.done():
                    found = queue.receive(waiter.count, waiter.visibility_s)
                    is_late = queue.clock.boot_now_ns() >= waiter.until_ns
                    if not found and not is_late:
                        break
                    waiter.future.set_result(found)
                queue.waiting.popleft()
        except Exception as error:
            self.fail(queue, error)
        self._set_timer(queue)

    def fail(self, queue: SqsQueue, error: Exception) -> None:
        """Ends every wait with the error."""
        while queue.waiting:
            waiter = queue.waiting.popleft()
            if not waiter.future.done():
                waiter.future.set_exception(error)

    def _arm(self, queue: SqsQueue) -> None:
        if queue.watch is None:
            queue.watch = _core.Watch(queue.store.store.need_shared())
        queue.watch.arm()
        self._loop.add_reader(queue.watch.fileno(), self._heard(queue))

    def _heard(self, queue: SqsQueue) -> Callable[[], None]:
        def heard() -> None:
            if queue.watch is not None:
                try:
                    os.eventfd_read(queue.watch.fileno())
                except BlockingIOError:
                    return
                self.look(queue)

        return heard

    def _rest(self, queue: SqsQueue) -> None:
        timer = self._timers.pop(queue, None)
        if timer is not None:
            timer.cancel()
        if queue.watch is not None:
            self._loop.remove_reader(queue.watch.fileno())
            queue.watch.disarm()

    def _set_timer(self, queue: SqsQueue) -> None:
        timer = self._timers.pop(queue, None)
        if timer is not None:
            timer.cancel()
        if not queue.waiting:
            return
        if queue.clock.manual:
            seconds: float | None = MANUAL_NAP_S
        else:
            seconds = queue.group.core.wake_in()
        if seconds is not None:
            self._timers[queue] = self._loop.call_later(max(seconds, 0.001), self.look, queue)

    def forget(self, queue: SqsQueue, error: Exception) -> None:
        """The queue is about to be closed."""
        self.fail(queue, error)
        self._rest(queue)
