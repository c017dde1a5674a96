"""Groups for asyncio: tasks that wait, and who gets what."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from penstock import _core
from penstock.errors import ClosedError, Empty
from penstock.options import Durability, check_timeout
from penstock.pacing import FOREIGN_NAP_S, MANUAL_NAP_S

if TYPE_CHECKING:
    from penstock.engine.group import Group, OpenQueue
    from penstock.engine.positions import Where


class Loop(Protocol):
    """What a group asks of the `AsyncQueue` that it belongs to."""

    @property
    def queue(self) -> OpenQueue:
        """The queue behind it; an error unless it is open."""

    def listen(self) -> None:
        """A task waits: from now on the event loop gets the queue's signals."""

    def rest(self) -> None:
        """No task waits: producers need not wake this process."""


class AsyncGroup:
    """One group, for asyncio: any number of tasks may wait on it."""

    queue: Loop
    inner: Group

    def __init__(self, queue: Loop, inner: Group) -> None:
        self.queue, self.inner = queue, inner
        self._waiters: deque[Waiter] = deque()
        self._returned: deque[_core.Message] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._pumper: asyncio.Task[None] | None = None
        self._has_news = False
        always = inner.queue.options.durability is Durability.ALWAYS
        self._is_slow = always and inner.options.ack == "auto"
        """A get that is its own ack waits for the disk."""
        self._syncs_acks = always

    @property
    def name(self) -> str:
        """The name of the group."""
        return self.inner.name

    @property
    def is_waiting(self) -> bool:
        """Whether a task waits here."""
        return bool(self._waiters)

    async def get(
        self, timeout: float | None = None, *, visibility: float | None = None
    ) -> _core.Message:
        """The next message; `Empty` when none comes within `timeout` seconds."""
        found = await self.get_many(1, timeout, visibility=visibility)
        if not found:
            raise Empty()
        return found[0]

    async def get_many(
        self, count: int, timeout: float | None = 0.0, *, visibility: float | None = None
    ) -> list[_core.Message]:
        """Up to `count` messages, what is there; `[]` if nothing comes in time."""
        _ = self.queue.queue  # An error unless it is open.
        check_timeout(timeout)
        if count == 0:
            return []
        if not self._waiters and not self._is_slow:
            found = self._take(count, visibility)
            if found or (timeout is not None and timeout <= 0):
                return found
        return await self._wait(Waiter(count, visibility), timeout)

    def _take(self, count: int, visibility: float | None) -> list[_core.Message]:
        known = min(count, len(self._returned))
        more = self.inner.get_many(count - known, 0, visibility=visibility)
        return [self._returned.popleft() for _ in range(known)] + more

    async def _wait(self, waiter: Waiter, timeout: float | None) -> list[_core.Message]:
        self.queue.listen()
        loop, clock = asyncio.get_running_loop(), self.inner.queue.store.clock
        timer = None
        if timeout is not None:
            waiter.until = clock.boot_now_ns() + int(timeout * 1e9)
            if not clock.manual and not (self._is_slow and timeout <= 0):
                timer = loop.call_later(timeout, self._expire, waiter)
        self._waiters.append(waiter)
        self.pump()
        try:
            return await waiter.future
        except asyncio.CancelledError:
            self._give_back(waiter)
            raise
        finally:
            if timer is not None:
                timer.cancel()
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            self.queue.rest()

    def stay_in(self, loop: asyncio.AbstractEventLoop) -> None:
        """Who waits in another loop takes no answer any more: it has ended."""
        self._waiters = deque(one for one in self._waiters if one.future.get_loop() is loop)
        self._timer = self._pumper = None

    def _expire(self, waiter: Waiter) -> None:
        if not waiter.future.done():
            waiter.future.set_result([])

    def _give_back(self, waiter: Waiter) -> None:
        """The task was cancelled after its messages had come: another consumer gets them."""
        if waiter.future.done() and not waiter.future.cancelled() and not waiter.future.exception():
            self._return(waiter.future.result())

    def _return(self, messages: list[_core.Message]) -> None:
        for message in reversed(messages):
            if message.receipt is None:
                self._returned.appendleft(message)  # Already acked: no other process may see it.
            else:
                message.settle(False)
        self.pump()

    # ── handing out ────────────────────────────────────────────────────────────────────────

    def pump(self) -> None:
        """Hands what is there to those who wait, the longest waiting first."""
        if self._is_slow:
            self._has_news = True  # A pumper that found nothing just now looks again.
            if self._pumper is None and self._waiters:
                self._pumper = asyncio.get_running_loop().create_task(self._pump_slowly())
            return
        try:
            while self._waiters:
                waiter = self._waiters[0]
                if waiter.future.done():
                    self._waiters.popleft()
                    continue
                found = self._take(waiter.count, waiter.visibility)
                if not found and not self._is_late(waiter):
                    break
                self._waiters.popleft()
                waiter.future.set_result(found)
        except Exception as error:
            self.fail(error)
        self._set_timer()

    async def _pump_slowly(self) -> None:
        try:
            while self._waiters:
                waiter, self._has_news = self._waiters[0], False
                found = await asyncio.to_thread(self._take, waiter.count, waiter.visibility)
                if waiter.future.done():
                    self._returned.extendleft(reversed(found))
                elif found or self._is_late(waiter):
                    waiter.future.set_result(found)
                elif self._has_news:
                    continue
                else:
                    break
                if self._waiters and self._waiters[0] is waiter:
                    self._waiters.popleft()
        except Exception as error:
            self.fail(error)
        finally:
            self._pumper = None
        self._set_timer()

    def _is_late(self, waiter: Waiter) -> bool:
        clock = self.inner.queue.store.clock
        return waiter.until is not None and clock.boot_now_ns() >= waiter.until

    def _set_timer(self) -> None:
        """Looks again when a lease or a delay runs out; no signal says so."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._waiters:
            return
        store = self.inner.queue.store
        seconds = MANUAL_NAP_S if store.clock.manual else self.inner.core.wake_in()
        if store.publish is not None and store.publish.foreign_end is not None:
            # Programs that are not ours may append, and they wake no consumer.
            seconds = FOREIGN_NAP_S if seconds is None else min(seconds, FOREIGN_NAP_S)
        if seconds is not None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self.pump)

    def fail(self, error: Exception) -> None:
        """Gives the error to every task that waits."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.future.done():
                waiter.future.set_exception(error)

    # ── acking ─────────────────────────────────────────────────────────────────────────────

    async def ack(self, message: _core.Message) -> None:
        """Like `message.ack()`; at durability `always` its sync does not hold the loop up."""
        if self._syncs_acks:
            await asyncio.to_thread(message.ack)
        else:
            message.ack()

    async def nack(self, message: _core.Message, delay: float = 0.0) -> None:
        """Like `message.nack(delay)`."""
        message.nack(delay)

    async def extend(self, message: _core.Message, seconds: float) -> None:
        """Like `message.extend(seconds)`."""
        message.extend(seconds)

    def seek(self, where: Where, *, id: str | None = None) -> int:
        """Reads on at `where`; see `Group.seek`."""
        return self.inner.seek(where, id=id)

    def __aiter__(self) -> Messages:
        """Waits for each message and ends on close; see `Messages`."""
        return Messages(self, None)

    def messages(self, timeout: float | None) -> Messages:
        """Like iterating, but ends when nothing comes within `timeout` seconds."""
        return Messages(self, timeout)

    def __repr__(self) -> str:
        return f"<AsyncGroup of {self.inner!r}>"


class Waiter:
    """A get that found nothing yet."""

    count: int
    visibility: float | None

    __slots__ = ("count", "future", "until", "visibility")

    def __init__(self, count: int, visibility: float | None) -> None:
        """Waits for up to `count` messages."""
        self.count, self.visibility = count, visibility
        self.until: int | None = None
        loop = asyncio.get_running_loop()
        self.future: asyncio.Future[list[_core.Message]] = loop.create_future()


class Messages:
    """An `async for` over a group.

    Coming back for the next message acks the one before, unless the body did something about it;
    leaving the loop with an error, a cancellation or `break` gives it back.
    """

    def __init__(self, group: AsyncGroup, timeout: float | None) -> None:
        """Ends when nothing comes within `timeout` seconds; none: never."""
        self._group, self._timeout = group, timeout
        self._last: _core.Message | None = None

    def __aiter__(self) -> Messages:
        return self

    async def __anext__(self) -> _core.Message:
        """Settles the last message, then waits for the next."""
        last, self._last = self._last, None
        if last is not None:
            if self._group._syncs_acks:
                await asyncio.to_thread(last.settle, True)
            else:
                last.settle(True)
        try:
            self._last = await self._group.get(self._timeout)
        except (Empty, ClosedError):
            raise StopAsyncIteration from None
        return self._last

    def __del__(self) -> None:
        """The loop was left in the middle: at once, and without the event loop's help. A queue that
        was closed meanwhile has given the message back already."""
        if self._last is not None:
            with suppress(ClosedError):
                self._last.settle(False)
