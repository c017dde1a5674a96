"""A long run stays flat: descriptors, maps, memory, and the disk holds what is alive."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from penstock import Group, Queue
from tests import counting
from tests.crash.killing import in_a_small_process
from tests.ladder.means import MEMORY

SEGMENT = 65536
FORMATS: dict[str, dict[str, Any]] = {
    name: {"format": name, "segment_bytes": SEGMENT, "retention_bytes": 4 * SEGMENT}
    for name in ("penstock", "zbus", "beats", "mfq")
} | {"vqs": {"format": "vqs", "max_bytes": 8 * SEGMENT}}
WARM, ROUNDS = 6, 25
PER_ROUND, SIZE = 200, 300
OPEN_AGAIN = 40
"""Rounds between a close and the next, in the long run."""
MINUTES = float(os.environ.get("PENSTOCK_SOAK_MINUTES", "18"))


@pytest.fixture
def folder() -> Iterator[Path]:
    path = MEMORY / f"penstock-soak-{os.getpid()}"
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    yield path
    shutil.rmtree(path)


def used(folder: Path) -> dict[str, int]:
    """What this process and the folder take now."""
    sizes = {}
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):  # A prepared segment has got its name meanwhile.
            sizes[path] = path.stat().st_blocks * 512 if path.is_file() else 0
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


def assert_flat(before: dict[str, int], after: dict[str, int], queues: int = 1) -> None:
    grown = {name: after[name] - before[name] for name in after}
    too_much = {name: more for name, more in grown.items() if more > queues * MORE[name]}
    assert too_much == {}


def put_and_take(queue: Queue, group: Group, number: int) -> int:
    """One round; answers how many messages were put by its end."""
    for put in range(number, number + PER_ROUND):
        queue.put(b"%08d" % put + b"s" * SIZE)
    for message in group.get_many(PER_ROUND, 5.0):
        assert int(message.body[:8]) == number
        number += 1
        message.ack()
    queue.retain()
    return number


def give_back_and_take(queue: Queue, group: Group) -> None:
    """One round in which every message is put in one list and handed out twice."""
    bodies = [b"%08d" % n + b"t" * SIZE for n in range(PER_ROUND)]
    queue.put_many(bodies)
    for message in group.get_many(PER_ROUND, 5.0):
        message.nack()
    again = group.get_many(PER_ROUND, 5.0)
    assert sorted(message.body for message in again) == bodies
    for message in again:
        message.ack()


def opened(folder: Path, format: str) -> Queue:
    path = folder / ("q.bin" if format == "vqs" else f"q-{format}")
    return Queue(path, durability="interval", **FORMATS[format])


def soak(folder: Path, format: str, rounds: int) -> None:
    before: dict[str, int] = {}
    number = 0
    with opened(folder, format) as queue:
        group = queue.group()
        for turn in range(rounds):
            number = put_and_take(queue, group, number)
            assert number == (turn + 1) * PER_ROUND
            if turn == WARM:
                before = used(folder)
        assert_flat(before, used(folder))


def soak_all(folder: Path, minutes: float) -> None:
    """Every format in turn, in one process, with closes between, until the time is over."""
    ends_at = time.monotonic() + 60 * minutes
    numbers = dict.fromkeys(FORMATS, 0)
    before: dict[str, int] = {}
    turns = 0
    while time.monotonic() < ends_at or turns <= WARM:
        for format in FORMATS:
            with opened(folder, format) as queue:
                group = queue.group()
                for _ in range(OPEN_AGAIN):
                    after = put_and_take(queue, group, numbers[format])
                    assert after == numbers[format] + PER_ROUND
                    numbers[format] = after
                    give_back_and_take(queue, group)
        if turns == WARM:
            before = used(folder)
        turns += 1
    assert_flat(before, used(folder), queues=len(FORMATS))
    counting.count("messages", 2 * sum(numbers.values()))
    counting.count("minutes", round(minutes))


@pytest.mark.parametrize("format", FORMATS)
def test_a_run_of_some_rounds_stays_flat(folder: Path, format: str) -> None:
    in_a_small_process(soak, folder, format, ROUNDS)


@pytest.mark.slow
@pytest.mark.timeout(60 * MINUTES + 600)
def test_a_long_run_of_all_formats_stays_flat(folder: Path) -> None:
    in_a_small_process(soak_all, folder, MINUTES)
