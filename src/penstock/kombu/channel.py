"""A channel: declares, publishes, consumes, and acks by the leases of its messages."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from queue import Empty
from typing import Any

from kombu.transport import virtual
from kombu.transport.base import to_rabbitmq_queue_arguments
from kombu.utils.json import JSONEncoder, loads

from penstock import _core
from penstock.engine import facts
from penstock.engine.folder import FOR_EVER_S
from penstock.errors import ClosedError, ReceiptError
from penstock.logs import logger

PARTED_DELAY_S = 1.0
"""What is held back for longer goes to a part of its own."""
ENCODER = JSONEncoder()
"""kombu's own, made once."""


class Message(virtual.Message):  # type: ignore[misc]  # kombu has no types
    """A message of kombu's, with the lease behind it."""

    def __init__(self, payload: dict[str, Any], channel: Channel, **keywords: Any) -> None:
        self.lease: _core.Message | None = payload.pop("lease", None)
        super().__init__(payload, channel=channel, **keywords)

    def ack_log_error(self, *args: Any, **keywords: Any) -> None:
        """Acks, unless that is done: see `early_acks`."""
        if not self.acknowledged:
            super().ack_log_error(*args, **keywords)


class QoS(virtual.QoS):  # type: ignore[misc]
    """Prefetch counts as kombu has them; acks and rejects go to the leases."""

    def ack(self, delivery_tag: int) -> None:
        """Acks the message with this tag."""
        self._finish(self._delivered.get(delivery_tag))
        super().ack(delivery_tag)
        self.channel.has_room()

    def reject(self, delivery_tag: int, requeue: bool = False) -> None:
        """It goes back, or goes away."""
        if not requeue:
            self._finish(self._delivered.get(delivery_tag))
        super().reject(delivery_tag, requeue=requeue)
        self.channel.has_room()

    def _finish(self, message: Message | None) -> None:
        if message is not None and message.lease is not None:
            finish(message.lease)

    def restore_unacked_once(self, stderr: Any = None) -> None:
        """Everything that was not acked goes back, unless it is a parent's."""
        if self.channel.is_ours:
            super().restore_unacked_once(stderr=stderr)


def finish(lease: _core.Message) -> None:
    """Acks; a lease that ran out meanwhile is said, and is no error: someone else has the task."""
    try:
        lease.ack()
    except (ReceiptError, ClosedError) as error:
        logger("kombu").warning("a task was acked too late and may run again: %s", error)


class Channel(virtual.Channel):  # type: ignore[misc]
    """One channel: declares, publishes, consumes."""

    supports_fanout = True
    body_encoding = None
    """Bodies are bytes in a queue: they need no base64."""

    visibility_timeout: float = 0.0
    """A lease that is this many seconds old ends; 0: only with its process."""
    eta_as_delay = True
    """Tasks with an ETA or a countdown stay in the queue until they are due."""
    _tags = count(1)
    """Delivery tags: the same for no two channels of a process."""
    from_transport_options: tuple[str, ...] = (
        *virtual.Channel.from_transport_options, "visibility_timeout", "eta_as_delay",
    )  # fmt: skip

    def __init__(self, connection: Any, **keywords: Any) -> None:
        """Made by `Connection.channel`; `connection` is our `Transport`."""
        super().__init__(connection, **keywords)
        self.events: dict[str, set[Any]] = {"basic_return": set()}
        """What kombu's producers may ask to hear of. Nothing is ever returned."""
        self.urgent: set[str] = set()
        """Queues that are consumed without acks: remote control, which comes before tasks. So a
        task that is revoked before it is sent does not run."""
        self._seats: dict[str, int] = {}
        self._pid = os.getpid()

    @property
    def is_ours(self) -> bool:
        """Whether this process made the channel. In a forked child the parent has the consumers."""
        return self._pid == os.getpid()

    @property
    def _lease_s(self) -> float:
        return self.visibility_timeout or FOR_EVER_S

    def has_room(self) -> None:
        """A message is done: the next may come, if it waited for that."""
        if self.connection is not None:
            self.connection.has_room()

    # ── exchanges and bindings ─────────────────────────────────────────────────────────────

    def exchange_declare(self, exchange: str | None = None, *args: Any, **keywords: Any) -> None:
        """Declares an exchange for everyone."""
        self.state.refresh()
        if exchange in self.state.exchanges:
            super().exchange_declare(exchange, *args, **keywords)  # Compares; changes nothing.
            return
        with self.state.changing():
            super().exchange_declare(exchange, *args, **keywords)

    def exchange_delete(self, exchange: str, *args: Any, **keywords: Any) -> None:
        """Deletes an exchange and its bindings; queues stay."""
        with self.state.changing():
            for key in [key for key in self.state.bindings if key.exchange == exchange]:
                self.state.binding_delete(*key)
            self.state.exchanges.pop(exchange, None)

    def queue_bind(
        self, queue: str, exchange: str | None = None, routing_key: str = "",
        arguments: Any = None, **keywords: Any,
    ) -> None:  # fmt: skip
        """Binds a queue to an exchange, in every process."""
        exchange = exchange or "amq.direct"
        self.state.refresh()
        if not self.state.has_binding(queue, exchange, routing_key):
            with self.state.changing():
                if exchange.startswith("amq.") and exchange not in self.state.exchanges:
                    super().exchange_declare(exchange, exchange.removeprefix("amq."))
                super().queue_bind(queue, exchange, routing_key, arguments, **keywords)

    def _queue_bind(self, *_: Any) -> None:
        """Nothing: bindings are kept when `changing` ends."""

    def queue_unbind(self, *args: Any, **keywords: Any) -> None:
        """Takes a binding away, in every process."""
        with self.state.changing():
            super().queue_unbind(*args, **keywords)

    def get_table(self, exchange: str) -> Any:
        """The bindings of an exchange, as they are now."""
        self.state.refresh()
        return super().get_table(exchange)

    def typeof(self, exchange: str, default: str = "direct") -> Any:
        """The kind of an exchange, as it is now."""
        self.state.refresh()
        return super().typeof(exchange, default)

    # ── queues ─────────────────────────────────────────────────────────────────────────────

    def prepare_queue_arguments(self, arguments: Any, **keywords: Any) -> Any:
        """Times to live and to expire, by the names that AMQP has for them."""
        return to_rabbitmq_queue_arguments(arguments, **keywords)

    def _new_queue(self, queue: str, **keywords: Any) -> None:
        self.state.refresh()
        if queue not in self.state.queues:
            arguments = keywords.get("arguments") or {}
            goes = bool(keywords.get("auto_delete") or keywords.get("exclusive"))
            with self.state.changing():
                told = {"arguments": arguments, "auto_delete": goes, "parts": [""]}
                self.state.queues.setdefault(queue, told)
        self.connection.folder.jobs(queue)

    def _has_queue(self, queue: str, **_: Any) -> bool:
        self.state.refresh()
        return queue in self.state.queues

    def _parts(self, queue: str) -> list[str]:
        """The parts of a queue, the most urgent first."""
        self.state.refresh()
        return self.state.queues.get(queue, {}).get("parts", [""])  # type: ignore[no-any-return]

    def _need_part(self, queue: str, part: str) -> None:
        if part in self._parts(queue):
            return
        with self.state.changing():
            found = self.state.queues.setdefault(
                queue, {"arguments": {}, "auto_delete": False, "parts": [""]}
            )
            found["parts"] = sorted({*found["parts"], part}, key=urgency)
        # A consumer that sleeps on this queue looks again, and finds the new part.
        self.connection.folder.jobs(queue).queue.store.need_shared().signal()

    def _size(self, queue: str) -> int:
        sizes = 0
        for part in self._parts(queue):
            if self.connection.folder.exists(queue, part):
                group = self.connection.folder.jobs(queue, part).group
                sizes += facts.waiting(group, "ready")
        return sizes

    def _purge(self, queue: str) -> int:
        """Takes what nobody has; what is held back for later goes too."""
        gone = 0
        for part in self._parts(queue):
            if not self.connection.folder.exists(queue, part):
                continue
            jobs = self.connection.folder.jobs(queue, part)
            while found := jobs.group.get_many(1000, 0):
                gone += len(found)
                for message in found:
                    message.ack()
            counts = jobs.group.core.counts()
            if counts["delayed"] and not counts["leased"]:
                gone += counts["delayed"]
                jobs.queue.purge()
        return gone

    def queue_delete(
        self, queue: str, if_unused: bool = False, if_empty: bool = False, **_: Any
    ) -> None:
        """Deletes a queue for everyone: folder, bindings and all."""
        if (if_empty and self._size(queue)) or (if_unused and self.connection.is_consumed(queue)):
            return
        with self.state.changing():
            parts = self._parts(queue)
            for key in list(self.state.queue_index.get(queue, ())):
                super().queue_unbind(*key)
            self.state.queue_bindings_delete(queue)
            self.state.queues.pop(queue, None)
            for part in parts:
                self.connection.folder.delete(queue, part)

    # ── publishing ─────────────────────────────────────────────────────────────────────────

    def basic_publish(
        self, message: dict[str, Any], exchange: str, routing_key: str, **keywords: Any
    ) -> Any:
        """Publishes. kombu asks for the exchange, its table and its queues in turn, and they are
        looked up in the folder once."""
        with self.state.looked_up():
            return super().basic_publish(message, exchange, routing_key, **keywords)

    def _next_delivery_tag(self) -> int:
        """The tag that a message is sent with; the channel that receives it counts anew."""
        return next(self._tags)

    def _put(self, queue: str, message: dict[str, Any], **_: Any) -> None:
        declared = self._has_queue(queue)
        properties, headers = message["properties"], message.get("headers") or {}
        if not declared:
            if properties.get("delivery_mode") == 1:
                return  # An answer to someone who has gone.
            self._new_queue(queue)
        delay_s = self._delay_of(headers)
        part = "d" if delay_s >= PARTED_DELAY_S else ""
        if not part and (priority := self._get_message_priority(message)):
            part = f"p{priority}"
        if part:
            self._need_part(queue, part)
        body: Any = message.get("body")
        is_text = isinstance(body, str)
        envelope = {**message, "is_text": is_text}
        envelope.pop("body", None)
        told = {"kombu": ENCODER.encode(envelope)}
        expires_at = self._expiry(queue, properties)
        if expires_at is not None:
            told["expires"] = repr(expires_at)
        self.connection.folder.jobs(queue, part).queue.put(
            body.encode("utf-8", "surrogatepass") if is_text else bytes(body or b""),
            id=short(headers.get("id")), tag=short(headers.get("task")), headers=told,
            delay=delay_s or None,
        )  # fmt: skip

    def _put_fanout(self, exchange: str, message: dict[str, Any], _: str, **keywords: Any) -> None:
        for queue in sorted({bound for _, _, bound in self.get_table(exchange)}):
            self._put(queue, message, **keywords)

    def _delay_of(self, headers: dict[str, Any]) -> float:
        eta = headers.get("eta") if self.eta_as_delay else None
        if not isinstance(eta, str):
            return 0.0
        try:
            when = datetime.fromisoformat(eta)
        except ValueError:
            return 0.0  # The worker will say what is wrong with it.
        if when.tzinfo is None:
            when = when.replace(tzinfo=UTC)
        return min(FOR_EVER_S, max(0.0, when.timestamp() - time.time()))

    def _expiry(self, queue: str, properties: dict[str, Any]) -> float | None:
        arguments = self.state.queues.get(queue, {}).get("arguments") or {}
        limits = (properties.get("expiration"), arguments.get("x-message-ttl"))
        if limits == (None, None):
            return None
        return time.time() + min(int(limit) for limit in limits if limit is not None) / 1000

    # ── consuming ──────────────────────────────────────────────────────────────────────────

    def _get(self, queue: str, timeout: float | None = None) -> dict[str, Any]:
        """The next message of a queue, the most urgent part first; `Empty` when there is none."""
        for part in self._parts(queue):
            inbox = self.connection.inbox(queue, part)
            while (found := inbox.get(self._lease_s)) is not None:
                try:
                    payload = self._payload(found)
                except Exception as error:
                    # Another program than kombu has put it: it would always fail, also elsewhere.
                    inbox.jobs().group.dead_letter(found, f"no message of kombu's: {error!r}")
                    continue
                if payload is not None:
                    return payload
                finish(found)
        raise Empty()

    def _payload(self, found: _core.Message) -> dict[str, Any] | None:
        """A message as kombu has it; none when its time is over."""
        headers = found.headers
        expires_at = headers.get("expires")
        if expires_at is not None and float(expires_at) <= time.time():
            return None
        text = headers.get("kombu", "")
        # kombu's way to say a date or an id; without one, its loader only takes longer.
        payload: dict[str, Any] = loads(text) if "__type__" in text else json.loads(text)
        body: Any = found.body
        if payload.pop("is_text", True):
            body = body.decode("utf-8", "surrogatepass")
        properties = payload.setdefault("properties", {})
        properties["delivery_tag"] = next(self._tags)
        info = properties.setdefault("delivery_info", {})
        info["redelivered"] = found.receives > 1
        return payload | {"body": body, "lease": found}

    def _restore(self, message: Message) -> None:
        """Hands a message out again, to anyone."""
        if message.lease is not None and self.is_ours:
            with suppress(ReceiptError, ClosedError):  # Then someone else has it already.
                message.lease.nack()

    def basic_get(self, queue: str, no_ack: bool = False, **_: Any) -> Message | None:
        """The next message, or none."""
        try:
            payload = self._get(queue)
        except Empty:
            return None
        return self._received(payload, no_ack)

    def _received(self, payload: dict[str, Any], no_ack: bool) -> Message:
        message = Message(payload, self)
        if not no_ack:
            self.qos.append(message, message.delivery_tag)
        elif message.lease is not None:
            finish(message.lease)
        return message

    def basic_consume(
        self, queue: str, no_ack: bool, callback: Callable[[Message], Any], consumer_tag: str,
        **_: Any,
    ) -> None:  # fmt: skip
        """Calls `callback` with what comes."""
        self._sit_down(queue)
        self._tag_to_queue[consumer_tag] = queue
        self._active_queues.append(queue)
        self._consumers.add(consumer_tag)
        if no_ack:
            self.urgent.add(queue)
        self.connection._callbacks[queue] = lambda payload: callback(
            self._received(payload, no_ack)
        )
        self._reset_cycle()
        self.connection.queue_poll.wake()

    def basic_cancel(self, consumer_tag: str) -> None:
        """Consumes no more; a queue that lives by its consumers goes with the last."""
        queue = self._tag_to_queue.get(consumer_tag)
        super().basic_cancel(consumer_tag)
        if queue is None or queue in self._active_queues:
            return
        self.urgent.discard(queue)
        seat = self._seats.pop(queue, None)
        if seat is not None:
            os.close(seat)
        if self.is_ours and self.connection is not None:
            self.connection.leave(queue)
            if self.state.queues.get(queue, {}).get("auto_delete"):
                self.queue_delete(queue, if_unused=True)

    def _sit_down(self, queue: str) -> None:
        """As long as this process lives, others see that the queue has a consumer."""
        self._new_queue(queue)
        if queue not in self._seats:
            self._seats[queue] = seat = self.connection.seat(queue)
            fcntl.flock(seat, fcntl.LOCK_SH)

    def basic_ack(self, delivery_tag: int, multiple: bool = False) -> None:
        """Acks one message, or all up to it."""
        if multiple:
            for tag in [tag for tag in self.qos._delivered if tag < delivery_tag]:
                if tag not in self.qos._dirty:
                    self.qos.ack(tag)
        self.qos.ack(delivery_tag)

    def basic_qos(self, *args: Any, **keywords: Any) -> None:
        """Changes how many messages may be out at once."""
        super().basic_qos(*args, **keywords)
        self.has_room()

    def close(self) -> None:
        """Gives back what was not acked."""
        super().close()
        for seat in self._seats.values():
            os.close(seat)  # And no more: a forked worker of a pool does so, too.
        self._seats.clear()


Channel.Message, Channel.QoS = Message, QoS


def urgency(part: str) -> tuple[int, str]:
    """Sorts parts: high priorities, then what was due later, then the rest."""
    return (-int(part[1:]) if part.startswith("p") else 0, "" if part == "d" else "~")


def short(text: Any) -> str | None:
    """An id or a task's name, to find messages by; nothing depends on it."""
    return text if isinstance(text, str) and 0 < len(text) <= 120 and text.isprintable() else None
