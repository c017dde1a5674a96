"""CPython's own tests of `queue.Queue`, run against the one on disk."""

from __future__ import annotations

import queue
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

import penstock

theirs: Any = pytest.importorskip("test.test_queue", reason="this Python has not its own tests")


class Queue(penstock.StandardQueue):
    """By this name the tests know in which order items must come."""

    folder: ClassVar[Path]
    made: ClassVar[list[Queue]]

    def __init__(self, maxsize: int = 0) -> None:
        super().__init__(self.folder / str(len(self.made)), maxsize)
        self.made.append(self)


class TestStandardQueue(theirs.BaseQueueTestMixin, unittest.TestCase):  # type: ignore[misc]
    queue: Any = queue
    type2test = Queue

    @pytest.fixture(autouse=True)
    def _in_a_folder(self, tmp_path: Path) -> Iterator[None]:
        Queue.folder, Queue.made = tmp_path, []
        yield
        for one in Queue.made:
            one.close()


DOES_NOT_APPLY = {
    "CQueueTest": "the same as PyQueueTest: whose locks are in C",
    "PyQueueTest": "TestStandardQueue stands for it",
    "QueueTest": "TestStandardQueue stands for it",
    "CLifoQueueTest": "a queue on disk is a log: there is no LifoQueue, and it says so",
    "PyLifoQueueTest": "a queue on disk is a log: there is no LifoQueue, and it says so",
    "LifoQueueTest": "a queue on disk is a log: there is no LifoQueue, and it says so",
    "CPriorityQueueTest": "a queue on disk is a log: there is no PriorityQueue, and it says so",
    "PyPriorityQueueTest": "a queue on disk is a log: there is no PriorityQueue, and it says so",
    "PriorityQueueTest": "a queue on disk is a log: there is no PriorityQueue, and it says so",
    "FailingQueueTest": "overrides _put and _get, the insides of queue.Queue",
    "CFailingQueueTest": "overrides _put and _get, the insides of queue.Queue",
    "PyFailingQueueTest": "overrides _put and _get, the insides of queue.Queue",
    "CSimpleQueueTest": "SimpleQueue is another class, without task_done and join",
    "PySimpleQueueTest": "SimpleQueue is another class, without task_done and join",
    "PyQueueModuleTest": "looks at the modules of the standard library",
}
"""CPython's tests that are left out, and why. Not every Python has all of them."""


def test_every_test_of_cpython_is_run_or_said_why_not() -> None:
    cases = [one for one in vars(theirs).values() if isinstance(one, type)]
    there = {one.__name__ for one in cases if issubclass(one, unittest.TestCase)}
    assert there - set(DOES_NOT_APPLY) == set()
