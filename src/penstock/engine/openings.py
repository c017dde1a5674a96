"""The queues that this process has open: closed at its exit, forgotten by its forked children."""

from __future__ import annotations

import atexit
import os
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.engine.queue import Queue

OPEN: weakref.WeakSet[Queue] = weakref.WeakSet()


def add(queue: Queue) -> None:
    """It was opened."""
    OPEN.add(queue)


def discard(queue: Queue) -> None:
    """It was closed."""
    OPEN.discard(queue)


def _after_fork() -> None:
    for queue in list(OPEN):
        queue.after_fork()


def _close_all() -> None:
    for queue in list(OPEN):
        # The interpreter is going: whoever opens the queue next recovers it.
        with suppress(PenstockError, OSError):
            queue.close()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_close_all)
