"""Ctrl-C ends whatever waits, also when its signal goes to another thread or comes just before."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock import ClosedError, Queue
from penstock.mfq import MappedFileQueue
from tests import lockwords
from tests.formats.checks import ALARM, alarm
from tests.waiting import signal_once, words_of


@contextmanager
def unnoticed_alarm() -> Iterator[None]:
    """A signal that does not interrupt what this thread waits in: another thread gets it."""
    over = threading.Event()
    other = threading.Thread(target=over.wait)
    other.start()
    signal.pthread_sigmask(signal.SIG_BLOCK, {ALARM})
    try:
        with alarm(0.05):
            yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {ALARM})
        over.set()
        other.join()


def get(path: Path) -> None:
    with Queue(path) as queue:
        queue.get()


def put(path: Path) -> None:
    with Queue(path, format="vqs", max_bytes=4096) as queue:
        queue.group()
        while True:
            queue.put(bytes(500))


def consume(path: Path) -> None:
    options = {"consumer_spin_wait_duration": 0.0, "consumer_retry_interval": 3600.0}
    with MappedFileQueue(path, segment_size=16384, **options) as queue:
        queue.consumer.consume()


@pytest.mark.parametrize("wait", [get, put, consume])
def test_a_signal_that_interrupts_nothing_is_noticed(
    tmp_path: Path, wait: Callable[[Path], None]
) -> None:
    with pytest.raises(KeyboardInterrupt), unnoticed_alarm():
        wait(tmp_path / "queue")


SLEEPERS = 1 << 31
"""In a lock's word: someone sleeps until it is free."""


@contextmanager
def handled_in_a_wait(holder: Queue, handler: Callable[[], object]) -> Iterator[None]:
    """Another opening has the append lock; once someone waits for it, a signal frees it and is
    handled there."""
    shared = holder.store.need_shared()

    def handle() -> None:
        lockwords.give_append_lock(holder)
        handler()

    lockwords.hold_append_lock(holder)
    with signal_once(lambda: bool(words_of(shared)["lock"] & SLEEPERS), handle):
        yield


def test_a_handler_may_put_while_a_put_waits(tmp_path: Path) -> None:
    with Queue(tmp_path / "queue") as queue, Queue(tmp_path / "queue") as holder:
        with handled_in_a_wait(holder, lambda: queue.put(b"in the handler")):
            queue.put(b"waiting")
        assert {message.body for message in queue.get_many(9)} == {b"in the handler", b"waiting"}


def test_a_handler_may_close_the_queue_while_a_put_waits(tmp_path: Path) -> None:
    queue = Queue(tmp_path / "queue")
    with (
        Queue(tmp_path / "queue") as holder,
        handled_in_a_wait(holder, queue.close),
        pytest.raises(ClosedError),
    ):
        queue.put(b"too late")


@pytest.mark.parametrize("error", [TimeoutError("too late"), OSError("mine")])
def test_what_a_handler_raises_comes_out_as_it_is(tmp_path: Path, error: OSError) -> None:
    with Queue(tmp_path / "q") as queue:
        with pytest.raises(OSError, match=str(error)) as met, alarm(0.05, error):
            queue.get()
        assert met.value is error
