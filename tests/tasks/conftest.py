"""A worker serves all tests of a file here, and opens a queue when one of them first uses it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from penstock.engine import open_queues
from penstock.errors import PenstockError


@pytest.fixture(autouse=True, scope="module")
def _no_queue_stays_open() -> Iterator[None]:
    """For a file what the fixture of this name is for each test elsewhere."""
    before = set(open_queues.OPEN)
    yield
    for queue in set(open_queues.OPEN) - before:
        with contextlib.suppress(PenstockError, OSError):
            queue.close()
