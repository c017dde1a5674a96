"""A queue that is closed has no file open any more, however long its object lives."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock import ClosedError, Message, Queue, StorageError
from penstock.formats import registry
from tests.opening import open_queue

Use = Callable[[Queue], Any]


def consume(queue: Queue) -> None:
    for message in queue.group("jobs").get_many(2):
        message.ack()


USES: dict[str, Use] = {
    "opening": lambda queue: None,
    "putting": lambda queue: queue.put(b"one more"),
    "getting": lambda queue: consume(queue),
    "getting each": lambda queue: queue.group("quick", ack="auto").get(),
    "waiting": lambda queue: queue.group("jobs").get_many(1, timeout=0),
    "scanning": lambda queue: [message.body for message in queue.scan()],
    "stats": lambda queue: queue.stats(),
    "verifying": lambda queue: queue.verify(),
}
"""What a program may have done with the queue before it closes it."""


def open_files(folder: Path) -> list[str]:
    """The files below `folder` that this process has open."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            name = str(descriptor.readlink())
        except FileNotFoundError:
            continue  # The one that listed the folder.
        if name.startswith(str(folder)):
            found.append(name)
    return found


@contextmanager
def no_collection() -> Iterator[None]:
    """Nothing is freed because the garbage collector happens to come by."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.fixture
def path(tmp_path: Path, format: str) -> Path:
    path = tmp_path / ("q.bin" if format == "vqs" else "q")
    with Queue(path, format=format) as queue:
        queue.put_many([b"first", b"second", b"third"])
        queue.group("jobs").get()
    return path


@pytest.mark.parametrize("format", registry.MODULES)
@pytest.mark.parametrize("name", USES)
def test_a_closed_queue_has_no_file_open(path: Path, format: str, name: str) -> None:
    with no_collection():
        queue = Queue(path)
        USES[name](queue)
        queue.close()
        assert open_files(path.parent) == []


@pytest.mark.parametrize("format", registry.MODULES)
@pytest.mark.parametrize("name", ["opening", "scanning", "stats", "verifying"])
def test_a_closed_reader_has_no_file_open(path: Path, format: str, name: str) -> None:
    with no_collection():
        queue = Queue(path, read_only=True)
        USES[name](queue)
        queue.close()
        assert open_files(path.parent) == []


@pytest.mark.parametrize("format", registry.MODULES)
def test_groups_let_go_with_their_queue(path: Path, format: str) -> None:
    with no_collection():
        queue, other = Queue(path), Queue(path)
        kept: list[Any] = [queue.group("jobs"), queue.group("quick", ack="auto")]
        kept += [queue.look("jobs"), other.look("jobs")]
        assert all(group.get(0) for group in kept[:2])
        other.close()
        queue.close()
        assert open_files(path.parent) == []
        for group in kept:
            with pytest.raises(ClosedError):
                group.get(0)
            with pytest.raises(ClosedError):
                _ = group.cursor
            assert "closed" in repr(group)
            group.close()


@pytest.mark.parametrize("format", registry.MODULES)
def test_a_message_outlives_its_queue(path: Path, format: str) -> None:
    with Queue(path, read_only=True) as queue:
        messages: list[Message] = list(queue.scan())
    assert [message.body for message in messages] == [b"first", b"second", b"third"]
    with no_collection():
        del messages
        assert open_files(path.parent) == []


@pytest.mark.parametrize("format", ["penstock", "zbus", "beats", "mfq"])
def test_nothing_is_deleted_of_a_queue_that_took_the_place_of_an_open_one(
    tmp_path: Path, format: str
) -> None:
    path = tmp_path / "q"
    with open_queue(path, format=format, retain_unread=False) as old:
        for number in range(40):
            old.put(b"%02d" % number + b"x" * 1000)
        path.rename(tmp_path / "old")
        with open_queue(path, format=format) as new:
            for number in range(40):
                new.put(b"%02d" % number + b"y" * 1000)
            with pytest.raises(StorageError, match="replaced"):
                old.trim("latest")
            assert len(list(new.scan())) == 40
        path.rename(tmp_path / "new")
        (tmp_path / "old").rename(path)
