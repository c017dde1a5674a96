"""kill -9 of a program that puts and takes, in every format but our own (`test_kill.py`).

Nothing that `put` returned for is lost, nothing that was taken comes again, every opening is clean.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.crash.killing import Score, in_a_small_process, run_and_kill
from tests.opening import open_queue

pytestmark = pytest.mark.crash
SEED = int(os.environ.get("PENSTOCK_SEED", "20261115"))
MEMORY = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else Path("/tmp")
MOST_AT_ONCE = 8
KINDS: dict[str, dict[str, Any]] = {
    "vqs": {"format": "vqs", "max_bytes": 1 << 16},
    "vqs-stage4": {"format": "vqs", "layout": "stage4", "max_bytes": 1 << 16},
    "vqs-always": {"format": "vqs", "max_bytes": 1 << 16, "durability": "always"},
    "mfq": {"format": "mfq", "segment_bytes": 16384},
    "mfq-always": {"format": "mfq", "segment_bytes": 16384, "durability": "always"},
    "zbus": {"format": "zbus"},
    "zbus-crc-always": {"format": "zbus", "layout": "crc", "durability": "always"},
    "beats": {"format": "beats"},
    "beats-always": {"format": "beats", "durability": "always"},
    "beats-stream": {"format": "beats", "layout": "2-released-lz4"},
}


@pytest.fixture
def folder() -> Iterator[Path]:
    path = MEMORY / f"penstock-kill-formats-{os.getpid()}"
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    yield path
    shutil.rmtree(path)


def body_of(number: int, size: int) -> bytes:
    return b"%08d" % number + bytes([number % 251]) * size


def number_of(body: bytes) -> int:
    number = int(body[:8])
    assert body == body_of(number, len(body) - 8)
    return number


def put_and_take(
    ready: Callable[[], None], path: Path, put: Score, taken: Score, start: int, seed: int,
    options: Any,
) -> None:  # fmt: skip
    """The scores say how many puts have returned, and up to where messages were taken."""
    note_put, note_taken, rng = put.writer(), taken.writer(), random.Random(seed)
    queue = open_queue(path, **options)
    group = queue.group("g", ack="auto")
    ready()
    number = start
    for _ in range(5000):  # Should nobody kill it, it ends by itself.
        count = rng.choice((1, 1, 1, 5))
        sizes = [rng.choice((1, 30, 200, 900, 4000)) for _ in range(count)]
        bodies = [body_of(number + index, size) for index, size in enumerate(sizes)]
        if count == 1:
            queue.put(bodies[0])
        else:
            queue.put_many(bodies)
        number += count
        note_put(number)
        if found := group.get_many(rng.choice((1, 3, MOST_AT_ONCE))):
            note_taken(number_of(found[-1].body) + 1)


def check(path: Path, start: int, promised: int, taken: int, options: Any) -> int:
    """Everything promised is there; takes the rest and answers how many there were ever."""
    with open_queue(path, **options) as queue:
        assert queue.stats()["dropped"] == []
        there = [number_of(message.body) for message in queue.scan()]
        # An empty ring knows how many it held; an empty log was purged here, at the last check.
        ever = queue.offsets().next_number if queue.store.capabilities.ring else start
        count = there[-1] + 1 if there else ever
        if queue.store.capabilities.deletes_consumed:  # While the scan goes on, too.
            there = [number for number in there if number >= taken]
        assert there == list(range(count - len(there), count))
        assert count >= promised, f"{count} there, {promised} promised"
        group = queue.group("g", ack="auto")
        left: list[int] = []
        while found := group.get_many(100):
            left += [number_of(message.body) for message in found]
        assert left == list(range(count - len(left), count))
        first = count - len(left)
        assert taken <= first, f"{taken} were taken, and {first} came again"
        most = max(taken, start) + MOST_AT_ONCE
        assert first <= most, f"{first} of {count}: {taken} were taken, {start} at the start"
        if len(queue.store.segments()) > 20:
            queue.purge()
        return count


def kill_often(folder: Path, times: int, options: Any) -> None:
    print(f"seed {SEED}")
    rng, put, taken = random.Random(SEED), Score(folder / "put"), Score(folder / "taken")
    is_file = options["format"] == "vqs" and "layout" not in options
    path, there = folder / ("queue.bin" if is_file else "queue"), 0
    for turn in range(times):
        work = partial(
            put_and_take, path=path, put=put, taken=taken, start=there,
            seed=rng.randrange(2**32), options=options,
        )  # fmt: skip
        run_and_kill(work, rng)
        there = check(path, there, put.read(), taken.read(), options)
        if turn % 50 == 0:
            with open_queue(path, **options) as queue:
                assert queue.verify().is_ok
    assert there > times


@pytest.mark.parametrize("kind", KINDS)
def test_a_program_that_is_killed_loses_nothing(folder: Path, kind: str) -> None:
    in_a_small_process(kill_often, folder, 30, KINDS[kind])


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_program_killed_three_thousand_times_loses_nothing(folder: Path, kind: str) -> None:
    in_a_small_process(kill_often, folder, 3000, KINDS[kind])
