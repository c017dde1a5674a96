"""Groups for asyncio: tasks that wait, and who gets what."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Protocol

from penstock import _core
from penstock.errors import ClosedError, Empty
from penstock.options import Durability, check_timeout
from penstock.pacing import FOREIGN_NAP_S, MANUAL_NAP_S

if TYPE_CHECKING:
    from collections.abc import Callable

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
        """What came back after it was deleted: only tasks of this process can still get it."""
        self._hand, self._left = Hand(inner.core), list[Hand]()
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
        except BaseException as error:
            # Cancelled, or dropped together with its event loop: then nobody else waits there.
            self._give_back(waiter, is_last=not isinstance(error, asyncio.CancelledError))
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
        self._let_go()

    def end(self) -> None:
        """The queue is about to be closed: what no task has yet goes back. Not in the event loop,
        for it may wait for the disk."""
        for hand in (*self._left, self._hand):
            hand.end()

    def _expire(self, waiter: Waiter) -> None:
        if not waiter.future.done():
            waiter.future.set_result([])

    def _give_back(self, waiter: Waiter, *, is_last: bool) -> None:
        """The task ended after its messages had come: another consumer gets them."""
        future = waiter.future
        if future.done() and not future.cancelled() and not future.exception():
            self._return(future.result())
            if not is_last:
                self.pump()

    def _return(self, messages: list[_core.Message]) -> None:
        if self._is_slow:
            self._end_beside(Hand(self.inner.core, messages))
        elif messages:
            self._returned.extendleft(reversed(self.inner.core.take_back(messages)))

    def _let_go(self) -> None:
        """Nobody comes for what a thread has taken, or is about to take."""
        last, self._hand = self._hand, Hand(self.inner.core)
        if self._is_slow:
            self._end_beside(last)

    def _end_beside(self, hand: Hand) -> None:
        self._left = [*(one for one in self._left if not one.is_empty), hand]
        in_thread(hand.end)

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
                take = partial(self._take, waiter.count, waiter.visibility)
                await asyncio.to_thread(self._hand.take, take)
                if waiter.future.done():
                    self._let_go()
                elif (found := self._hand.empty()) or self._is_late(waiter):
                    waiter.future.set_result(found)
                elif self._has_news:
                    continue
                else:
                    break
                if self._waiters and self._waiters[0] is waiter:
                    self._waiters.popleft()
        except Exception as error:
            self.fail(error)
        except asyncio.CancelledError:
            self._let_go()
            raise
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


class Hand:
    """What a thread has taken, and acked by that, for a task that does not have it yet."""

    def __init__(self, core: _core.Group, messages: list[_core.Message] | None = None) -> None:
        """Holds messages of this group."""
        self._core, self._lock = core, threading.Lock()
        self._messages = messages or []
        self._is_over = False

    @property
    def is_empty(self) -> bool:
        """Whether it has ended and holds nothing."""
        return self._is_over and not self._lock.locked() and not self._messages

    def take(self, take: Callable[[], list[_core.Message]]) -> None:
        """Takes, unless it has ended."""
        with self._lock:
            if not self._is_over:
                self._messages = take()

    def empty(self) -> list[_core.Message]:
        """What was taken: a task has it from now on."""
        with self._lock:
            messages, self._messages = self._messages, []
        return messages

    def end(self) -> None:
        """Takes nothing any more. What was taken is as if it had not been: any consumer gets it."""
        with self._lock:
            self._is_over = True
            if self._messages:
                self._core.take_back(self._messages)
                self._messages = []


def in_thread(work: Callable[[], None]) -> None:
    """Does it beside the event loop, whether or not the loop lives to see its end."""
    try:
        asyncio.get_running_loop().run_in_executor(None, work)
    except RuntimeError:  # There is no loop, or none that begins anything any more.
        work()


async def to_its_end(work: Callable[[], None]) -> None:
    """Does it in a thread that begins and goes on though the task that waits is cancelled."""
    done: Future[None] = Future()
    done.set_running_or_notify_cancel()

    def run() -> None:
        try:
            work()
        except BaseException as error:
            done.set_exception(error)
        else:
            done.set_result(None)

    in_thread(run)
    await asyncio.wrap_future(done)


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
        if self._last is not None:
            # Not before: a thread that was to ack it may never begin, if this task is cancelled.
            if self._group._syncs_acks:
                await asyncio.to_thread(self._last.settle, True)
            else:
                self._last.settle(True)
            self._last = None
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
