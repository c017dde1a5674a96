"""Streams whose driver is killed at any step: every message is processed, none twice.

A small stand-in for Spark's driver keeps the two logs of a checkpoint (what a batch is, that it is
done) and writes each batch where a repeated one replaces it, as file sinks do. It is killed inside
calls of the source and between its own steps, and started again.
"""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import Queue, _core
from tests.spark.helpers import bodies, collect, stream

EFFECTS = ("replace_file", "unlink_file", "rename_file", "sync_file", "sync_folder")


class Driver:
    """What Spark does with a source, in the order in which it does it."""

    def __init__(self, path: Path, folder: Path, step: Callable[[], None]) -> None:
        self.reader = stream(path, group="g", startingOffsets="earliest", maxOffsetsPerTrigger=7)
        self.folder, self.step = folder, step
        for name in ("offsets", "commits", "out"):
            (folder / name).mkdir(parents=True, exist_ok=True)

    def log(self, name: str, number: int) -> Path:
        return self.folder / name / f"{number:06d}"

    def run(self, batches: int) -> None:
        done = len(list((self.folder / "commits").iterdir()))
        for number in range(done, done + batches):
            if number == 0:
                start = self.reader.initialOffset()
            else:
                start = json.loads(self.log("offsets", number - 1).read_text())
            self.step()
            if self.log("offsets", number).exists():
                end = json.loads(self.log("offsets", number).read_text())
            else:
                end = self.reader.latestOffset(start, self.reader.getDefaultReadLimit())
                if end == start:
                    return
                self.write(self.log("offsets", number), json.dumps(end))
            self.step()
            rows = collect(self.reader, self.reader.partitions(start, end))
            self.step()
            self.write(self.log("out", number), json.dumps([row["number"] for row in rows]))
            self.step()
            self.write(self.log("commits", number), "")
            self.step()
            self.reader.commit(end)

    def write(self, path: Path, text: str) -> None:
        fresh = path.with_suffix(".tmp")
        fresh.write_text(text)
        fresh.rename(path)


def killed_run(path: Path, folder: Path, left: int) -> int:
    """In a child: runs until the `left`-th step or file effect; answers how it ended."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    def step() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def counted(name: str) -> None:
        real = getattr(_core, name)

        def call(*arguments: object, **named: object) -> object:
            step()
            return real(*arguments, **named)

        setattr(_core, name, call)

    try:
        for name in EFFECTS:
            counted(name)
        Driver(path, folder, step).run(3)
    finally:
        os._exit(0)


def kills(tmp_path: Path, count: int) -> None:
    path, seed = tmp_path / "q", random.Random(5)
    died = number = 0
    for _ in range(count):
        with Queue(path) as queue:
            for _ in range(seed.randrange(9)):
                queue.put(b"%d" % number)
                number += 1
        died += killed_run(path, tmp_path / "checkpoint", seed.randrange(24)) == -signal.SIGKILL
    Driver(path, tmp_path / "checkpoint", lambda: None).run(10**6)
    out = sorted((tmp_path / "checkpoint" / "out").iterdir())
    found = [row for one in out if one.suffix != ".tmp" for row in json.loads(one.read_text())]
    assert found == list(range(len(bodies(path))))
    assert died > count // 3


@pytest.mark.crash
def test_a_stream_killed_at_any_step_processes_each_message_once(tmp_path: Path) -> None:
    kills(tmp_path, 40)


@pytest.mark.slow
@pytest.mark.crash
def test_two_thousand_killed_drivers_process_each_message_once(tmp_path: Path) -> None:
    kills(tmp_path, 2000)
