"""Times that writers set: what is chosen by time has every message of that time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock import Queue
from penstock.spark.bounds import Bounds
from penstock.spark.ship import ship
from tests.spark.helpers import batch

TIMES_MS = (5_000, 1_000, 9_000, 3_000, 4_102_444_800_000)


@pytest.fixture(params=["penstock", "zbus", "beats"])
def copied(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Messages that keep the times which they had elsewhere, each in a segment of its own."""
    with Queue(tmp_path / "q", format=request.param, segment_bytes=65536) as queue:
        for ms in TIMES_MS:
            queue.put(b"%013d" % ms * 4000, timestamp_ns=ms * 10**6)
    return tmp_path / "q"


def times(rows: list[dict[str, Any]]) -> list[int]:
    return [int(row["body"][:13]) for row in rows]


@pytest.mark.parametrize("is_shipped", [False, True])
def test_times_that_writers_set_leave_no_message_out(
    tmp_path: Path, copied: Path, is_shipped: bool
) -> None:
    """They say nothing of when a segment was written."""
    if is_shipped:
        ship(copied, f"{tmp_path}/to", whole=True)
        copied = tmp_path / "to"
    assert times(batch(copied)) == list(TIMES_MS)
    for index, ms in enumerate(TIMES_MS):
        bounds = Bounds().narrowed("EqualTo", "timestamp", [ms * 1000]).as_text()
        assert ms in times(batch(copied, bounds=bounds))
        first = next(at for at, time in enumerate(TIMES_MS) if time >= ms)
        assert times(batch(copied, startingTimestamp=ms)) == list(TIMES_MS[first:])
        assert index >= first


@pytest.mark.parametrize("is_shipped", [False, True])
def test_a_place_that_no_message_can_have_is_the_beginning_or_the_end(
    tmp_path: Path, copied: Path, is_shipped: bool
) -> None:
    has_numbers = Queue(copied, read_only=True).store.capabilities.numbers
    if is_shipped:
        ship(copied, f"{tmp_path}/to", whole=True)
        copied = tmp_path / "to"
    assert len(batch(copied, startingTimestamp="0001-01-01", endingTimestamp="9999-12-31")) == 5
    assert batch(copied, startingTimestamp=10**20) == []
    if has_numbers:
        assert batch(copied, startingOffsets=f"number:{10**20}") == []
