"""A long poll whose client hangs up: what had come for it is as if nobody had received it."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from penstock import ManualClock, clock
from penstock.sqs.catalog import Catalog, Namespace
from penstock.sqs.receiving import _awaited
from penstock.sqs.waiters import Waiters

HOME = Namespace("000000000000", "us-east-1")


@pytest.mark.parametrize("turns", [0, 1, 2])
@pytest.mark.parametrize("name", ["q", "q.fifo"])
def test_what_came_for_a_client_that_hung_up_was_not_received(
    root: Path, name: str, turns: int
) -> None:
    catalog = Catalog(root, HOME, clock.native(ManualClock()))
    kind = {"FifoQueue": "true"} if name.endswith(".fifo") else {}
    target = f'{{"deadLetterTargetArn": "{HOME.arn("dead" + name)}", "maxReceiveCount": 1}}'
    catalog.create(HOME, "dead" + name, dict(kind), {})
    queue = catalog.create(HOME, name, {"RedrivePolicy": target, **kind}, {})

    async def case() -> None:
        waiters = Waiters(asyncio.get_running_loop())
        polling = asyncio.ensure_future(
            _awaited(partial(waiters.wait, queue, 1, None, 20), lambda found: {"found": found})
        )
        for _ in range(turns):
            await asyncio.sleep(0)
        if turns == 1:
            queue.store.put(b"x", id="i", key="k" if kind else None)
            waiters.look(queue)
        polling.cancel()
        await asyncio.wait([polling])
        assert not queue.waiting
        if turns != 1:
            queue.store.put(b"x", id="i", key="k" if kind else None)
        found = queue.receive(10, None)
        assert [(one.body, queue.receives_of(one)) for one in found] == [(b"x", 1)]

    asyncio.run(case())
    catalog.close()
