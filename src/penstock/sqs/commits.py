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

PREPARE_S = 0.02
"""How often somebody looks whether a next segment will be needed."""
Later = asyncio.Future[Any]
Round = dict[SqsQueue, list[tuple[Later, Any]]]


class Commits:
    """Syncs for whoever waits."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """The thread starts at once."""
        self._loop = loop
        self._waiting: Round = {}
        self._rounds: SimpleQueue[Round | None] = SimpleQueue()
        self._is_asked = False
        """Whether a round is under way, or about to be: the next one begins after it."""
        self._idle = asyncio.Event()
        self._idle.set()
        self._thread = Background(self._run, "penstock-sqs-commits")

    def wait(self, queue: SqsQueue, answer: Any = None) -> Later:
        """Has `answer` when everything put or acked in `queue` so far is on the disk."""
        future: Later = self._loop.create_future()
        self._waiting.setdefault(queue, []).append((future, answer))
        if not self._is_asked:
            self._is_asked = True
            self._idle.clear()
            # What else this turn of the loop has brought comes along.
            self._loop.call_soon(self._begin)
        return future

    def _begin(self) -> None:
        round_, self._waiting = self._waiting, {}
        self._rounds.put(round_)

    def _run(self) -> None:
        prepared_s = 0.0
        while (round_ := self._rounds.get()) is not None:
            failed = {queue: error for queue in round_ if (error := _synced(queue))}
            self._loop.call_soon_threadsafe(self._tell, round_, failed)
            if time.monotonic() - prepared_s > PREPARE_S:
                prepared_s = time.monotonic()
                for queue in round_:
                    if queue not in failed:
                        _prepare(queue)

    def _tell(self, round_: Round, failed: dict[SqsQueue, Exception]) -> None:
        if self._waiting:
            self._begin()
        else:
            self._is_asked = False
            self._idle.set()
        for queue, futures in round_.items():
            error = failed.get(queue)
            for future, answer in futures:
                if future.done():
                    continue
                if error is None:
                    future.set_result(answer)
                else:
                    future.set_exception(error)

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
            queue.store.store.format.prepare_ahead()
        except Exception as error:  # Without this thread nobody would be answered any more.
            logger("sqs").warning("%s: the next segment is not ready: %s", queue.name, error)
