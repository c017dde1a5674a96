"""The time of a message is the one that was given; 0 is the beginning of 1970, not "none"."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import penstock


@pytest.mark.parametrize("format", ["penstock", "zbus", "beats"])
def test_a_time_of_zero_is_stored_as_zero(tmp_path: Path, format: str) -> None:
    with penstock.Queue(tmp_path / "queue", format=format) as queue:
        queue.put(b"one", timestamp_ns=0)
        queue.put_many([penstock.Message(b"two", timestamp_ns=0)])
        queue.put_many(pa.table({"body": [b"three"], "timestamp_ns": [0]}))
        assert [message.timestamp_ns for message in queue.scan()] == [0, 0, 0]


@pytest.mark.parametrize("format", ["penstock", "zbus", "beats"])
def test_without_a_time_it_is_that_of_the_put(tmp_path: Path, format: str) -> None:
    clock = penstock.ManualClock()
    with penstock.Queue(tmp_path / "queue", format=format, clock=clock) as queue:
        queue.put(b"one")
        queue.put_many([penstock.Message(b"two"), b"three"])
        times = pa.array([None], pa.int64())
        queue.put_many(pa.table({"body": [b"four"], "timestamp_ns": times}))
        queue.put_many(pa.table({"body": [b"five"]}))
        stamps = {message.timestamp_ns for message in queue.scan()}
    assert len(stamps) == 1
    assert stamps != {0}
