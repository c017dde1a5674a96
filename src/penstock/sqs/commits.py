"""Group commit: one sync for every request that waits for it.

Requests append on the event loop, which never waits for a disk, and then wait here. One thread
syncs the queues they appended to; whatever came meanwhile waits for the next round. The slower the
disk, the more requests share a sync.
"""

from __future__ import annotations

import asyncio
import time
from queue import SimpleQueue
from typing import Any

from penstock.engine.threads import Background
from penstock.logs import logger
from penstock.sqs.queues import SqsQueue

SLOW_S, PATIENCE = 0.002, 0.25
"""From how long a sync is slow, and for which part of its time it is worth to wait for more."""
PREPARE_S = 0.02
"""How often somebody looks whether a next segment will be needed."""
Later = asyncio.Future[Any]
Round = dict[SqsQueue, list[tuple[Later, Any]]]


class Commits:
    """Syncs queues in one thread for all requests that wait for the disk."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """The thread starts at once."""
        self._loop = loop
        self._waiting: Round = {}
        self._waiting_count = 0
        self._rounds: SimpleQueue[Round | None] = SimpleQueue()
        self._is_asked = False
        """Whether a round is under way, or about to be: the next one begins after it."""
        self._expected_count, self._patience_s = 0, 0.0
        """How many may come for the next round, and how long it is worth to wait for them."""
        self._timer: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._thread = Background(self._run, "penstock-sqs-commits")

    def wait(self, queue: SqsQueue, answer: Any = None) -> Later:
        """Has `answer` when everything put or acked in `queue` so far is on the disk."""
        future: Later = self._loop.create_future()
        self._waiting.setdefault(queue, []).append((future, answer))
        self._waiting_count += 1
        if not self._is_asked:
            self._is_asked = True
            self._idle.clear()
            self._ask()
        elif self._timer is not None and self._waiting_count >= self._expected_count:
            self._timer.cancel()
            self._begin()
        return future

    def _ask(self) -> None:
        """Begins a round soon: what else this turn of the loop has brought comes along.

        Where syncs are slow, it is better to wait for a part of one: those who were just answered
        ask again, and would otherwise wait for this round and for the next.
        """
        if self._patience_s and self._waiting_count < self._expected_count:
            self._timer = self._loop.call_later(self._patience_s, self._begin)
        else:
            self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        round_, self._waiting, self._waiting_count = self._waiting, {}, 0
        self._timer = None
        self._rounds.put(round_)

    def _run(self) -> None:
        prepared_s = 0.0
        while (round_ := self._rounds.get()) is not None:
            began_s = time.monotonic()
            failed = {queue: error for queue in round_ if (error := _synced(queue))}
            took_s = time.monotonic() - began_s
            self._loop.call_soon_threadsafe(self._tell, round_, failed, took_s)
            if began_s - prepared_s > PREPARE_S:
                prepared_s = began_s
                for queue in round_:
                    if queue not in failed:
                        _prepare(queue)

    def _tell(self, round_: Round, failed: dict[SqsQueue, Exception], took_s: float) -> None:
        for queue, futures in round_.items():
            error = failed.get(queue)
            for future, answer in futures:
                if future.done():
                    continue
                if error is None:
                    future.set_result(answer)
                else:
                    future.set_exception(error)
        self._expected_count = sum(map(len, round_.values())) + self._waiting_count
        self._patience_s = took_s * PATIENCE if took_s > SLOW_S else 0.0
        if self._waiting:
            self._ask()
        else:
            self._is_asked = False
            self._idle.set()

    async def close(self) -> None:
        """Syncs what is left, and ends."""
        await self._idle.wait()
        self._rounds.put(None)
        await asyncio.to_thread(self._thread.join)


def _synced(queue: SqsQueue) -> Exception | None:
    try:
        queue.store.sync()
    except Exception as error:
        return error
    return None


def _prepare(queue: SqsQueue) -> None:
    if not queue.store.is_closed:
        try:
            queue.store.store.prepare_ahead()
        except Exception as error:  # Without this thread nobody would be answered any more.
            logger("sqs").warning("%s: the next segment is not ready: %s", queue.name, error)
