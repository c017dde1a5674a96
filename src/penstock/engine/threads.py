"""Threads of the operating system, also where a library of green threads has replaced them.

gevent and eventlet put their own in the place of `threading`: what such a thread waits for
natively, the whole program waits for. The maintenance thread does nothing but wait.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

from penstock.hints import Any

GREEN_PAUSE_S = 0.002
"""How long a green thread lets the others run before it tries again."""


def original() -> Any:
    """The module `_thread` as the interpreter has it; none where it was not replaced."""
    if "gevent.monkey" in sys.modules:
        monkey = sys.modules["gevent.monkey"]
        if monkey.is_module_patched("threading") or monkey.is_module_patched("_thread"):
            return _Originals(monkey)
    if "eventlet.patcher" in sys.modules:
        patcher = sys.modules["eventlet.patcher"]
        if patcher.is_monkey_patched("thread"):
            return patcher.original("_thread")
    return None


def lock_file(descriptor: int) -> None:
    """Waits until this descriptor has the file's lock (`flock`), which its closing gives back.

    Where threads are green, the one that has the lock may be another one of this very thread, which
    could never go on if this one waited natively.
    """
    import fcntl
    import time

    while original() is not None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            time.sleep(GREEN_PAUSE_S)  # The library has replaced it: other green threads run.
    fcntl.flock(descriptor, fcntl.LOCK_EX)


def unlock_file(descriptor: int) -> None:
    """Gives a lock back, and closes its descriptor.

    To close it is not enough: a child that another thread has forked meanwhile has the descriptor,
    too, and would have the lock for as long as it lives.
    """
    import fcntl
    import os

    try:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


LOOK_S, LOOKS_MAX = 0.1, 10
"""A thread that waits for an import at so many looks in a row waits for ever."""


def waits_for_an_import(thread: threading.Thread) -> bool:
    """Whether it waits for a lock of Python's imports. A signal handler that raised in the middle
    of an import may have left that with its thread for ever: then no other loads anything again."""
    frame = sys._current_frames().get(thread.ident or 0)
    if frame is None or frame.f_code.co_filename != "<frozen importlib._bootstrap>":
        return False
    return frame.f_code.co_name in ("_get_module_lock", "acquire")


class _Originals:
    """The functions of `_thread` as gevent has kept them."""

    def __init__(self, monkey: Any) -> None:
        self.allocate_lock = monkey.get_original("_thread", "allocate_lock")
        self.start_new_thread = monkey.get_original("_thread", "start_new_thread")
        self.get_ident = monkey.get_original("_thread", "get_ident")


class Background:
    """A thread that ends with the program."""

    def __init__(self, work: Callable[[], None], name: str) -> None:
        """Starts at once. It does not refer to `work`, whose owner also owns this thread: both are
        freed together."""
        self._native = original()
        self._thread: threading.Thread | None = None
        if self._native is None:
            self._thread = threading.Thread(target=work, name=name, daemon=True)
            self._thread.start()
        else:
            self._ident = 0
            self._is_done = self._native.allocate_lock()
            self._is_done.acquire()
            self._native.start_new_thread(self._run, (work,))

    def _run(self, work: Callable[[], None]) -> None:
        self._ident = self._native.get_ident()
        try:
            work()
        finally:
            self._is_done.release()

    def join(self) -> None:
        """Waits for its end, unless it is this very thread that asks, or one that never ends."""
        if self._thread is not None:
            looks = 0
            while self._thread is not threading.current_thread() and looks < LOOKS_MAX:
                self._thread.join(LOOK_S)
                if not self._thread.is_alive():
                    return
                looks = looks + 1 if waits_for_an_import(self._thread) else 0
        elif self._ident != self._native.get_ident():
            with self._is_done:
                pass
