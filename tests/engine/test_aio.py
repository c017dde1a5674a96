"""The queue for asyncio: many tasks, no polling, and cancellation that loses nothing."""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.engine.aio_group import AsyncGroup
from penstock.options import AckMode, DurabilityName
from tests.failing import failing_syncs
from tests.waiting import words_of

Case = Callable[[Path], Coroutine[Any, Any, None]]


def run(case: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(case, 60))


async def turns(count: int = 5) -> None:
    """Lets other tasks go on."""
    for _ in range(count):
        await asyncio.sleep(0)


def ticks_of(name: str) -> int:
    """Hundredths of a second that threads of this name have worked."""
    lines = [path.read_text() for path in Path("/proc/self/task").glob("*/stat")]
    works = [line.rpartition(")")[2].split() for line in lines if f"({name})" in line]
    return sum(int(fields[11]) + int(fields[12]) for fields in works)


def leased(group: AsyncGroup) -> int:
    return group.inner.core.counts()["leased"]


def test_put_and_get_are_awaited(tmp_path: Path) -> None:
    async def case() -> None:
        async with penstock.AsyncQueue(tmp_path / "q") as queue:
            offset = await queue.put(b"a", tag="t", id="i")
            message = await queue.get(timeout=1)
            assert (message.body, message.tag, message.id, message.offset) == (
                b"a",
                "t",
                "i",
                offset,
            )
            message.ack()
            await queue.put_many([b"b", b"c"])
            assert [m.body for m in await queue.get_many(5)] == [b"b", b"c"]
            with pytest.raises(penstock.Empty):
                await queue.get(timeout=0)

    run(case())


def test_a_waiting_get_is_woken_by_a_put_in_another_thread(tmp_path: Path) -> None:
    async def case() -> None:
        async with penstock.AsyncQueue(tmp_path / "q") as queue:
            waiting = asyncio.create_task(queue.get())
            await turns()
            with penstock.Queue(tmp_path / "q") as other:
                thread = threading.Thread(target=other.put, args=(b"hello",))
                thread.start()
                assert (await waiting).body == b"hello"
                thread.join()

    run(case())


def put_later(path: Path, count: int) -> None:
    with penstock.Queue(path) as queue:
        for number in range(count):
            queue.put(b"%d" % number)


def test_a_waiting_get_is_woken_by_another_process(tmp_path: Path) -> None:
    async def case() -> None:
        async with penstock.AsyncQueue(tmp_path / "q") as queue:
            producer = multiprocessing.get_context("spawn").Process(
                target=put_later, args=(tmp_path / "q", 100)
            )
            producer.start()
            found = [(await queue.get()).body for _ in range(100)]
            assert found == [b"%d" % number for number in range(100)]
            await asyncio.to_thread(producer.join)

    run(case())


def test_a_thousand_tasks_share_one_queue(tmp_path: Path) -> None:
    async def case() -> None:
        async with penstock.AsyncQueue(tmp_path / "q") as queue:
            group = queue.group()

            async def consume() -> bytes:
                message = await group.get()
                message.ack()
                return message.body

            tasks = [asyncio.create_task(consume()) for _ in range(1000)]
            await turns()
            for number in range(1000):
                await queue.put(b"%d" % number)
            found = await asyncio.gather(*tasks)
            assert sorted(found) == sorted(b"%d" % number for number in range(1000))
            assert group.inner.lag_bytes == 0

    run(case())


def test_a_thousand_tasks_ack_give_back_and_are_cancelled_and_nothing_is_lost(
    tmp_path: Path,
) -> None:
    rng, total = random.Random(7), 1500
    acked: Counter[bytes] = Counter()
    all_acked, given_back = asyncio.Event(), 0

    async def consume(group: AsyncGroup) -> None:
        nonlocal given_back
        while True:
            message = await group.get()
            try:
                await turns(rng.randrange(3))
            except asyncio.CancelledError:
                message.nack()
                raise
            if rng.random() < 0.2:
                given_back += 1
                message.nack()
            else:
                message.ack()
                acked[message.body] += 1
            if len(acked) == total:
                all_acked.set()

    async def case() -> None:
        async with penstock.AsyncQueue(tmp_path / "q", durability="process") as queue:
            group = queue.group()
            tasks = [asyncio.create_task(consume(group)) for _ in range(1000)]
            await turns()
            ended: list[asyncio.Task[None]] = []
            for first in range(0, total, 50):
                await queue.put_many([b"%d" % number for number in range(first, first + 50)])
                await turns(rng.randrange(3))
                for _ in range(20):
                    at = rng.randrange(len(tasks))
                    tasks[at].cancel()
                    ended.append(tasks[at])
                    tasks[at] = asyncio.create_task(consume(group))
            await all_acked.wait()
            for task in tasks:
                task.cancel()
            await asyncio.wait([*tasks, *ended])
            assert all(task.cancelled() for task in [*tasks, *ended])
            assert set(acked.values()) == {1}
            assert given_back > 0
            assert group.inner.core.outstanding() == []
            assert group.inner.lag_bytes == 0

    run(case())


def test_the_longest_waiting_task_is_served_first(tmp_path: Path) -> None:
    async def case() -> None:
        async with penstock.AsyncQueue(tmp_path / "q") as queue:
            tasks = []
            for _ in range(3):
                tasks.append(asyncio.create_task(queue.get()))
                await turns()
            await queue.put_many([b"a", b"b", b"c"])
            assert [m.body for m in await asyncio.gather(*tasks)] == [b"a", b"b", b"c"]

    run(case())


def test_waiting_costs_no_cpu(tmp_path: Path) -> None:
    async def case() -> None:
        async with penstock.AsyncQueue(tmp_path / "q") as queue:
            tasks = [asyncio.create_task(queue.get()) for _ in range(100)]
            await turns()
            start = time.thread_time(), ticks_of("penstock-wait")
            await asyncio.wait(tasks, timeout=1)
            # Of a second; spinning would cost all of it. Other threads may have their own work.
            assert time.thread_time() - start[0] < 0.25
            assert ticks_of("penstock-wait") - start[1] < 25
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    run(case())


def test_producers_wake_nobody_once_nobody_waits(tmp_path: Path) -> None:
    async def case() -> None:
        async with penstock.AsyncQueue(tmp_path / "q") as queue:
            waiting = asyncio.create_task(queue.get())
            await turns()
            shared = queue.queue.store.need_shared()
            assert words_of(shared)["waiters"] == 1
            await queue.put(b"a")
            await waiting
            assert words_of(shared)["waiters"] == 0

    run(case())


def test_a_get_cancelled_while_waiting_has_taken_nothing(tmp_path: Path) -> None:
    async def case() -> None:
        async with penstock.AsyncQueue(tmp_path / "q") as queue:
            group = queue.group()
            waiting = asyncio.create_task(group.get())
            await turns()
            waiting.cancel()
            await asyncio.wait([waiting])
            await queue.put(b"a")
            assert leased(group) == 0
            assert (await group.get(0)).receives == 1

    run(case())


@pytest.mark.parametrize("ack", ["lease", "auto"])
def test_a_get_cancelled_after_its_message_came_gives_it_back(tmp_path: Path, ack: AckMode) -> None:
    async def case() -> None:
        async with penstock.AsyncQueue(tmp_path / "q") as queue:
            group = queue.group(ack=ack)
            waiting = asyncio.create_task(group.get())
            await turns()
            await queue.put_many([b"a", b"b"])
            group.pump()  # The message is on its way, the task has not run yet.
            waiting.cancel()
            await asyncio.wait([waiting])
            assert waiting.cancelled()
            assert leased(group) == 0
            assert [m.body for m in await group.get_many(5)] == [b"a", b"b"]

    run(case())


def test_a_given_back_message_goes_to_the_next_waiter(tmp_path: Path) -> None:
    async def case() -> None:
        async with penstock.AsyncQueue(tmp_path / "q") as queue:
            group = queue.group()
            first = asyncio.create_task(group.get())
            await turns()
            second = asyncio.create_task(group.get())
            await turns()
            await queue.put(b"a")
            group.pump()
            first.cancel()
            assert (await second).body == b"a"

    run(case())


def test_async_for_acks_what_was_handled(tmp_path: Path) -> None:
    async def case() -> None:
        async with penstock.AsyncQueue(tmp_path / "q") as queue:
            await queue.put_many([b"a", b"b", b"c"])
            group = queue.group()
            found = [message.body async for message in group.messages(0)]
            assert found == [b"a", b"b", b"c"]
            assert group.inner.lag_bytes == 0

    run(case())


def test_async_for_gives_back_what_failed(tmp_path: Path) -> None:
    async def case() -> None:
        async with penstock.AsyncQueue(tmp_path / "q") as queue:
            await queue.put_many([b"a", b"b"])
            group = queue.group()
            with pytest.raises(KeyError):
                await fail_at(group, b"b")
            assert leased(group) == 0
            again = await group.get(0)
            assert (again.body, again.receives) == (b"b", 2)

    async def fail_at(group: AsyncGroup, body: bytes) -> None:
        async for message in group:
            if message.body == body:
                raise KeyError(body)

    run(case())


def test_async_for_leaves_alone_what_its_body_settled(tmp_path: Path) -> None:
    async def case() -> None:
        async with penstock.AsyncQueue(tmp_path / "q") as queue:
            await queue.put_many([b"a"])
            group = queue.group()
            seen = []
            async for message in group.messages(0):
                seen.append(message.receives)
                if message.receives < 3:
                    message.nack()
            assert seen == [1, 2, 3]

    run(case())


def test_closing_ends_loops_and_waits(tmp_path: Path) -> None:
    async def case() -> None:
        queue = penstock.AsyncQueue(tmp_path / "q")
        await queue.open()

        async def loop() -> int:
            return len([message async for message in queue.group("loop")])

        looping, waiting = asyncio.create_task(loop()), asyncio.create_task(queue.get())
        await turns()
        await queue.close()
        assert await looping == 0
        with pytest.raises(penstock.ClosedError):
            await waiting
        with pytest.raises(penstock.ClosedError):
            await queue.put(b"a")

    run(case())


def test_a_lease_that_runs_out_wakes_a_waiting_get(tmp_path: Path) -> None:
    async def case() -> None:
        async with penstock.AsyncQueue(tmp_path / "q") as queue:
            await queue.put(b"a")
            await queue.get(visibility=0.05)
            assert (await queue.get(timeout=60)).receives == 2

    run(case())


def test_a_delayed_message_wakes_a_waiting_get_when_it_is_due(tmp_path: Path) -> None:
    async def case() -> None:
        async with penstock.AsyncQueue(tmp_path / "q") as queue:
            await queue.put(b"a", delay=0.05)
            start = time.time_ns()
            message = await queue.get(timeout=60)
            assert message.due_ns is not None
            assert time.time_ns() >= message.due_ns > start

    run(case())


def test_time_is_the_queue_s_clock(tmp_path: Path) -> None:
    async def case() -> None:
        clock = penstock.ManualClock()
        async with penstock.AsyncQueue(tmp_path / "q", clock=clock) as queue:
            await queue.put(b"a", delay=3600)
            waiting = asyncio.create_task(queue.get(timeout=7200))
            late = asyncio.create_task(queue.group("late", start="latest").get(timeout=7200))
            await turns()
            clock.advance(3601)
            assert (await waiting).body == b"a"
            assert not late.done()
            clock.advance(3601)
            with pytest.raises(penstock.Empty):
                await late

    run(case())


@pytest.mark.parametrize("durability", ["process", "always"])
def test_concurrent_puts_at_any_level_all_arrive(
    tmp_path: Path, durability: DurabilityName
) -> None:
    async def case() -> None:
        async with penstock.AsyncQueue(tmp_path / "q", durability=durability) as queue:
            offsets = await asyncio.gather(*(queue.put(b"%d" % n) for n in range(100)))
            assert len(set(offsets)) == 100
            end = queue.queue.offsets()
            if durability == "always":
                assert end.durable == end.tail
            group = queue.group()
            for message in await group.get_many(100):
                await group.ack(message)
            assert group.inner.lag_bytes == 0

    run(case())


def test_a_get_that_is_its_own_ack_does_not_hold_the_loop_up_at_always(tmp_path: Path) -> None:
    async def case() -> None:
        async with penstock.AsyncQueue(tmp_path / "q", durability="always") as queue:
            group = queue.group(ack="auto")
            with pytest.raises(penstock.Empty):
                await group.get(0)
            waiting = asyncio.create_task(group.get())
            await turns()
            await queue.put(b"a")
            assert (await waiting).body == b"a"

    run(case())


def test_a_failed_sync_reaches_every_put_that_shared_it(tmp_path: Path) -> None:

    async def case() -> None:
        queue = penstock.AsyncQueue(tmp_path / "q", durability="always")
        await queue.open()
        with failing_syncs(1):
            puts = [asyncio.create_task(queue.put(b"a")) for _ in range(3)]
            outcomes = await asyncio.gather(*puts, return_exceptions=True)
        assert all(isinstance(outcome, penstock.PoisonedError) for outcome in outcomes)
        await queue.close()

    run(case())


def test_a_put_waits_for_room_without_holding_the_loop_up(tmp_path: Path) -> None:
    async def case() -> None:
        async with penstock.AsyncQueue(tmp_path / "q", max_bytes=100_000) as queue:
            group = queue.group(ack="auto")
            blocked = asyncio.create_task(put_all(queue))
            await turns(200)
            assert not blocked.done()
            for _ in range(300):
                await group.get(10)
            await blocked

    async def put_all(queue: penstock.AsyncQueue) -> None:
        for _ in range(300):
            await queue.put(bytes(1000))

    run(case())


def test_a_put_gives_up_on_room_after_its_timeout(tmp_path: Path) -> None:
    async def case() -> None:
        options: dict[str, Any] = {"max_bytes": 100_000, "put_timeout_s": 0.05}
        async with penstock.AsyncQueue(tmp_path / "q", **options) as queue:
            queue.group()
            with pytest.raises(penstock.Full):
                await asyncio.gather(*(queue.put(bytes(1000)) for _ in range(200)))

    run(case())


def test_objects_travel_with_a_codec(tmp_path: Path) -> None:
    async def case() -> None:
        async with penstock.AsyncQueue(tmp_path / "q", codec="json") as queue:
            await queue.put({"a": 1})
            assert (await queue.get(0)).value == {"a": 1}

    run(case())


def test_one_thread_waits_for_many_queues(tmp_path: Path) -> None:
    def waiters() -> int:
        names = [path.read_text() for path in Path("/proc/self/task").glob("*/comm")]
        return names.count("penstock-wait\n")

    async def case() -> None:
        queues = [penstock.AsyncQueue(tmp_path / f"q{number}") for number in range(20)]
        for queue in queues:
            await queue.open()
        gets = [asyncio.create_task(queue.get()) for queue in queues]
        await turns()
        assert waiters() == 1
        for queue in queues:
            await queue.put(b"a")
        assert [m.body for m in await asyncio.gather(*gets)] == [b"a"] * 20
        for queue in queues:
            await queue.close()

    run(case())
