"""An `AsyncQueue` whose tasks are cancelled, dropped or in two event loops: nothing is lost,
nothing waits for ever, nothing stays open."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import AsyncQueue, ClosedError, Queue
from penstock.engine.aio_group import AsyncGroup
from penstock.options import DurabilityName
from tests.engine.test_aio import run, turns
from tests.engine.test_aio_life import ended
from tests.reading import bodies_of
from tests.waiting import LONG_S

DURABILITIES: list[DurabilityName] = ["process", "always"]


class Gate:
    """A call that begins, and ends when it may."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call
        self.has_begun, self.may_end = threading.Event(), threading.Event()

    def __call__(self, *given: Any, **more: Any) -> Any:
        found = self._call(*given, **more)
        self.has_begun.set()
        assert self.may_end.wait(LONG_S)
        return found


def slow_to_open(path: Path) -> tuple[AsyncQueue, Gate]:
    queue = AsyncQueue(path)
    gate = Gate(queue._open_queue)
    queue._open_queue = gate  # type: ignore[assignment]
    return queue, gate


def is_open_nowhere(path: Path) -> bool:
    with Queue(path, create=False) as other:
        return other.store.was_first


# ── opening and closing ────────────────────────────────────────────────────────────────────────


def test_two_event_loops_that_open_one_queue_at_once_both_have_it(tmp_path: Path) -> None:
    queue, gate = slow_to_open(tmp_path / "q")
    found: list[Queue] = []

    async def first() -> None:
        found.append(await asyncio.wait_for(queue.open(), LONG_S))

    async def second() -> None:
        opening = asyncio.create_task(queue.open())
        await turns()
        gate.may_end.set()
        found.append(await asyncio.wait_for(opening, LONG_S))

    thread = threading.Thread(target=ended, args=(first(),))
    thread.start()
    assert gate.has_begun.wait(LONG_S)
    ended(second())
    thread.join()
    assert len(found) == 2
    assert found[0] is found[1]
    ended(queue.close())
    assert is_open_nowhere(tmp_path / "q")


def test_an_opening_that_fails_fails_for_all_who_wait_and_may_be_tried_again(
    tmp_path: Path,
) -> None:
    (tmp_path / "q").write_text("no folder")
    queue, gate = slow_to_open(tmp_path / "q")

    async def case() -> None:
        gate.may_end.set()
        both = await asyncio.gather(queue.open(), queue.open(), return_exceptions=True)
        assert [isinstance(one, penstock.PenstockError) for one in both] == [True, True]
        (tmp_path / "q").unlink()
        await queue.put(b"a")
        await queue.close()

    run(case())


def test_an_opening_that_nobody_waits_for_any_more_leaves_nothing_open(tmp_path: Path) -> None:
    queue, gate = slow_to_open(tmp_path / "q")

    async def case() -> None:
        opening = asyncio.create_task(queue.open())
        await asyncio.to_thread(gate.has_begun.wait, LONG_S)
        opening.cancel()
        await asyncio.wait([opening])
        gate.may_end.set()

    asyncio.run(case())  # It waits for the threads of its loop.
    assert is_open_nowhere(tmp_path / "q")

    async def again() -> None:
        await queue.put(b"a")
        await queue.close()

    ended(again())


def test_a_close_that_is_cancelled_closes_all_the_same(tmp_path: Path) -> None:
    async def case() -> None:
        queue = AsyncQueue(tmp_path / "q", durability="always")
        gate = Gate((await queue.open()).store.need_writer().sync)
        queue._syncer = asyncio.create_task(asyncio.to_thread(gate))
        await asyncio.to_thread(gate.has_begun.wait, LONG_S)
        closing = asyncio.create_task(queue.close())
        await turns()
        closing.cancel()
        await turns()
        closing.cancel()  # As scopes of anyio do, at every wait.
        await asyncio.wait([closing])
        gate.may_end.set()

    asyncio.run(case())
    assert is_open_nowhere(tmp_path / "q")


def test_a_close_in_another_event_loop_ends_what_waits(tmp_path: Path) -> None:
    queue = AsyncQueue(tmp_path / "q")

    async def case() -> None:
        await queue.open()
        waiting = asyncio.create_task(queue.get())
        await turns()
        closing = threading.Thread(target=ended, args=(queue.close(),))
        asyncio.get_running_loop().call_soon(closing.start)
        with pytest.raises(ClosedError):
            await waiting  # This loop sleeps until it is told.
        closing.join()
        with Queue(tmp_path / "q"), pytest.raises(ClosedError):
            await queue.get(0)

    run(case())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_close_after_the_loop_of_those_who_wait_has_ended_closes(tmp_path: Path) -> None:
    queue, waits = AsyncQueue(tmp_path / "q"), list[asyncio.Task[Any]]()

    async def case() -> None:
        await queue.open()
        waits.append(asyncio.create_task(queue.get()))
        await turns()

    ended(case())
    ended(queue.close())
    assert is_open_nowhere(tmp_path / "q")


# ── what reached a task that was cancelled ─────────────────────────────────────────────────────


def elsewhere(path: Path) -> list[bytes]:
    """What a consumer of the same group gets who has nothing to do with the event loop."""
    with Queue(path, create=False) as other:
        return bodies_of(other.group("g").get_many(9))


async def delivered(group: AsyncGroup, get: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """A task that waits, whose messages have come, and that has not run since."""
    task = asyncio.create_task(get)
    while not group.is_waiting:
        await asyncio.sleep(0)
    waiter = group._waiters[0]
    await group.queue.put_many([b"a", b"b"])  # type: ignore[attr-defined]
    group.pump()
    assert waiter.future.done()
    return task


GETS: dict[str, Callable[[AsyncGroup], Coroutine[Any, Any, Any]]] = {
    "get": lambda group: group.get(),
    "get_many": lambda group: group.get_many(2, None),
    "anext": lambda group: group.messages(None).__anext__(),
    "wait_for": lambda group: asyncio.wait_for(group.get(), LONG_S),
}


@pytest.mark.parametrize("get", GETS)
def test_another_consumer_gets_what_came_for_a_cancelled_get(tmp_path: Path, get: str) -> None:
    async def case() -> None:
        async with AsyncQueue(tmp_path / "q") as queue:
            group = queue.group("g", ack="auto")
            task = await delivered(group, GETS[get](group))
            task.cancel()
            await asyncio.wait([task])
            # `wait_for` of Python 3.11 gives what came to its caller all the same.
            seen = [] if task.cancelled() else [task.result().body]
            assert seen + elsewhere(tmp_path / "q") == [b"a", b"b"]

    run(case())


@pytest.mark.parametrize("durability", DURABILITIES)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_another_consumer_gets_what_came_for_a_task_whose_loop_ended(
    tmp_path: Path, durability: DurabilityName
) -> None:
    queue, loop = AsyncQueue(tmp_path / "q", durability=durability), asyncio.new_event_loop()

    async def case() -> tuple[AsyncGroup, asyncio.Task[Any]]:
        await queue.open()
        group = queue.group("g", ack="auto")
        waiting = asyncio.create_task(group.get())
        await turns()
        return group, waiting

    group, waiting = loop.run_until_complete(case())
    future = group._waiters[0].future
    queue.queue.put_many([b"a", b"b"])
    future.set_result(group._take(1, None))
    loop.close()
    del waiting, future
    gc.collect()
    ended(queue.close())
    assert elsewhere(tmp_path / "q") == [b"a", b"b"]


def test_a_cancelled_get_is_no_receive(tmp_path: Path) -> None:
    async def case() -> None:
        async with AsyncQueue(tmp_path / "q") as queue:
            group = queue.group("g", max_receives=1)
            task = await delivered(group, group.get())
            task.cancel()
            await asyncio.wait([task])
            found = await group.get_many(9)
            assert [(one.body, one.receives) for one in found] == [(b"a", 1), (b"b", 1)]

    run(case())


@contextmanager
def slow_to_take(group: AsyncGroup) -> Iterator[Gate]:
    """A thread has taken messages for a task, and is not back yet."""
    gate = Gate(group._take)
    group._take = gate  # type: ignore[method-assign]
    try:
        yield gate
    finally:
        gate.may_end.set()


@pytest.mark.parametrize("who", ["the task", "all tasks", "the loop"])
def test_what_a_thread_takes_while_its_task_is_cancelled_is_not_lost(
    tmp_path: Path, who: str
) -> None:
    queue = AsyncQueue(tmp_path / "q", durability="always")

    async def case() -> None:
        await queue.open()
        group = queue.group("g", ack="auto")
        queue.queue.put_many([b"a", b"b"])
        with slow_to_take(group) as gate:
            getting = asyncio.create_task(group.get())
            await asyncio.to_thread(gate.has_begun.wait, LONG_S)
            if who == "the loop":
                return
            others = asyncio.all_tasks() - {getting, asyncio.current_task()}
            for task in [getting, *(others if who == "all tasks" else ())]:
                task.cancel()
            await asyncio.wait([getting])

    asyncio.run(case())
    ended(queue.close())
    assert elsewhere(tmp_path / "q") == [b"a", b"b"]


def test_what_a_thread_takes_while_the_queue_is_closed_is_not_lost(tmp_path: Path) -> None:
    async def case() -> None:
        queue = AsyncQueue(tmp_path / "q", durability="always")
        await queue.open()
        group = queue.group("g", ack="auto")
        await queue.put_many([b"a", b"b"])
        with slow_to_take(group) as gate:
            getting = asyncio.create_task(group.get())
            await asyncio.to_thread(gate.has_begun.wait, LONG_S)
            closing = asyncio.create_task(queue.close())
            await turns()
            gate.may_end.set()
            await closing
            with pytest.raises(ClosedError):
                await getting

    run(case())
    assert elsewhere(tmp_path / "q") == [b"a", b"b"]


def test_a_cancelled_get_of_what_was_deleted_meanwhile_leaves_it_to_this_process(
    tmp_path: Path,
) -> None:
    async def case() -> None:
        async with AsyncQueue(tmp_path / "q") as queue:
            group = queue.group("g", ack="auto")
            task = await delivered(group, group.get())
            queue.queue.purge()
            task.cancel()
            await asyncio.wait([task])
            assert [m.body for m in await group.get_many(9)] == [b"a"]

    run(case())


def test_a_loop_that_is_cancelled_before_its_ack_begins_gives_the_message_back(
    tmp_path: Path,
) -> None:
    async def case() -> None:
        async with AsyncQueue(tmp_path / "q", durability="always") as queue:
            await queue.put_many([b"a"])
            group = queue.group("g")
            messages = group.messages(None)
            await messages.__anext__()
            loop, busy = asyncio.get_running_loop(), threading.Event()
            loop.set_default_executor(ThreadPoolExecutor(1))
            working = asyncio.create_task(asyncio.to_thread(busy.wait, LONG_S))
            await turns()
            asking = asyncio.create_task(messages.__anext__())
            await turns()
            asking.cancel()
            await asyncio.wait([asking])
            busy.set()
            await working
            del messages, asking
            gc.collect()
            assert elsewhere(tmp_path / "q") == [b"a"]

    run(case())
