"""Group commit: one sync for every request that waits for it.

Requests append on the event loop, which never waits for a disk, and then wait here. One thread
syncs the queues they appended to; whatever came meanwhile waits for the next round. The slower the
disk, the more requests share a sync.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable

from penstock.engine.threads import Background
from penstock.logs import logger
from penstock.sqs.queues import SqsQueue

Waiting = dict[SqsQueue, list["asyncio.Future[None]"]]


class Commits:
    """Syncs for whoever waits."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """The thread starts at once."""
        self._loop = loop
        self._lock = threading.Lock()
        self._news = threading.Event()
        self._waiting: Waiting = {}
        self._is_over = False
        self._thread = Background(self._run, "penstock-sqs-commits")

    def wait(self, queue: SqsQueue) -> asyncio.Future[None]:
        """Done when everything that was put or acked in `queue` so far is on the disk."""
        future: asyncio.Future[None] = self._loop.create_future()
        with self._lock:
            is_first = not self._waiting
            self._waiting.setdefault(queue, []).append(future)
        if is_first:
            self._news.set()
        return future

    def _run(self) -> None:
        is_over = False
        while not is_over:
            self._news.wait()
            self._news.clear()
            is_over = self._is_over  # Whatever waits by now has its round still.
            with self._lock:
                round_, self._waiting = self._waiting, {}
            for queue, futures in round_.items():
                self._sync(queue, futures)

    def _sync(self, queue: SqsQueue, futures: list[asyncio.Future[None]]) -> None:
        error: BaseException | None = None
        try:
            queue.store.sync()
        except Exception as found:
            error = found
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_tell, futures, error)
        if error is None and not queue.store.is_closed:
            try:
                queue.store.store.format.prepare_ahead()
            except Exception as found:  # Without this thread nobody would be answered any more.
                logger("sqs").warning("%s: the next segment is not ready: %s", queue.name, found)

    def close(self) -> None:
        """Syncs what is left, and ends."""
        self._is_over = True
        self._news.set()
        self._thread.join()


def _tell(futures: Iterable[asyncio.Future[None]], error: BaseException | None) -> None:
    for future in futures:
        if future.done():
            continue
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
