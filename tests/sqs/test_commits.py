"""One thread syncs for every request: whatever happens to it, nobody waits for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from penstock.errors import StorageError
from penstock.sqs import commits as commits_module
from penstock.sqs.commits import Commits

ANSWER_S = 10.0
"""Only a failing test waits as long."""


class Queue:
    """As much of a queue as a commit uses."""

    name = "orders"

    def __init__(self, prepare: Callable[[], None]) -> None:
        store = SimpleNamespace(prepare_ahead=prepare)
        self.store = SimpleNamespace(sync=lambda: None, is_closed=False, store=store)


def test_a_segment_that_can_t_be_prepared_keeps_no_request_waiting() -> None:
    def fail() -> None:
        raise StorageError("orders", "no space left")

    async def work() -> None:
        commits, queue = Commits(asyncio.get_running_loop()), Queue(fail)
        for _ in range(3):
            await asyncio.wait_for(commits.wait(queue), ANSWER_S)  # type: ignore[arg-type]
        await commits.close()

    asyncio.run(work())


@pytest.mark.parametrize("patience", [1e9, 0.0])
def test_where_syncs_are_slow_those_who_were_answered_share_the_next(
    monkeypatch: pytest.MonkeyPatch, patience: float
) -> None:
    monkeypatch.setattr(commits_module, "SLOW_S", -1.0)
    monkeypatch.setattr(commits_module, "PATIENCE", patience)
    syncs: list[int] = []

    async def work() -> None:
        commits, queue = Commits(asyncio.get_running_loop()), Queue(lambda: None)
        queue.store.sync = lambda: syncs.append(1)

        async def client(turns: int) -> None:
            for _ in range(turns):
                await commits.wait(queue)  # type: ignore[arg-type]

        await asyncio.wait_for(asyncio.gather(*[client(5) for _ in range(20)]), ANSWER_S)
        await commits.close()

    asyncio.run(work())
    assert len(syncs) == 5


def test_nobody_waits_long_for_who_does_not_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits_module, "SLOW_S", -1.0)

    async def work() -> None:
        commits, queue = Commits(asyncio.get_running_loop()), Queue(lambda: None)
        await asyncio.gather(*[commits.wait(queue) for _ in range(20)])  # type: ignore[arg-type]
        await asyncio.wait_for(commits.wait(queue), ANSWER_S)  # type: ignore[arg-type]
        await commits.close()

    asyncio.run(work())


def test_closing_answers_whoever_waits() -> None:
    async def work() -> None:
        commits = Commits(asyncio.get_running_loop())
        waiting = [commits.wait(Queue(lambda: None)) for _ in range(20)]  # type: ignore[arg-type]
        await commits.close()
        await asyncio.wait_for(asyncio.gather(*waiting), ANSWER_S)

    asyncio.run(work())
