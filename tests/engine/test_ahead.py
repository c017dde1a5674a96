"""Around a quick writer: pages made before it stores to them, bytes sent to the disk behind it."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Literal

import pytest

from penstock import Queue
from penstock.options import MIB


def ahead_threads() -> int:
    """Threads of this process that help writers."""
    names = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # It ended meanwhile.
            names.append((task / "comm").read_text())
    return names.count("penstock-behind\n")


def settles_at(count: int) -> bool:
    """Whether no more than `count` of them are left after a while: they end on their own."""
    deadline = time.monotonic() + 60
    while ahead_threads() > count and time.monotonic() < deadline:
        threading.Event().wait(0.01)
    return ahead_threads() <= count


@pytest.mark.parametrize(
    ("format", "durability"),
    [("penstock", "process"), ("penstock", "interval"), ("mfq", "process")],
)
def test_a_quick_writer_s_messages_are_all_there(
    tmp_path: Path, format: str, durability: Literal["process", "interval"]
) -> None:
    before = ahead_threads()
    with Queue(
        tmp_path / "queue", format=format, segment_bytes=8 * MIB, durability=durability
    ) as queue:
        bodies = [bytes([n % 251 + 1]) * (500 + n % 1000) for n in range(100)]
        for _ in range(500):
            queue.put_many(bodies)
        assert len(queue.store.format.list_segments()) > 2
        group = queue.group(ack="auto")
        for _ in range(500):
            assert [message.body for message in group.get_many(100)] == bodies
        assert queue.verify().is_ok
    assert settles_at(before)


def test_a_slow_writer_has_no_thread_for_it(tmp_path: Path) -> None:
    before = ahead_threads()
    with Queue(tmp_path / "queue", segment_bytes=8 * MIB) as queue:
        for _ in range(100):
            queue.put(bytes(1000))
        assert ahead_threads() <= before
        assert not queue.store.need_writer().is_quick


def test_written_by_calls_nothing_is_made_ahead(tmp_path: Path) -> None:
    before = ahead_threads()
    with Queue(tmp_path / "queue", segment_bytes=8 * MIB, durability="always") as queue:
        queue.put_many([bytes(1 << 20)] * 6)
        assert ahead_threads() <= before
