"""A file that is cut short under its mapping is an error, not the death of the process."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from penstock import Group, PoisonedError, Queue, StorageError

# In a process of many tests another library may have taken the signal over since: these run in
# the slow suite, which has a process to itself.
pytestmark = pytest.mark.slow


def filled(path: Path) -> Queue:
    queue = Queue(path, durability="process")
    queue.put_many([bytes(1000)] * 200)
    return queue


def cut(queue: Queue) -> Path:
    segment = queue.store.segments(fresh=True)[-1].path
    os.truncate(segment, 8192)
    return segment


def drain(group: Group) -> None:
    for _ in range(200):
        group.get(timeout=0)


@pytest.mark.parametrize("ack", ["auto", "lease"])
def test_get_raises_when_the_segment_was_cut(tmp_path: Path, ack: str) -> None:
    queue = filled(tmp_path / "q")
    group = queue.group("g", ack=ack)
    segment = cut(queue)
    with pytest.raises(StorageError, match=segment.name):
        drain(group)


def test_scan_raises_when_the_segment_was_cut(tmp_path: Path) -> None:
    queue = filled(tmp_path / "q")
    scan = queue.scan()
    cut(queue)
    with pytest.raises(StorageError, match="cut short"):
        list(scan)


def test_an_arrow_reader_raises_when_the_segment_was_cut(tmp_path: Path) -> None:
    queue = filled(tmp_path / "q")
    scan = queue.scan()
    cut(queue)
    with pytest.raises(pa.ArrowInvalid, match="cut short"):
        pa.table(scan)


def test_put_raises_when_the_segment_was_cut_and_nothing_more_is_accepted(tmp_path: Path) -> None:
    queue = filled(tmp_path / "q")
    cut(queue)
    with pytest.raises(StorageError, match="cut short"):
        queue.put(b"x")
    with pytest.raises(PoisonedError):
        queue.put(b"x")
