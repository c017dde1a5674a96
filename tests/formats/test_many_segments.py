"""A queue of many segments rolls, reads and trims as one of few does: what is asked of the disk is
counted, because time depends on the machine."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock import Queue
from penstock.formats.contract import Format

FORMATS = ("penstock", "zbus", "mfq", "beats")
FEW, MANY = 20, 130
OPTIONS: dict[str, Any] = {
    "segment_bytes": 16 << 10,
    "durability": "process",
    "retain_unread": False,
}


class Counted:
    """Questions to the file system: a listing is one per name, or it would count as nothing."""

    def __init__(self) -> None:
        self.count = 0


@contextmanager
def asked(queue: Queue) -> Iterator[Counted]:
    """Counts what happens inside, and what a listing of segments looks at."""
    counted = Counted()
    usual_list = type(queue.store.format).list_segments

    def counting(usual: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            counted.count += 1
            return usual(*arguments, **options)

        return call

    def listing(store: Format) -> Any:
        found = usual_list(store)
        counted.count += len(found)
        return found

    def scanning(*arguments: Any) -> Any:
        entries = list(usual_scan(*arguments))
        counted.count += len(entries)
        return iter(entries)

    usual_scan = os.scandir
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "scandir", scanning)
        for name in ("stat", "open", "read_bytes"):
            patch.setattr(Path, name, counting(getattr(Path, name)))
        for name in ("open", "pread"):
            patch.setattr(os, name, counting(getattr(os, name)))
        patch.setattr(type(queue.store.format), "list_segments", listing)
        yield counted


def fill(queue: Queue, count: int) -> None:
    while len(queue.store.segments()) < count:
        queue.put(bytes(11_000))


def once(queue: Queue, work: Callable[[], object]) -> int:
    """How much one more of `work` asks, best of three: maintenance works beside it."""
    found = []
    for _ in range(3):
        with asked(queue) as counted:
            work()
        found.append(counted.count)
    return min(found)


class Works:
    """What is done again and again in the life of a queue."""

    def __init__(self, queue: Queue) -> None:
        self.queue, self.store = queue, queue.store
        self.group = queue.group("readers", ack="auto")

    def roll(self) -> None:
        fill(self.queue, len(self.store.segments()) + 1)

    def get_from_the_next_segment(self) -> None:
        base = self._get()
        while self._get() == base:
            pass

    def _get(self) -> int:
        """Where the segment of the next message begins."""
        offset = self.group.get(0).offset
        assert offset is not None
        return self.store.segment_at(offset).base

    def look_at_retention(self) -> None:
        self.store.used_bytes()
        self.queue.trim(dry_run=True)
        self.queue.retain()

    def trim(self) -> None:
        second = self.store.segments()[1].first
        self.group.seek(max(self.group.cursor, second))
        assert self.store.trim(second)

    def all(self) -> dict[str, int]:
        """How much each of them asks."""
        works = (self.roll, self.get_from_the_next_segment, self.look_at_retention, self.trim)
        for work in works:
            work()  # The first time some look for what others left.
        return {work.__name__: once(self.queue, work) for work in works}


@pytest.mark.parametrize("format", FORMATS)
def test_nothing_asks_more_with_many_segments(tmp_path: Path, format: str) -> None:
    with Queue(tmp_path / "queue", format=format, **OPTIONS) as queue:
        works = Works(queue)
        fill(queue, FEW)
        few = works.all()
        fill(queue, MANY)
        many = works.all()
        # One question per segment would be a hundred more; zbus's search asks a few.
        assert {name: count for name, count in many.items() if count > few[name] + 30} == {}
        with few_files():
            queue.sync()


@contextmanager
def few_files() -> Iterator[None]:
    """A hundred more than are open may be opened: fewer than there are segments."""
    usual = resource.getrlimit(resource.RLIMIT_NOFILE)
    here = max(int(path.name) for path in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (here + 100, usual[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, usual)
