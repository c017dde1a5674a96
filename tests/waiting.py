"""For tests of waits: whether a thread really waits is looked at, not guessed from the time."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock import Queue, _core
from penstock.sidecar.control import CONTROL

FUTEX, WAIT_SHARED = "202", 0
"""The call and the operation by which a word of a file is waited for, on x86-64."""
LONG_S = 60
"""Far more than any wait here takes, also on a busy machine."""


def words_of(shared: _core.Shared) -> dict[str, Any]:
    """The words that all openers of a queue share, as they are now."""
    return CONTROL.unpack((shared.folder / "control").read_bytes())


def until_it_waits(thread: threading.Thread, queue: Queue, word: str = "waiters") -> None:
    """Lets the thread go on until someone waits for a message, or (`room_wanted`) for room."""
    shared = queue.store.need_shared()
    while not words_of(shared)[word]:
        assert thread.is_alive(), "it ended before it waited"
        thread.join(0.001)


def sleeps_on_a_shared_word(thread: threading.Thread) -> bool:
    """Whether it sleeps in the kernel on a word that processes share, and not on one of Python's
    own locks."""
    call = Path(f"/proc/self/task/{thread.native_id}/syscall").read_text().split()
    return call[0] == FUTEX and int(call[2], 16) == WAIT_SHARED


@contextmanager
def signal_once(is_time: Callable[[], bool], handle: Callable[[], object]) -> Iterator[None]:
    """A signal comes when it is time for it, and is handled in the main thread."""
    over = threading.Event()

    def interrupt() -> None:
        while not over.is_set() and not is_time():
            pass
        os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, lambda *_: handle())
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        signal.signal(signal.SIGUSR1, before)


@contextmanager
def often_switching() -> Iterator[None]:
    """Threads change places a thousand times as often as usual."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(5e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
