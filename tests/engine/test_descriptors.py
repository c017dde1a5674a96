"""Open files: whoever is done with a queue has none of its files open any more."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import Queue
from penstock.formats import registry


def scan_all(path: Path) -> None:
    with Queue(path, read_only=True) as queue:
        assert len(list(queue.scan())) == 3


def scan_tolerantly(path: Path) -> None:
    with Queue(path, read_only=True) as queue:
        scan = queue.scan(tolerant=True)
        assert (len(list(scan)), scan.damage) == (3, [])


def scan_a_little(path: Path) -> None:
    next(iter(Queue(path, read_only=True).scan(tolerant=True)))


def verify(path: Path) -> None:
    with Queue(path, read_only=True) as queue:
        assert queue.verify().is_ok


def open_files() -> int:
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("work", [scan_all, scan_tolerantly, scan_a_little, verify])
@pytest.mark.parametrize("format", registry.MODULES)
def test_reading_leaves_no_file_open(
    tmp_path: Path, format: str, work: Callable[[Path], None]
) -> None:
    path = tmp_path / ("q.bin" if format == "vqs" else "q")
    with Queue(path, format=format) as queue:
        queue.put_many([b"a", b"b", b"c"])
    work(path)
    before = open_files()
    for _ in range(3):
        work(path)
    assert open_files() <= before
