"""A pytest plugin: taskiq's tests of results and progress, with ours in memory's place.

taskiq has no tests for brokers in general: its own ones run each task at the place where it is
sent. tests/tasks runs a broker and a receiver.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any

import pytest
from taskiq.brokers import inmemory_broker

from penstock.taskiq import PenstockResults

from . import skipping

NOT_OURS = {
    r"progress_tracker_validation_error": "compares an exception itself; ours went through JSON",
    r"test_wait_result_(error|no_result)": "looks inside the in-memory results",
}


class Results(PenstockResults):
    def __init__(self, max_stored_results: int = 100) -> None:
        self._root = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        super().__init__(self._root.name)


@pytest.fixture(autouse=True)
def stored(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(inmemory_broker, "InmemoryResultBackend", Results)
    return Results


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    skipping.skip(items, NOT_OURS)
