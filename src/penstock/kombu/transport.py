"""A connection: the folder, what is consumed from it, and how its consumers sleep."""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from queue import Empty
from typing import Any
from urllib.parse import parse_qsl, unquote

from kombu.transport import virtual

from penstock import __version__
from penstock import _kombu_name as _kombu_name
from penstock.engine.folder import Folder
from penstock.engine.threads import unlock_file
from penstock.engine.wait_many import Inbox, QueuePoll
from penstock.errors import (
    ClosedError,
    OptionError,
    PenstockError,
    PoisonedError,
    StorageError,
)
from penstock.kombu.channel import Channel
from penstock.kombu.state import State

SWEEP_S = 5.0
"""How often queues are looked for whose consumers have gone."""
UNUSED_S = 86400.0
"""How long a queue that goes with its consumers outlives them, when it does not say."""
QUEUE_OPTIONS = ("durability", "max_bytes", "max_message_bytes", "segment_bytes", "compression")


class Transport(virtual.Transport):  # type: ignore[misc]
    """A connection to a folder."""

    can_parse_url = True
    default_port = None
    driver_type = driver_name = "penstock"
    implements: Any = virtual.Transport.implements.extend(
        asynchronous=True, exchange_type=frozenset(["direct", "topic", "fanout"]), heartbeats=False
    )
    connection_errors: tuple[type[Exception], ...] = (
        *virtual.Transport.connection_errors, ClosedError, PoisonedError, StorageError,
    )  # fmt: skip
    channel_errors: tuple[type[Exception], ...] = (
        *virtual.Transport.channel_errors, PenstockError,
    )  # fmt: skip

    def __init__(self, client: Any, **keywords: Any) -> None:
        """Opens the folder that the URL names."""
        super().__init__(client, **keywords)
        tell_celery()
        path, asked = parse(client.hostname or "")
        given = {**asked, **client.transport_options}
        options = {name: given[name] for name in QUEUE_OPTIONS if name in given}
        where = path or given.get("folder") or need(client)
        self._max_receives = int(given.get("max_receives") or 0)
        self._folder_of = partial(Folder.shared, where, **options)
        self._folder: Folder | None = None
        self._state: State | None = None
        self._inboxes: dict[tuple[str, str], Inbox] = {}
        self._queue_poll: QueuePoll | None = None
        self._loop: Any = None
        self._timer: Any = None
        self._turn = 0
        self._is_full = self._was_busy = False
        self._unused: dict[str, float] = {}
        self._swept_at = time.monotonic()

    # ── what a connection has open ─────────────────────────────────────────────────────────

    @property
    def folder(self) -> Folder:
        """The folder, open as long as the connection is."""
        if self._folder is None:
            self._folder = self._folder_of()
            self._folder.max_receives = self._max_receives or self._folder.max_receives
        return self._folder

    @property
    def state(self) -> State:
        """Exchanges, bindings and queues."""
        if self._state is None:
            self._state = State(self.folder.path)
        return self._state

    @state.setter
    def state(self, _: Any) -> None:
        """Passed over: virtual transports begin with an empty one, ours is in the folder."""

    @property
    def queue_poll(self) -> QueuePoll:
        """What rings when a queue has news."""
        if self._queue_poll is None:
            self._queue_poll = QueuePoll()
        return self._queue_poll

    def inbox(self, queue: str, part: str) -> Inbox:
        """One part of a queue, as this connection consumes it."""
        found = self._inboxes.get((queue, part))
        if found is None:
            found = self._inboxes[queue, part] = Inbox(self.folder, self.queue_poll, queue, part)
        return found

    def leave(self, queue: str) -> None:
        """Closes what receives from a queue, once no channel of this connection consumes it."""
        if not any(queue in channel._active_queues for channel in self.channels):
            for key in [key for key in self._inboxes if key[0] == queue]:
                self._inboxes.pop(key).close()

    def seat(self, queue: str) -> int:
        """The queue's folder as a descriptor, which a process that consumes locks."""
        return os.open(self.folder.path_of(queue), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def is_consumed(self, queue: str) -> bool:
        """Whether anybody's consumer lives."""
        try:
            seat = self.seat(queue)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(seat, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            unlock_file(seat)
        return False

    def _sweep(self) -> None:
        """Deletes queues whose time without a consumer is over: a killed one said no goodbye."""
        now = time.monotonic()
        if now - self._swept_at < SWEEP_S or not self.channels:
            return
        self._swept_at = now
        self.state.refresh()
        for queue, found in list(self.state.queues.items()):
            limit_ms = (found.get("arguments") or {}).get("x-expires")
            limit_s = UNUSED_S if limit_ms is None else int(limit_ms) / 1000
            if limit_ms is None and not found.get("auto_delete"):
                continue
            if self.is_consumed(queue):
                self._unused.pop(queue, None)
            elif now - self._unused.setdefault(queue, now) >= limit_s:
                self._unused.pop(queue, None)
                self.channels[0].queue_delete(queue, if_unused=True)

    # ── delivering ─────────────────────────────────────────────────────────────────────────

    def _consumed(self) -> Iterator[tuple[Channel, str]]:
        """Every queue that is consumed here: first what is urgent, then each in turn the first.
        Sets `_is_full` for a channel that may not have more."""
        pairs = [
            (channel, queue)
            for channel in self.channels
            if self._may_consume(channel)
            for queue in channel._active_queues
        ]
        if pairs:
            self._turn = (self._turn + 1) % len(pairs)
            turned = pairs[self._turn :] + pairs[: self._turn]
            if len(turned) > 1:
                turned.sort(key=is_later)
            yield from turned

    def _may_consume(self, channel: Channel) -> bool:
        if not channel._active_queues or channel.qos.can_consume():
            return True
        self._is_full = True
        # Once more: who acked before the line above has not woken us for it.
        return bool(channel.qos.can_consume())

    def _deliver_one(self) -> bool:
        self._is_full = False
        for channel, queue in self._consumed():
            try:
                payload = channel._get(queue)
            except Empty:
                continue
            self._deliver(payload, queue)
            return True
        return False

    def _arm(self) -> bool:
        """From now on news of every queue wakes us. True: of some only now, so look once more."""
        is_new = False
        for channel, queue in self._consumed():
            for part in channel._parts(queue):
                is_new |= self.inbox(queue, part).arm()
        return is_new

    def _wake_in(self) -> float | None:
        found = [inbox.wake_in() for inbox in self._inboxes.values()]
        return min((seconds for seconds in found if seconds is not None), default=None)

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:
        """Hands on one message; sleeps until one comes, at most `timeout` seconds."""
        self._sweep()
        until = None if timeout is None else time.monotonic() + timeout
        while not self._deliver_one():
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                raise TimeoutError("no message came in time")
            if self._arm() and self._deliver_one():
                return
            waits = [seconds for seconds in (left, self._wake_in()) if seconds is not None]
            self.queue_poll.wait(min([*waits, SWEEP_S]))
            self._sweep()

    def has_room(self) -> None:
        """A message was acked; from any thread."""
        if self._is_full and self._queue_poll is not None:
            self._queue_poll.wake()

    # ── kombu's event loop ─────────────────────────────────────────────────────────────────

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        """The loop watches one descriptor for all queues."""
        self._loop = loop
        loop.add_reader(self.queue_poll.fileno(), self.on_readable)
        self.queue_poll.wake()

    def on_readable(self, *_: Any) -> None:
        """Hands on what is there, and sees to it that the next comes."""
        self.queue_poll.clear()
        self._sweep()
        is_busy = self._deliver_one()
        if not is_busy:
            if not (self._arm() and self._deliver_one()):
                self._set_timer()
                return
        elif self._was_busy:
            for inbox in self._inboxes.values():
                inbox.disarm()
        self._was_busy = is_busy
        # One at a time, though there may be more: Celery acks between two turns of the loop, and
        # what it began and has not acked runs twice if it is killed.
        self.queue_poll.wake()

    def _set_timer(self) -> None:
        """No signal says that a delay or a lease has run out."""
        seconds = self._wake_in()
        seconds = SWEEP_S if seconds is None else min(seconds, SWEEP_S)
        at = time.monotonic() + seconds
        if self._timer is not None and time.monotonic() < self._timer[0] <= at:
            return
        if self._timer is not None:
            self._timer[1].cancel()
        self._timer = (at, self._loop.call_later(seconds, self._ring))

    def _ring(self) -> None:
        self._timer = None
        if self._queue_poll is not None:
            self._queue_poll.wake()

    # ── life ───────────────────────────────────────────────────────────────────────────────

    def establish_connection(self) -> Any:
        """Opens the folder: whatever is wrong with it is said here."""
        self.state.refresh()
        return super().establish_connection()

    def verify_connection(self, connection: Any) -> bool:
        """A folder does not hang up."""
        return self._folder is not None

    def close_connection(self, connection: Any) -> None:
        """Closes the channels and gives the folder back."""
        super().close_connection(connection)
        if self._timer is not None:
            self._timer[1].cancel()
            self._timer = None
        if self._queue_poll is not None:
            if self._loop is not None:
                with suppress(Exception):
                    self._loop.remove_reader(self._queue_poll.fileno())
            for inbox in self._inboxes.values():
                inbox.close()
            self._queue_poll.close()
        self._inboxes, self._queue_poll, self._loop = {}, None, None
        if self._folder is not None:
            self._folder.release()
        self._folder = self._state = None

    def driver_version(self) -> str:
        """Which penstock this is."""
        return __version__

    def as_uri(self, uri: str, include_password: bool = False, mask: str = "**") -> str:
        """The URL: there is no password in it."""
        return uri

    @property
    def default_connection_params(self) -> dict[str, Any]:
        """Nothing that a folder needs."""
        return {"hostname": None, "port": None, "virtual_host": "/"}


Transport.Channel = Channel


def tell_celery() -> None:
    """Gives workers of Celery, where it is used, a step of ours."""
    if "celery" in sys.modules:
        from penstock.kombu import early_acks as early_acks


tell_celery()


def is_later(consumed: tuple[Channel, str]) -> bool:
    """Whether a queue comes after those that are urgent."""
    channel, queue = consumed
    return queue not in channel.urgent


def parse(url: str) -> tuple[str, dict[str, str]]:
    """The folder that a URL names, and the options behind it."""
    _, _, rest = url.rpartition("://") if "://" in url else ("", "", "")
    path, _, query = rest.partition("?")
    return unquote(path), dict(parse_qsl(query))


def need(client: Any) -> str:
    """An error: nobody has said where."""
    raise OptionError("broker_url", client.hostname, "a folder, as in penstock:///var/lib/jobs")
