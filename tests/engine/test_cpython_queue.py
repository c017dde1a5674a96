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
