"""The table of `.penstock/` has every file that queues really leave there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock import Queue
from penstock.sidecar import tree

FORMATS = ["penstock", "zbus", "beats", "vqs", "mfq"]


def is_declared(path: str) -> bool:
    """Whether the table has a file with this path below `.penstock/`."""
    patterns = (map(re.escape, re.split(r"<[\w ]+>", entry.path)) for entry in tree.ENTRIES)
    return any(re.fullmatch("[^/]+".join(parts), path) for parts in patterns)


def files_of(path: Path) -> set[str]:
    sidecar = path / ".penstock" if path.is_dir() else path.with_name(path.name + ".penstock")
    return {str(file.relative_to(sidecar)) for file in sidecar.rglob("*") if file.is_file()}


@pytest.mark.parametrize("format", FORMATS)
def test_every_file_of_a_used_queue_is_in_the_table(format: str, tmp_path: Path) -> None:
    path = tmp_path / ("queue.bin" if format == "vqs" else "queue")
    small = None if format == "vqs" else 64 * 1024
    seen = set()
    with Queue(path, format=format, segment_bytes=small) as queue:
        group = queue.group("workers")
        for _ in range(200):
            queue.put(b'{"x": "%s"}' % (b"x" * 1000), key="k", delay=0.001)
        for message in group.get_many(50):
            message.ack()
        queue.sync()
        seen |= files_of(path)
        queue.repair()
        queue.purge()
        seen |= files_of(path)
    seen |= files_of(path)
    assert {"control", "lock", "groups/workers/table"} <= seen
    assert {name for name in seen if not is_declared(name)} == set()


def test_a_file_that_nobody_declared_is_noticed() -> None:
    assert not is_declared("groups/a/b/table")
    assert not is_declared("stray")
    assert is_declared("groups/billing/journal-000003")
