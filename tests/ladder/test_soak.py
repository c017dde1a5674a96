"""A long run stays flat: descriptors, maps, memory, and the disk holds what is alive."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import Queue
from tests.crash.killing import in_a_small_process
from tests.ladder.means import MEMORY

SEGMENT = 65536
FORMATS: dict[str, dict[str, Any]] = {
    name: {"format": name, "segment_bytes": SEGMENT, "retention_bytes": 4 * SEGMENT}
    for name in ("penstock", "zbus", "beats", "mfq")
} | {"vqs": {"format": "vqs", "max_bytes": 8 * SEGMENT}}
WARM, ROUNDS, ROUNDS_SLOW = 6, 25, 4000
PER_ROUND, SIZE = 200, 300


@pytest.fixture
def folder() -> Iterator[Path]:
    path = MEMORY / f"penstock-soak-{os.getpid()}"
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    yield path
    shutil.rmtree(path)


def used(folder: Path) -> dict[str, int]:
    """What this process and the folder take now."""
    sizes = {p: p.stat().st_blocks * 512 for p in folder.rglob("*") if p.is_file()}
    journals = sum(size for path, size in sizes.items() if path.name.startswith("journal-"))
    return {
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "maps": len(Path("/proc/self/maps").read_text().splitlines()),
        "memory": int(Path("/proc/self/statm").read_text().split()[1]) * 4096,
        "journals": journals,
        "disk": sum(sizes.values()) - journals,
    }


MORE = {
    "descriptors": 4, "maps": 24, "memory": 24 << 20, "journals": 16 << 20, "disk": 4 * SEGMENT,
}  # fmt: skip
"""A journal grows until its next checkpoint, and is mapped meanwhile."""


def soak(folder: Path, format: str, rounds: int) -> None:
    path = folder / ("q.bin" if format == "vqs" else "q")
    before: dict[str, int] = {}
    number = 0
    with Queue(path, durability="interval", **FORMATS[format]) as queue:
        group = queue.group()
        for turn in range(rounds):
            for _ in range(PER_ROUND):
                queue.put(b"%08d" % number + b"s" * SIZE)
                number += 1
            first = number - PER_ROUND
            for message in group.get_many(PER_ROUND, 5.0):
                assert int(message.body[:8]) == first
                first += 1
                message.ack()
            assert first == number
            queue.retain()
            if turn == WARM:
                before = used(folder)
        after = used(folder)
    grown = {name: after[name] - before[name] for name in after}
    assert {name: more for name, more in grown.items() if more > MORE[name]} == {}


@pytest.mark.parametrize("format", FORMATS)
def test_a_run_of_some_rounds_stays_flat(folder: Path, format: str) -> None:
    in_a_small_process(soak, folder, format, ROUNDS)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("format", FORMATS)
def test_a_long_run_stays_flat(folder: Path, format: str) -> None:
    in_a_small_process(soak, folder, format, ROUNDS_SLOW)
