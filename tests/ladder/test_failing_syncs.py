"""Syncs that fail on a real file system. What a put returned for is on the medium, and a failed
sync is never followed by one that seems to succeed. Needs root, loop devices and FUSE."""

from __future__ import annotations

import re

import pytest

from tests import counting
from tests.ladder import failing_disk
from tests.ladder.means import NotRun
from tests.ladder.rungs import FORMATS, ROOT

pytestmark = pytest.mark.crash
CALLS = [(format, layout, where) for format, layout in FORMATS for where in failing_disk.WHERE]


def meet(format: str, layout: str, where: str) -> None:
    try:
        found = failing_disk.in_own_process(format, layout, where)
    except NotRun as missing:
        pytest.skip(str(missing))
    assert found["failed"], "the fault was never met"
    counting.count("faults of a device")
    assert found["wrong"] == []


SYNCS = re.compile(r"\bsync_data\(|\bsync_all\(|\bf(?:data)?sync\(|\bmsync\(|\bsyncfs\(")


def test_whatever_is_synced_is_synced_where_a_failure_poisons() -> None:
    """Each sync of a queue in turn: `tests/crash/test_each_sync.py`."""
    sources = [*(ROOT / "rust" / "src").rglob("*.rs"), *(ROOT / "src").rglob("*.py")]
    found = {
        (str(path.relative_to(ROOT)), line.strip())
        for path in sources
        for line in path.read_text().splitlines()
        if SYNCS.search(line)
    }
    assert found == {
        ("rust/src/files/region.rs",
         "let synced = sync_fault().and_then(|()| file.sync_data());"),
        ("rust/src/files/region.rs",
         "let synced = sync_fault().and_then(|()| File::open(path)?.sync_all());"),
        # A file that someone exports to, outside of any queue.
        ("src/penstock/engine/exchange.py", "os.fsync(stream.fileno())"),
    }  # fmt: skip


def test_a_failing_device_is_met_by_a_sync_and_nothing_is_lost() -> None:
    meet("penstock", "", "sync")


@pytest.mark.slow
@pytest.mark.parametrize(("format", "layout", "where"), CALLS)
def test_no_call_acknowledges_what_a_failing_device_lost(
    format: str, layout: str, where: str
) -> None:
    meet(format, layout, where)
