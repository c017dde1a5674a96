"""The queues that this process has open: closed at its exit, forgotten by its forked children."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from contextlib import suppress

from penstock.errors import ClosedError, PenstockError
from penstock.hints import Protocol


class Opened(Protocol):
    """A queue that is open, as far as this module goes."""

    def close(self) -> None:
        """Syncs and lets go."""

    def after_fork(self) -> None:
        """In the child: the parent's opening is not ours."""


OPEN: weakref.WeakSet[Opened] = weakref.WeakSet()
_lock = threading.RLock()


def add(queue: Opened) -> None:
    """Remembers a queue that was opened."""
    with _lock:
        OPEN.add(queue)


def discard(queue: Opened) -> None:
    """Forgets a queue that was closed."""
    with _lock:
        OPEN.discard(queue)


def _hush_daemons() -> None:
    """A daemon thread that waits in `get` or `put` when the program ends is stopped by the close.

    That is no error: the standard library's queues leave such a thread waiting, without a word.
    """
    before = threading.excepthook

    def tell(found: threading.ExceptHookArgs) -> None:
        is_daemon = found.thread is not None and found.thread.daemon
        if not (is_daemon and issubclass(found.exc_type, ClosedError)):
            before(found)

    threading.excepthook = tell


def _after_fork() -> None:
    global _lock
    _lock = threading.RLock()  # The thread that had it is not in this process.
    for queue in list(OPEN):
        queue.after_fork()


def _close_all() -> None:
    with _lock:
        left = list(OPEN)
    if left:
        _hush_daemons()
    for queue in left:
        # The interpreter ends: the next opener of the queue recovers it.
        with suppress(PenstockError, OSError):
            queue.close()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_close_all)
