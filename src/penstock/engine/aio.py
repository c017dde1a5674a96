"""The queue for asyncio: the same verbs, awaited.

    async with penstock.AsyncQueue("orders") as queue:
        await queue.put(b"…", tag="eu.created")
        async for message in queue.group("billing"):
            handle(message.body)

Nothing polls and no call has a thread. A call that finds nothing leaves a waiter; one native
thread per process sleeps on the queues' own words and raises an eventfd that the loop watches
(`_core.Watch`), and timers of the loop stand for leases and delays that run out. A waiter that is
cancelled has taken nothing; a message that reached a cancelled waiter goes back.

What waits for a disk goes to a thread: opening, closing, and the syncs of durability `always`,
which all puts that wait at a time share.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from penstock import _core
from penstock.clock import ManualClock
from penstock.engine import paths, when_full
from penstock.engine.aio_group import AsyncGroup, Messages, to_its_end
from penstock.engine.codecs import Codec
from penstock.engine.group import Group
from penstock.engine.positions import Where
from penstock.engine.queue import Queue, is_arrow, refuse_one
from penstock.errors import ClosedError, Full
from penstock.logs import renamed
from penstock.options import (
    DEFAULT_GROUP,
    CodecName,
    Dialect,
    Durability,
    GroupKeywords,
    QueueKeywords,
)
from penstock.pacing import LONGEST_SLEEP_S, MANUAL_NAP_S

if TYPE_CHECKING:
    from penstock.engine.table import Scan

T = TypeVar("T")


class AsyncQueue:
    """A durable queue in a folder, for asyncio. Opened by `async with` or the first call."""

    path: Path

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        format: str | None = None,
        layout: str | None = None,
        create: bool = True,
        clock: ManualClock | _core.Clock | None = None,
        codec: CodecName | Codec | type | None = None,
        **options: Unpack[QueueKeywords],
    ) -> None:
        """Takes what `Queue` takes; nothing is opened yet."""
        self.path = paths.absolute(path)
        self._open_queue = partial(
            Queue, self.path, format=format, layout=layout, create=create, clock=clock, codec=codec,
            **options,
        )  # fmt: skip
        self._queue: Queue | None = None
        self._opening: Opening | None = None
        self._turns = dict[int, threading.Lock]()
        self._is_closed = False
        self._watch: _core.Watch | None = None
        self._home: tuple[asyncio.AbstractEventLoop, int] | None = None
        """The event loop that is told of news, and the process that it runs in."""
        self._groups: dict[str, AsyncGroup] = {}
        self._putters: deque[asyncio.Future[None]] = deque()
        self._unsynced: list[asyncio.Future[None]] = []
        self._syncing: list[asyncio.Future[None]] = []
        self._syncer: asyncio.Task[None] | None = None

    # ── life ───────────────────────────────────────────────────────────────────────────────

    async def open(self) -> Queue:
        """Opens it, in a thread: recovery may read much. Returns the queue behind it."""
        while (queue := self._queue) is None:
            with self._turn:
                opening = self._join_opening()
            try:
                if opening is not None:
                    await asyncio.wrap_future(opening.done)
            finally:
                self._leave_opening(opening)
        with self._turn:
            if self._home is None:
                self._move_in()
        return queue

    @property
    def _turn(self) -> threading.Lock:
        """Held for a moment by a thread that opens the queue, or whose loop is to be told of news.
        By process: a thread that had it in the parent of a fork is not in the child."""
        return self._turns.setdefault(os.getpid(), threading.Lock())

    def _join_opening(self) -> Opening | None:
        """The one opening for all tasks that wait for it, in any event loop."""
        if self._is_closed:
            raise ClosedError()
        if self._queue is not None:
            return None
        if self._opening is None or self._opening.process != os.getpid():
            opening = Opening()
            asyncio.get_running_loop().run_in_executor(None, self._open_for, opening)
            self._opening = opening
        self._opening.waiting += 1
        return self._opening

    def _leave_opening(self, opening: Opening | None) -> None:
        if opening is not None:
            with self._turn:
                opening.waiting -= 1

    def _open_for(self, opening: Opening) -> None:
        try:
            queue = self._open_queue()
            with self._turn:
                is_wanted = opening.waiting > 0 and not self._is_closed
                self._queue, self._opening = queue if is_wanted else None, None
            if not is_wanted:
                queue.close()
        except BaseException as error:
            with self._turn:  # Not before it was noted, under the lock too.
                self._opening = None
            opening.done.set_exception(error)
        else:
            opening.done.set_result(None)

    async def close(self) -> None:
        """Syncs and closes the queue; a task that waits gets `ClosedError`."""
        self._is_closed = True
        queue, self._queue = self._queue, None
        if queue is None:
            return
        here = asyncio.get_running_loop()
        home, process = self._home or (here, os.getpid())
        try:
            if home is here:
                self._end_waits(here)
            elif process != os.getpid() or home.is_closed():
                self._forget_loop(here)
            else:
                home.call_soon_threadsafe(self._end_waits, home)
            if self._syncer is not None and home is here:
                await asyncio.wait([self._syncer])  # Not ended when this task is cancelled.
        finally:
            await to_its_end(lambda: self._close(queue))

    def _end_waits(self, loop: asyncio.AbstractEventLoop) -> None:
        for group in self._groups.values():
            group.fail(ClosedError())
        while self._putters:
            wake(self._putters.popleft())
        if self._watch is not None:
            loop.remove_reader(self._watch.fileno())
            self._watch.close()

    def _close(self, queue: Queue) -> None:
        for group in self._groups.values():
            group.end()
        queue.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def queue(self) -> Queue:
        """The queue behind this one, for what is not awaited: `stats`, `scan`, `groups`, …."""
        if self._queue is None:
            raise ClosedError("the queue is not open; use `async with`, or await queue.open()")
        return self._queue

    def need_open(self) -> Queue:
        """The former name of `queue`; the next release removes it."""
        renamed("AsyncQueue.need_open()", "AsyncQueue.queue")
        return self.queue

    # ── waking ─────────────────────────────────────────────────────────────────────────────

    def _on_event(self) -> None:
        if self._watch is None:
            return
        try:
            os.eventfd_read(self._watch.fileno())
        except BlockingIOError:
            return
        for _ in range(len(self._putters)):
            wake(self._putters.popleft())
        for group in list(self._groups.values()):
            group.pump()
        self.rest()

    def listen(self) -> None:
        """A task waits: the event loop gets the queue's signals now. Look again after it."""
        self._attend()
        if self._watch is not None:
            self._watch.arm()

    def _attend(self) -> None:
        """From now on the running loop is told of news, if the one before it has ended or is that
        of the process that this one was forked from."""
        here = asyncio.get_running_loop(), os.getpid()
        if self._home != here and self._queue is not None:
            with self._turn:
                self._move_in()

    def _move_in(self) -> None:
        here = asyncio.get_running_loop(), os.getpid()
        if self._queue is None:
            raise ClosedError()
        if self._home is not None:
            loop, process = self._home
            if process == here[1] and not loop.is_closed():
                raise RuntimeError(
                    f"{self!r} waits in another event loop; open an AsyncQueue for each loop"
                )
            self._forget_loop(here[0])
        self._queue.ensure_open()
        self._watch = _core.Watch(self._queue.store.need_shared())
        here[0].add_reader(self._watch.fileno(), self._on_event)
        self._home = here  # Last: until then nobody may wait here.

    def _forget_loop(self, now: asyncio.AbstractEventLoop) -> None:
        """Nobody takes an answer who waits elsewhere than in the loop that runs now."""
        if self._watch is not None:
            self._watch.close()
        self._putters = deque(one for one in self._putters if one.get_loop() is now)
        self._unsynced = [one for one in self._unsynced if one.get_loop() is now]
        self._syncer = None
        for group in self._groups.values():
            group.stay_in(now)

    def rest(self) -> None:
        """No task waits: producers need not wake this process."""
        idle = not self._putters and not any(group.is_waiting for group in self._groups.values())
        if idle and self._watch is not None:
            self._watch.disarm()

    # ── putting ────────────────────────────────────────────────────────────────────────────

    async def put(
        self,
        body: Any,
        *,
        tag: str | None = None,
        id: str | None = None,
        key: str | None = None,
        headers: dict[str, str] | None = None,
        delay: float | None = None,
    ) -> int:
        """Puts one message and returns its offset; waits for room, and for the sync at `always`."""
        queue = self._queue or await self.open()
        if queue.options.durability is Durability.ALWAYS:
            body = queue.codec.encode(body) if queue.codec is not None else body
            message = _core.Message(body, tag=tag, id=id, key=key, headers=headers)
            writer = queue.store.need_writer()
            offset = await self._with_room(queue, lambda: writer.put_unsynced(message, delay))
            await self._synced(queue)
            return offset
        if not (queue.options.max_bytes or queue.options.retry_interval_s):
            return queue.put(body, tag=tag, id=id, key=key, headers=headers, delay=delay)
        return await self._with_room(
            queue,
            lambda: queue.put(body, tag=tag, id=id, key=key, headers=headers, delay=delay),
        )

    async def put_many(
        self, items: Any, *, tag: str | None = None, delay: float | None = None
    ) -> int | None:
        """Puts many; see `Queue.put_many`."""
        queue = self._queue or await self.open()
        if queue.options.durability is Durability.ALWAYS:
            return await asyncio.to_thread(queue.put_many, items, tag=tag, delay=delay)
        if not is_arrow(items):
            refuse_one(items)
            items = list(items)  # An iterator can be asked once, and there may be several tries.
        return await self._with_room(queue, lambda: queue.put_many(items, tag=tag, delay=delay))

    async def _with_room(self, queue: Queue, attempt: Callable[[], T]) -> T:
        """Tries, and waits for room between tries as long as the queue's options allow."""
        try:
            return at_once(queue, attempt)
        except Full:
            if queue.options.when_full != "block":
                raise
        clock, patience = queue.store.clock, queue.options.put_timeout_s
        until = None if patience is None else clock.boot_now_ns() + int(patience * 1e9)
        while True:
            # Ask for a signal, try, wait: room that comes in between is not missed.
            waiter = self._ask_for_room(queue)
            try:
                return at_once(queue, attempt)
            except Full:
                left = None if until is None else (until - clock.boot_now_ns()) / 1e9
                if left is not None and left <= 0:
                    raise
                nap = MANUAL_NAP_S if clock.manual else LONGEST_SLEEP_S
                await asyncio.wait([waiter], timeout=nap if left is None else min(left, nap))
            finally:
                if waiter in self._putters:
                    self._putters.remove(waiter)
                self.rest()

    def _ask_for_room(self, queue: Queue) -> asyncio.Future[None]:
        _ = self.queue  # An error unless it is open.
        self.listen()
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._putters.append(waiter)
        queue.store.need_shared().want_room(when_full.wanted(queue))
        return waiter

    async def _synced(self, queue: Queue) -> None:
        """Returns after a sync that began after this call; all who wait by then share it."""
        self._attend()
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        self._unsynced.append(waiter)
        if self._syncer is None:
            self._syncer = loop.create_task(self._sync_all(queue))
            self._syncer.add_done_callback(self._sync_ended)
        await waiter

    async def _sync_all(self, queue: Queue) -> None:
        writer = queue.store.need_writer()
        while self._unsynced:
            self._syncing, self._unsynced = self._unsynced, []
            try:
                await asyncio.to_thread(writer.sync)
            except Exception as error:
                for waiter in self._syncing:
                    if not waiter.done():
                        waiter.set_exception(error)
            else:
                for waiter in self._syncing:
                    wake(waiter)
        self._syncer = None

    def _sync_ended(self, task: asyncio.Task[None]) -> None:
        """All tasks of a loop that ends are cancelled: those who wait for this one go with it."""
        if task.cancelled() and self._syncer is task:
            for waiter in (*self._syncing, *self._unsynced):
                waiter.cancel()
            self._unsynced.clear()
            self._syncer = None

    # ── getting ────────────────────────────────────────────────────────────────────────────

    def group(
        self,
        name: str = DEFAULT_GROUP,
        *,
        start: Where | Group | None = None,
        create: bool = True,
        **options: Unpack[GroupKeywords],
    ) -> AsyncGroup:
        """The group of this name, made when it is new. The queue is open."""
        inner = self.queue.group(name, start=start, create=create, **options)
        found = self._groups.get(name)
        if found is None or found.inner is not inner:
            found = self._groups[name] = AsyncGroup(self, inner)
        return found

    def broadcast(
        self, *, start: Where | Group = "latest", **options: Unpack[GroupKeywords]
    ) -> AsyncGroup:
        """A group for one consumer alone; see `Queue.broadcast`."""
        inner = self.queue.broadcast(start=start, **options)
        found = self._groups[inner.name] = AsyncGroup(self, inner)
        return found

    async def get(
        self, timeout: float | None = None, *, visibility: float | None = None
    ) -> _core.Message:
        """The next message of the default group; `Empty` when none comes in time."""
        if self._queue is None:
            await self.open()
        return await self.group().get(timeout, visibility=visibility)

    async def get_many(
        self, count: int, timeout: float | None = 0.0, *, visibility: float | None = None
    ) -> list[_core.Message]:
        """Up to `count` messages of the default group; `[]` if none comes in time."""
        if self._queue is None:
            await self.open()
        return await self.group().get_many(count, timeout, visibility=visibility)

    def __aiter__(self) -> Messages:
        """The messages of the default group."""
        return aiter(self.group())

    # ── the rest, as it is ─────────────────────────────────────────────────────────────────

    def scan(
        self,
        *,
        start: Where = "earliest",
        end: Where | None = None,
        tags: str = "",
        dialect: Dialect = "modern",
        columns: Sequence[str] | None = None,
        tolerant: bool = False,
    ) -> Scan:
        """A range as a table; see `Queue.scan`."""
        return self.queue.scan(
            start=start, end=end, tags=tags, dialect=dialect, columns=columns, tolerant=tolerant
        )

    async def sync(self) -> None:
        """Returns when everything put and acked so far is on the disk."""
        await asyncio.to_thread((self._queue or await self.open()).sync)

    def __repr__(self) -> str:
        return f"<AsyncQueue {str(self.path)!r}: {'open' if self._queue else 'not open'}>"


class Opening:
    """An opening that is under way."""

    def __init__(self) -> None:
        """Begins now; nobody waits for it yet."""
        self.done: Future[None] = Future()
        self.done.set_running_or_notify_cancel()  # A task that is cancelled does not cancel it.
        self.process, self.waiting = os.getpid(), 0


def wake(waiter: asyncio.Future[None]) -> None:
    """Ends the wait of a task, if it still waits."""
    if not waiter.done():
        waiter.set_result(None)


def at_once(queue: Queue, attempt: Callable[[], T]) -> T:
    """Makes the attempt without waiting for room in a full queue."""
    with queue.put_timeout(0):
        return attempt()
