"""taskiq without a broker: a queue in a folder, and results beside it.

    from penstock.taskiq import PenstockBroker, PenstockResults
    broker = PenstockBroker("/var/lib/jobs").with_result_backend(PenstockResults("/var/lib/jobs"))

The label `delay` (seconds) keeps a task back. A task is acked when taskiq says so, by default after
its result is stored; what a killed worker had goes to another one.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from penstock.engine import optional_packages
from penstock.engine.aio import AsyncQueue
from penstock.engine.folder import DEFAULTS, FOR_EVER_S, safe_name
from penstock.engine.value_folder import ValueFolder
from penstock.errors import ClosedError
from penstock.options import MAX_IN_FLIGHT, QueueKeywords

with optional_packages.needed("taskiq", "taskiq", "the broker for taskiq"):
    from taskiq import AckableMessage, AsyncBroker, AsyncResultBackend, BrokerMessage, TaskiqResult
    from taskiq.abc.serializer import TaskiqSerializer
    from taskiq.depends.progress_tracker import TaskProgress
    from taskiq.exceptions import ResultGetError
    from taskiq.serializers import JSONSerializer


class PenstockBroker(AsyncBroker):  # type: ignore[misc]  # taskiq's types are not read
    """One queue of a folder. `options` are those of `penstock.Queue`."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        queue_name: str = "taskiq",
        **options: Unpack[QueueKeywords],
    ) -> None:
        super().__init__()
        given: Any = {**DEFAULTS, **options}
        self._open = partial(AsyncQueue, Path(path).expanduser() / safe_name(queue_name), **given)
        self._queue: AsyncQueue | None = None

    async def _opened(self) -> AsyncQueue:
        if self._queue is None:
            self._queue = self._open()
            await self._queue.open()
            self._queue.group(max_in_flight=MAX_IN_FLIGHT)
        return self._queue

    async def startup(self) -> None:
        """Opens the queue."""
        await super().startup()
        await self._opened()

    async def shutdown(self) -> None:
        """Closes the queue: what was not acked goes to others."""
        await super().shutdown()
        if self._queue is not None:
            await self._queue.close()
            self._queue = None

    async def kick(self, message: BrokerMessage) -> None:
        """Puts a task into the queue."""
        queue = await self._opened()
        delay = message.labels.get("delay")
        await queue.put(
            message.message, id=message.task_id, tag=message.task_name,
            delay=None if delay is None else float(delay),
        )  # fmt: skip

    async def listen(self) -> AsyncGenerator[AckableMessage, None]:
        """Tasks as they come."""
        group = (await self._opened()).group()
        while True:
            try:
                found = await group.get(visibility=FOR_EVER_S)
            except ClosedError:
                return
            yield AckableMessage(data=found.body, ack=partial(group.ack, found))


class PenstockResults(AsyncResultBackend[Any]):  # type: ignore[misc]
    """Results and progress, a small file each."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        expires_s: float | None = 86400.0,
        keep_results: bool = True,
        serializer: TaskiqSerializer | None = None,
    ) -> None:
        """Results go after `expires_s`, or when they are read unless `keep_results`."""
        root = Path(path).expanduser().absolute() / "_taskiq"
        self._results = ValueFolder(root / "results", expires_s=expires_s)
        self._progress = ValueFolder(root / "progress", expires_s=expires_s)
        self._keeps = keep_results
        self._serializer = serializer or JSONSerializer()

    async def set_result(self, task_id: str, result: TaskiqResult[Any]) -> None:
        """Stores the result of a task."""
        self._results.set(task_id, self._serializer.dumpb(result.model_dump()))

    async def is_result_ready(self, task_id: str) -> bool:
        """Whether there is one."""
        return self._results.has(task_id)

    async def get_result(self, task_id: str, with_logs: bool = False) -> TaskiqResult[Any]:
        """The result, with or without what was logged."""
        found = self._results.get(task_id) if self._keeps else self._results.pop(task_id)
        if found is None:
            raise ResultGetError()
        result = TaskiqResult[Any].model_validate(self._serializer.loadb(found))
        if not with_logs:
            result.log = None
        return result

    async def set_progress(self, task_id: str, progress: TaskProgress[Any]) -> None:
        """Stores how far a task is."""
        self._progress.set(task_id, self._serializer.dumpb(progress.model_dump()))

    async def get_progress(self, task_id: str) -> TaskProgress[Any] | None:
        """How far a task is; none when it has not said."""
        found = self._progress.get(task_id)
        loaded = None if found is None else self._serializer.loadb(found)
        return None if loaded is None else TaskProgress[Any].model_validate(loaded)


__all__ = ["PenstockBroker", "PenstockResults"]
