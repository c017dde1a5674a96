"""Dramatiq without a broker: a folder of queues is the broker.

    from penstock.dramatiq import PenstockBroker
    dramatiq.set_broker(PenstockBroker("/var/lib/jobs"))

Dramatiq's names stay: what is delayed is in `<queue>.DQ`, and stays there until it is due; what has
failed for good is in `<queue>.XQ`, from where `penstock move` brings it back. What a killed worker
had goes to another one.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from typing import Any, Unpack

from penstock import _core
from penstock.engine import facts, optional_packages
from penstock.engine.folder import FOR_EVER_S, SharedFolder, safe_name
from penstock.engine.wait_many import Inbox, QueuePoll
from penstock.errors import ReceiptError
from penstock.options import QueueKeywords

with optional_packages.needed("dramatiq", "dramatiq", "the broker for Dramatiq"):
    import dramatiq
    from dramatiq.common import current_millis, dq_name, xq_name
    from dramatiq.errors import QueueJoinTimeout, QueueNotFound


class PenstockBroker(dramatiq.Broker):  # type: ignore[misc]  # Dramatiq's types are not read
    """Queues in a folder. `options` are those of `penstock.Queue`."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        middleware: list[Any] | None = None,
        **options: Unpack[QueueKeywords],
    ) -> None:
        super().__init__(middleware=middleware)
        self.queues: dict[str, None] = {}
        self.folder: SharedFolder = SharedFolder(path, **options)

    def declare_queue(self, queue_name: str) -> None:
        """Declares a queue, and one for what is delayed."""
        if queue_name not in self.queues:
            self.emit_before("declare_queue", queue_name)
            self.queues[queue_name] = None
            self.emit_after("declare_queue", queue_name)
            self.delay_queues.add(dq_name(queue_name))
            self.emit_after("declare_delay_queue", dq_name(queue_name))

    def enqueue(self, message: Any, *, delay: int | None = None) -> Any:
        """Puts a message, to be had after `delay` milliseconds."""
        name = message.queue_name
        if delay is not None:
            name = dq_name(name)
            message = message.copy(queue_name=name, options={"eta": current_millis() + delay})
        self._need(name)
        self.emit_before("enqueue", message, delay)
        self.folder().jobs(name).queue.put(
            message.encode(), id=message.message_id, tag=message.actor_name,
            delay=None if delay is None else min(delay / 1000, FOR_EVER_S),
        )  # fmt: skip
        self.emit_after("enqueue", message, delay)
        return message

    def _need(self, name: str) -> None:
        if name not in self.queues and name not in self.delay_queues:
            raise QueueNotFound(name)

    def consume(self, queue_name: str, prefetch: int = 1, timeout: int = 30000) -> Consumer:
        """Gets messages, at most `prefetch` that are not acked."""
        self._need(queue_name)
        return Consumer(self, queue_name, prefetch, timeout)

    def flush(self, queue_name: str) -> None:
        """Drops what is in a queue, delayed or not."""
        self._need(queue_name)
        for name in (queue_name, dq_name(queue_name)):
            self.folder().jobs(name).queue.purge()

    def flush_all(self) -> None:
        """Drops what is in all queues that were declared."""
        for name in self.queues:
            self.flush(name)

    def join(self, queue_name: str, *, interval: int = 100, timeout: int | None = None) -> None:
        """Waits until everything in a queue is done, for tests."""
        self._need(queue_name)
        nap, left_ms = threading.Event(), float("inf") if timeout is None else float(timeout)
        while any(self._unfinished(name) for name in (queue_name, dq_name(queue_name))):
            if left_ms <= 0:
                raise QueueJoinTimeout(queue_name)
            nap.wait(interval / 1000)
            left_ms -= interval

    def _unfinished(self, name: str) -> int:
        group = self.folder().jobs(name).group
        return facts.waiting(group, "leased", "delayed", "ready", "blocked")

    def close(self) -> None:
        """Closes the queues."""
        self.folder.release()


class Lease(dramatiq.MessageProxy):  # type: ignore[misc]
    """A message and the lease on it."""

    def __init__(self, found: _core.Message) -> None:
        super().__init__(dramatiq.Message.decode(found.body))
        self.lease = found


class Consumer(dramatiq.Consumer):  # type: ignore[misc]
    """Messages of one queue."""

    def __init__(self, broker: PenstockBroker, name: str, prefetch: int, timeout: int) -> None:
        self._poll = QueuePoll()
        self._inbox = Inbox(broker.folder(), self._poll, name, "")
        if not name.endswith(".DQ"):
            self._inbox.jobs().queue.group(dead_letter=safe_name(xq_name(name)))
        self._prefetch, self._timeout_s = prefetch, timeout / 1000
        self._out: set[int] = set()
        self._has_room = threading.Event()

    def __next__(self) -> Lease | None:
        """The next message; none when none comes in time."""
        if len(self._out) >= self._prefetch:
            self._has_room.clear()
            if len(self._out) >= self._prefetch:
                self._has_room.wait(self._timeout_s)
                return None
        found = self._inbox.get_in(self._timeout_s, FOR_EVER_S)
        if found is None:
            return None
        try:
            message = Lease(found)
        except Exception as error:
            # Another program than Dramatiq has put it: it would always fail, also elsewhere.
            self._inbox.jobs().group.dead_letter(found, f"no message of Dramatiq's: {error!r}")
            return None
        self._out.add(id(message))
        return message

    def _settled(self, message: Lease) -> None:
        self._out.discard(id(message))
        self._has_room.set()

    def ack(self, message: Lease) -> None:
        """Ends the message's lease: its task is done."""
        try:
            message.lease.ack()
        except ReceiptError:
            return  # Someone purged the queue.
        finally:
            self._settled(message)

    def nack(self, message: Lease) -> None:
        """It goes to the dead letters."""
        try:
            self._inbox.jobs().group.dead_letter(message.lease, "Dramatiq gave up on it")
        finally:
            self._settled(message)

    def requeue(self, messages: Iterable[Lease]) -> None:
        """They go to others."""
        for message in messages:
            try:
                message.lease.nack()
            except ReceiptError:
                continue
            finally:
                self._settled(message)

    def close(self) -> None:
        """Stops waiting for messages."""
        self._inbox.close()
        self._poll.close()


__all__ = ["PenstockBroker"]
