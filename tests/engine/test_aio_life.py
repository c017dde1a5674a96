"""How an `AsyncQueue` begins and ends, and its calls that are those of the queue behind it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Literal

import pyarrow
import pytest

import penstock
from penstock import AsyncQueue, ClosedError, UnsupportedError
from penstock.options import AckMode
from tests.engine.test_aio import leased, run, turns
from tests.waiting import LONG_S


def test_whoever_gets_or_puts_first_opens_the_queue(tmp_path: Path) -> None:
    async def case() -> None:
        queue = AsyncQueue(tmp_path / "q")
        assert repr(queue).endswith("not open>")
        await queue.put_many([b"a", b"b", b"c", b"d"])
        assert repr(queue).endswith(": open>")
        await queue.sync()
        await queue.close()
        for take in (AsyncQueue(tmp_path / "q").get, AsyncQueue(tmp_path / "q").sync):
            await take()
        assert len(await AsyncQueue(tmp_path / "q").get_many(9)) == 3

    run(case())


def test_a_queue_that_is_not_open_says_how_it_is_opened(tmp_path: Path) -> None:
    async def case() -> None:
        queue = AsyncQueue(tmp_path / "q")
        with pytest.raises(ClosedError, match="use `async with`"):
            queue.group()
        await queue.close()
        with pytest.raises(ClosedError):
            await queue.open()
        assert not (tmp_path / "q").exists()

    run(case())


def test_a_queue_that_is_closed_while_it_opens_stays_closed(tmp_path: Path) -> None:
    async def case() -> None:
        queue = AsyncQueue(tmp_path / "q")
        opening = asyncio.create_task(queue.open())
        await turns(1)
        await queue.close()
        with pytest.raises(ClosedError):
            await opening
        with penstock.Queue(tmp_path / "q", create=False) as other:
            assert other.store.was_first, "it is open somewhere"

    run(case())


def test_the_former_name_of_the_queue_behind_it_warns(tmp_path: Path) -> None:
    async def case() -> None:
        async with AsyncQueue(tmp_path / "q") as queue:
            with pytest.warns(DeprecationWarning, match=r"AsyncQueue\.queue"):
                assert queue.need_open() is queue.queue

    run(case())


def test_closing_ends_a_put_that_waits_for_room_or_for_its_sync(tmp_path: Path) -> None:
    async def fill(queue: AsyncQueue) -> None:
        while True:
            await queue.put(bytes(1000))

    async def case(**options: Any) -> None:
        queue = AsyncQueue(tmp_path / "q", **options)
        await queue.open()
        queue.group()
        putting = asyncio.create_task(fill(queue))
        await turns(300)
        await queue.close()
        with pytest.raises(ClosedError):
            await putting

    run(case(max_bytes=100_000))
    run(case(durability="always"))


def test_a_full_queue_that_is_to_say_so_says_so_at_once(tmp_path: Path) -> None:
    async def case() -> None:
        async with AsyncQueue(tmp_path / "q", max_bytes=100_000, when_full="reject") as queue:
            queue.group()
            with pytest.raises(penstock.Full):
                await queue.put_many([bytes(1000)] * 200)
            assert len(await queue.get_many(300)) < 200

    run(case())


def test_the_calls_of_a_group_are_those_of_the_group_behind_it(tmp_path: Path) -> None:
    async def case() -> None:
        async with AsyncQueue(tmp_path / "q") as queue:
            group = queue.group("g")
            assert (group.name, await group.get_many(0)) == ("g", [])
            assert repr(group) == f"<AsyncGroup of {group.inner!r}>"
            await queue.put_many([b"a", b"b"])
            first, second = await group.get_many(2)
            await group.extend(first, 100)
            await group.nack(second)
            assert leased(group) == 1
            await group.ack(first)
            assert [message.body async for message in group.messages(0)] == [b"b"]
            group.seek("earliest")
            assert [message.body async for message in group.messages(0)] == [b"a", b"b"]
            assert [message.body for message in queue.scan(start="earliest")] == [b"a", b"b"]
            everyone = queue.broadcast(start="earliest")
            assert (await everyone.get(0)).body == b"a"
            async for message in queue:
                assert message.body == b"a"
                break

    run(case())


def test_at_always_messages_are_settled_without_holding_the_loop_up(tmp_path: Path) -> None:
    async def case() -> None:
        async with AsyncQueue(tmp_path / "q", durability="always") as queue:
            await queue.put_many([b"a", b"b"])
            group = queue.group()
            await group.ack(await group.get(0))
            assert [message.body async for message in group.messages(0)] == [b"b"]
            assert group.inner.cursor == queue.queue.offsets().tail

    run(case())


# ── several event loops ────────────────────────────────────────────────────────────────────────


def ended(work: Coroutine[Any, Any, None]) -> None:
    """Runs `work` in a loop that is closed then, whatever waits in it."""
    loop = asyncio.new_event_loop()
    loop.run_until_complete(work)
    loop.close()


@pytest.mark.parametrize("durability", ["process", "always"])
@pytest.mark.parametrize("ack", ["lease", "auto"])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_get_in_a_second_loop_is_woken_though_others_wait_in_the_first(
    tmp_path: Path, durability: Literal["process", "always"], ack: AckMode
) -> None:
    queue = AsyncQueue(tmp_path / "q", durability=durability)
    waits: list[asyncio.Task[Any]] = []

    async def first() -> None:
        await queue.open()
        waits.append(asyncio.create_task(queue.group("g", ack=ack).get()))
        await turns()

    async def second() -> None:
        get = asyncio.create_task(queue.group("g").get(LONG_S))
        await turns()
        await queue.put(b"late")
        assert (await get).body == b"late"
        await queue.close()

    ended(first())
    ended(second())


def test_a_queue_that_waits_in_one_loop_refuses_to_wait_in_another(tmp_path: Path) -> None:
    queue, refused = AsyncQueue(tmp_path / "q"), list[str]()

    async def other() -> None:
        with pytest.raises(RuntimeError, match="for each loop") as caught:
            await queue.get(1)
        refused.append(str(caught.value))

    async def case() -> None:
        await queue.open()
        get = asyncio.create_task(queue.get(LONG_S))
        await turns()
        await asyncio.to_thread(ended, other())
        await queue.put(b"ours")
        assert (await get).body == b"ours"
        await queue.close()

    run(case())
    assert refused


def test_puts_go_on_after_the_sync_that_they_share_was_cancelled(tmp_path: Path) -> None:
    async def case() -> None:
        async with AsyncQueue(tmp_path / "q", durability="always") as queue:
            put = asyncio.create_task(queue.put(b"a"))
            await asyncio.sleep(0)
            for task in asyncio.all_tasks():
                if "_sync_all" in repr(task):
                    task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await put
            assert await asyncio.wait_for(queue.put(b"b"), LONG_S) > 0
            assert len(list(queue.queue.scan())) == 2

    run(case())


@pytest.mark.parametrize("durability", ["interval", "always"])
@pytest.mark.parametrize("kind", [pyarrow.array, lambda bodies: pyarrow.table({"body": bodies})])
def test_asyncio_puts_every_arrow_value_that_a_queue_puts(
    tmp_path: Path, kind: Any, durability: Literal["interval", "always"]
) -> None:
    async def case() -> None:
        async with AsyncQueue(tmp_path / "q", durability=durability) as queue:
            await queue.put_many(kind([b"a", b"b"]))
            assert [found.body for found in await queue.get_many(9)] == [b"a", b"b"]

    run(case())


def test_a_loop_that_is_left_after_its_queue_was_closed_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", said.append)

    async def case() -> None:
        async with AsyncQueue(tmp_path / "q") as queue:
            await queue.put(b"a")
            inside = aiter(queue.group().messages(0))
            assert (await anext(inside)).body == b"a"

    run(case())
    assert said == []
    with penstock.Queue(tmp_path / "q") as again:
        assert again.get(timeout=0).body == b"a"


def test_a_column_alone_is_refused_with_what_to_put_instead(tmp_path: Path) -> None:
    column = pyarrow.chunked_array([[b"a"], [b"b"]])
    with penstock.Queue(tmp_path / "q") as queue:
        with pytest.raises(UnsupportedError, match=r"put pyarrow\.table\({'body': column}\)"):
            queue.put_many(column)
        queue.put_many(pyarrow.table({"body": column}))
        assert len(queue) == 2
