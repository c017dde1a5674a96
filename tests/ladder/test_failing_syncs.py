"""Syncs that fail on a real file system. What a put returned for is on the medium, and a failed
sync is never followed by one that seems to succeed. Needs root, loop devices and FUSE."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ladder import failing_disk
from tests.ladder.means import NotRun
from tests.ladder.rungs import FORMATS

pytestmark = pytest.mark.crash
FAILING = {
    ("vqs", "put"): "after a failed sync the ring is rewritten in place",
    ("vqs", "close"): "after a failed sync the ring is rewritten in place",
    **{
        (name, "atomic"): "a failed sync of an atomic append poisons nothing" for name, _ in FORMATS
    },
}


def calls() -> list[Any]:
    found = []
    for format, layout in FORMATS:
        for where in failing_disk.WHERE:
            reason = FAILING.get((format, where))
            marks = [pytest.mark.xfail(reason=reason)] if reason else []
            found.append(pytest.param(format, layout, where, marks=marks, id=f"{format}-{where}"))
    return found


def meet(format: str, layout: str, where: str) -> None:
    try:
        found = failing_disk.in_own_process(format, layout, where)
    except NotRun as missing:
        pytest.skip(str(missing))
    assert found["failed"], "the fault was never met"
    assert found["wrong"] == []


def test_a_failing_device_is_met_by_a_sync_and_nothing_is_lost() -> None:
    meet("penstock", "", "sync")


@pytest.mark.slow
@pytest.mark.parametrize(("format", "layout", "where"), calls())
def test_no_call_acknowledges_what_a_failing_device_lost(
    format: str, layout: str, where: str
) -> None:
    meet(format, layout, where)
