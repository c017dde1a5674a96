"""Puts that outlast a failing disk, and puts that sync after so many messages.

With `retry_interval_s` a put whose write fails (the disk is full, a quota is used up) waits and
tries again, each time twice as long up to `max_retry_interval_s`, as long as the put's patience
lasts; then the error is raised after all. With `max_unsynced` the put that would leave that many
messages unsynced syncs them first. A queue with neither puts by the native writer itself.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from weakref import WeakKeyDictionary, proxy

from penstock import _core
from penstock.hints import TYPE_CHECKING, Any, TypeVar
from penstock.pacing import MANUAL_NAP_S

if TYPE_CHECKING:
    from penstock.engine.group import OpenQueue

T = TypeVar("T")
PASSING = {
    errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ENOMEM, errno.EMFILE, errno.ENFILE,
}  # fmt: skip
"""Errors that may go away with time. A failed sync is not among them: nothing retries a sync."""

KNOWN: WeakKeyDictionary[OpenQueue, RetryingWriter] = WeakKeyDictionary()
"""The retrying writer of each open queue: all its threads use the same one, and count together."""


def writer(queue: OpenQueue) -> _core.Writer | RetryingWriter:
    """The writer by which a queue puts: the native one, unless its options ask for more."""
    native = queue.store.need_writer()
    if not (queue.options.retry_interval_s or queue.options.max_unsynced):
        return native
    known = KNOWN.get(queue)
    if known is None or known.native is not native:
        known = KNOWN[queue] = RetryingWriter(queue, native)
    return known


class RetryingWriter:
    """The writer of a queue that retries writes or counts what is not synced."""

    def __init__(self, queue: OpenQueue, native: _core.Writer) -> None:
        # `KNOWN` must forget a queue that the program drops, so nothing here may keep it.
        self._queue: OpenQueue = proxy(queue)
        self.native = native
        self._shared = queue.store.need_shared()
        self._synced = self._shared.next_number

    def put(self, body: Any, **values: Any) -> int:
        """Puts one message, as `Queue.put` does."""
        return self._done(self._try(lambda: self.native.put(body, **values)))

    def put_list(self, items: Any, **values: Any) -> int | None:
        """Puts a list; if a part of it has landed, that is not tried again."""
        items = list(items)
        return self._done(self._try(lambda: self.native.put_list(items, **values), whole=True))

    def put_arrow(self, data: Any, **values: Any) -> int | None:
        """Puts an Arrow table, which may come as a stream: it is not tried again."""
        return self._done(self.native.put_arrow(data, **values))

    def _try(self, attempt: Callable[[], T], *, whole: bool = False) -> T:
        options, clock = self._queue.options, self._queue.store.clock
        wait, patience = options.retry_interval_s, self._queue.put_timeout_s
        until = None if patience is None else clock.boot_now_ns() + int(patience * 1e9)
        while True:
            tail = self._shared.tail
            try:
                return attempt()
            except OSError as error:
                left = None if until is None else (until - clock.boot_now_ns()) / 1e9
                is_over = left is not None and left <= 0
                if not wait or is_over or error.errno not in PASSING:
                    raise
                if whole and self._shared.tail != tail:
                    raise  # A part may have landed: the caller decides whether to put that again.
            self._pause(wait if left is None else min(wait, left))
            wait = min(2 * wait, options.max_retry_interval_s)

    def _pause(self, seconds: float) -> None:
        """Sleeps; an ack that lets a segment go, or closing the queue, ends it early."""
        from penstock.engine import retention, when_full

        clock = self._queue.store.clock
        until = clock.boot_now_ns() + int(seconds * 1e9)
        seen = self._shared.want_room(when_full.wanted(self._queue))
        while not retention.free_consumed(self._queue):
            self._queue.ensure_open()
            left = (until - clock.boot_now_ns()) / 1e9
            if left <= 0:
                return
            if self._shared.wait_room(seen, MANUAL_NAP_S if clock.manual else left):
                return

    def _done(self, offset: T) -> T:
        """Syncs once enough has been put by anyone since the last time."""
        number, most = self._shared.next_number, self._queue.options.max_unsynced
        if most and number - self._synced >= most:
            self.native.sync()
            self._synced = number
        return offset
