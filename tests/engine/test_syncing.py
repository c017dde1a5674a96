"""What is put or acked at `interval` is synced within the interval, whatever else goes on."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock import PoisonedError, Queue, StorageError, _core
from penstock.formats import registry
from tests.waiting import LONG_S

SOON: dict[str, Any] = {"sync_interval_s": 0.001}


def until(holds: Callable[[], bool]) -> bool:
    """Whether it holds before long; nothing else happens meanwhile."""
    end, never = time.monotonic() + LONG_S, threading.Event()
    while not holds() and time.monotonic() < end:
        never.wait(0.001)
    return holds()


def is_synced(queue: Queue) -> bool:
    end = queue.offsets()
    return end.durable == end.tail


def test_what_is_put_while_a_sync_runs_is_synced_too(tmp_path: Path) -> None:
    with Queue(tmp_path / "queue", **SOON) as queue:
        queue.put(
            bytes(1 << 20)
        )  # A segment so large that its end tells the maintenance thread nothing.
        marks = set()

        def have_many_syncs_run() -> bool:
            queue.put_many([b"x"] * 10)
            marks.add(queue.offsets().durable)
            return len(marks) > 8

        assert until(have_many_syncs_run)
        assert until(lambda: is_synced(queue))


def test_a_put_is_synced_although_one_before_it_need_not_be(tmp_path: Path) -> None:
    with (
        Queue(tmp_path / "queue", **SOON) as queue,
        Queue(tmp_path / "queue", durability="process") as careless,
    ):
        careless.put(b"survives a crash of the process")
        queue.put(b"survives a power cut")
        assert until(lambda: is_synced(queue))


def test_an_ack_while_a_sync_runs_is_synced_too(tmp_path: Path) -> None:
    with Queue(tmp_path / "queue", **SOON) as queue:
        queue.put_many([b"%d" % number for number in range(1000)])
        queue.sync()
        for _ in range(1000):
            queue.get(0).ack()
        assert until(lambda: not queue.group().core.is_dirty)


def test_a_get_that_is_its_own_ack_is_synced(tmp_path: Path) -> None:
    with Queue(tmp_path / "queue", **SOON) as queue:
        queue.put_many([b"1", b"2"])
        queue.sync()
        group = queue.group("readers", ack="auto")
        group.core.sync()
        assert group.get(0).body == b"1"
        assert until(lambda: not group.core.is_dirty)
        assert [message.body for message in group.get_many(9)] == [b"2"]
        assert until(lambda: not group.core.is_dirty)


@pytest.mark.parametrize("format", list(registry.MODULES))
def test_a_failed_sync_of_an_atomic_append_poisons(tmp_path: Path, format: str) -> None:
    queue = Queue(tmp_path / "q", format=format, durability="process")
    queue.put(b"{}")
    batch = pa.table({"body": pa.array([b"{}"], pa.binary())})
    _core.fail_syncs(errno.EIO)
    try:
        with pytest.raises(StorageError):
            queue.store.need_writer().append_atomic(batch, note=tmp_path / "note", text="{}")
    finally:
        _core.fail_syncs(0)
    assert queue.is_poisoned, "the next sync would succeed, over bytes that the kernel forgot"
    with pytest.raises(PoisonedError):
        queue.put(b"{}")
    queue.close()


@pytest.fixture
def recording() -> Iterator[None]:
    """Every effect on a file is recorded."""
    _core.record_effects(True)
    yield
    _core.record_effects(False)
    _core.take_effects()


@pytest.mark.usefixtures("recording")
def test_at_always_a_put_and_a_get_that_is_its_own_ack_sync_once_each(tmp_path: Path) -> None:
    with Queue(tmp_path / "queue", durability="always") as queue:
        group = queue.group(ack="auto")
        for _ in range(3):
            _core.take_effects()
            queue.put(b"x")
            assert [effect[0] for effect in _core.take_effects()].count("sync") == 1
            assert group.get(0).body == b"x"
            assert [effect[0] for effect in _core.take_effects()].count("sync") == 1


@pytest.mark.usefixtures("recording")
def test_gets_that_are_their_own_acks_share_syncs(tmp_path: Path) -> None:
    with Queue(tmp_path / "queue", durability="always") as queue:
        group, each = queue.group(ack="auto"), 40
        queue.put_many([b"x"] * (8 * each))
        _core.take_effects()

        def consume() -> None:
            for _ in range(each):
                assert group.get(0).body == b"x"

        consumers = [threading.Thread(target=consume) for _ in range(8)]
        for consumer in consumers:
            consumer.start()
        for consumer in consumers:
            consumer.join()
        syncs = [effect[0] for effect in _core.take_effects()].count("sync")
    assert 0 < syncs < 8 * each


@pytest.mark.parametrize("ack", ["auto", "lease"])
def test_after_a_failed_sync_no_ack_at_always_counts_as_synced(tmp_path: Path, ack: Any) -> None:
    queue = Queue(tmp_path / "queue", durability="always")
    queue.put_many([b"1", b"2"])
    group = queue.group("readers", ack=ack)
    first = group.get(0) if ack == "lease" else None
    second = group.get(0) if ack == "lease" else None
    _core.fail_syncs(errno.EIO)
    try:
        with pytest.raises(StorageError):
            first.ack() if first else group.get(0)
    finally:
        _core.fail_syncs(0)
    with pytest.raises(PoisonedError):
        second.ack() if second else group.get(0)
    queue.close()


def test_a_segment_that_was_cut_short_is_not_made_longer_by_a_put(tmp_path: Path) -> None:
    with Queue(tmp_path / "queue", segment_bytes=8 << 20, durability="process") as queue:
        queue.put_many([bytes(1 << 18)] * 12)  # Into a segment in which pages are made by writes.
        segment = queue.store.segments()[-1].path
        with segment.open("r+b") as file:
            file.truncate(1 << 20)
        with pytest.raises(StorageError):
            queue.put(bytes(100_000))
        assert segment.stat().st_size == 1 << 20
