"""Ctrl-C ends whatever waits, also when its signal goes to another thread or comes just before."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock import Queue
from penstock.engine.mfq import MappedFileQueue
from tests.formats.checks import alarm


@contextmanager
def unnoticed_alarm() -> Iterator[None]:
    """A signal that does not interrupt what this thread waits in: another thread gets it."""
    over = threading.Event()
    other = threading.Thread(target=over.wait)
    other.start()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    try:
        with alarm(0.05):
            yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
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
    with unnoticed_alarm(), pytest.raises(KeyboardInterrupt):
        wait(tmp_path / "queue")
