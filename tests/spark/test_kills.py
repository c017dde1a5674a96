"""Source and sink, killed at every step of a stream while others put into the target.

A small stand-in for Spark's driver keeps the two logs of a checkpoint (what a batch is, that it is
done), reads with the reader class and writes with the writer class, in the order in which Spark
does. Child after child is killed: before or after a named step, or at any instant inside the
append. Each goes on where the one before it died. In the end the target has every row of the
source once, in order, and every message of the two producers that put meanwhile.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import Queue
from penstock.spark.versions import HAS_LIMITS
from tests.crash.killing import in_a_small_process
from tests.spark.helpers import latest, stream, stream_writer
from tests.spark.killing import INSTANT, OTHERS, Producer, Step, each_once, hook_effects, stop_all

LIMIT = {"maxOffsetsPerTrigger": 7} if HAS_LIMITS else {}
STEPS = (
    "ask where it begins", "remember the start", "ask how far it goes", "log the offsets",
    "plan the tasks", "read a task", "stage a task", "commit the batch", "append the rows",
    "rows are appended", "write the ledger", "ledger is written", "remove the note",
    "note is removed", "sweep a staged file", "batch is committed", "log the commit",
    "tell the source", "source is told",
)  # fmt: skip
SMALL = 1 << 20
ROOM = 4 << 30


class Driver:
    """What Spark does with a source and a sink, in the order in which it does it."""

    def __init__(self, folder: Path, step: Step) -> None:
        self.folder, self.step = folder, step
        self.reader = stream(
            folder / "source", group="g", columns="body", **LIMIT,
            targetPartitionBytes=200,
        )  # fmt: skip
        for name in ("offsets", "commits"):
            (folder / name).mkdir(parents=True, exist_ok=True)

    def log(self, name: str, number: int) -> Path:
        return self.folder / name / f"{number:06d}"

    def run(self, batches: int) -> None:
        done = len(list((self.folder / "commits").iterdir()))
        for number in range(done, done + batches):
            if not self.batch(number):
                return

    def batch(self, number: int) -> bool:
        """One micro-batch; whether there was one."""
        if number == 0:
            self.step("ask where it begins")
            start = self.reader.initialOffset()
        else:
            start = json.loads(self.log("offsets", number - 1).read_text())
        end = self.end_of(number, start)
        if end == start:
            return False
        self.step("plan the tasks")
        tasks = self.reader.partitions(start, end)
        writer = stream_writer(self.folder / "target")
        staged: list[Any] = []
        for task in tasks:
            self.step("read a task")
            staged.append(writer.write(self.reader.read(task)))
        self.step("commit the batch")
        writer.commit(staged, number)
        self.step("batch is committed")
        self.step("log the commit")
        self.write(self.log("commits", number), "")
        self.step("tell the source")
        self.reader.commit(end)
        self.step("source is told")
        return True

    def end_of(self, number: int, start: dict[str, Any]) -> dict[str, Any]:
        path = self.log("offsets", number)
        if not path.exists():
            self.step("ask how far it goes")
            end = latest(self.reader, start)
            if end == start:
                return end
            self.step("log the offsets")
            self.write(path, json.dumps(end))
        found: dict[str, Any] = json.loads(path.read_text())
        return found

    def write(self, path: Path, text: str) -> None:
        fresh = self.folder / "fresh"
        fresh.write_text(text)
        fresh.rename(path)


def child_that_dies(folder: Path, at: str, later: int, after_s: float) -> int:
    """Runs a driver until it comes to a step for the `later`-th time; answers how it ended."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    def step(name: str) -> None:
        nonlocal later
        later -= name == at
        if name == at and later < 0:
            if name != INSTANT:
                os.kill(os.getpid(), signal.SIGKILL)
            # Not caught, the alarm ends the process wherever it is, like a kill from outside.
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, after_s)

    try:
        hook_effects(step)
        Driver(folder, step).run(later + 2)
    except BaseException:
        (folder / "error").write_text(traceback.format_exc())
        os._exit(1)
    os._exit(0)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """In memory where there is such a place: killing loses no page, so nothing is lost by it."""
    memory = Path("/dev/shm")
    has_room = os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > ROOM
    found = Path(tempfile.mkdtemp(prefix="penstock-kills-", dir=memory)) if has_room else tmp_path
    yield found
    shutil.rmtree(found)


def kills(folder: Path, count: int, seed: int) -> None:
    """So many children die, at every step; then all that was to land has landed, once."""
    Queue(folder / "target", segment_bytes=SMALL).close()
    others = [Producer(folder / "target", name) for name in OTHERS]
    try:
        died = kill_children(folder, count, random.Random(seed), others)
    finally:
        counts = stop_all(others)
    last = Driver(folder, lambda name: None)
    last.run(10**6)
    last.reader.stop()
    each_once(folder / "source", folder / "target", counts)
    assert died.total() >= count
    rare = {"ask where it begins", "remember the start"}
    assert {name for name in STEPS if not died[name]} <= rare
    assert died[INSTANT] > 0


def kill_children(
    folder: Path, count: int, chance: random.Random, others: list[Producer]
) -> Counter[str]:
    died, number = Counter[str](), 0
    with Queue(folder / "source", segment_bytes=SMALL) as queue:
        for tries in range(4 * count):
            if died.total() >= count:
                break
            fresh = [b"row %d" % n for n in range(number, number + chance.randrange(1, 8))]
            queue.put_many(fresh)
            queue.sync()
            number += len(fresh)
            for other in others:
                other.put()
            at = (*STEPS, INSTANT, INSTANT)[tries % (len(STEPS) + 2)]
            ended = child_that_dies(folder, at, chance.randrange(2), chance.uniform(1e-5, 1e-3))
            if ended not in (0, -signal.SIGKILL, -signal.SIGALRM):
                pytest.fail(f"{at}: exit code {ended}\n{(folder / 'error').read_text()}")
            died[at] += ended < 0
    return died


@pytest.mark.crash
@pytest.mark.parametrize("seed", range(2))
def test_a_stream_killed_at_every_step_lands_each_row_once(folder: Path, seed: int) -> None:
    in_a_small_process(kills, folder, 300, seed)


@pytest.mark.slow
@pytest.mark.crash
@pytest.mark.timeout(3600)
def test_ten_thousand_killed_streams_land_each_row_once(folder: Path) -> None:
    in_a_small_process(kills, folder, 10_000, 99)
