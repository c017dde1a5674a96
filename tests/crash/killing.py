"""For tests that kill: a small process forks children and kills each after a random time."""

from __future__ import annotations

import mmap
import multiprocessing
import os
import random
import signal
import struct
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests import counting

COUNT = struct.Struct("=Q")
SPAWN = multiprocessing.get_context("spawn")


class Score:
    """A number that a child leaves behind in shared memory, whatever becomes of it."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(4096))
        self.path = path

    def read(self) -> int:
        value: int = COUNT.unpack_from(self.path.read_bytes())[0]
        return value

    def writer(self) -> Callable[[int], None]:
        """For the child."""
        with self.path.open("r+b") as file:
            words = memoryview(mmap.mmap(file.fileno(), 4096)).cast("Q")
        # With one store: `struct` clears the bytes first, and a kill may come in between.
        return lambda value: words.__setitem__(0, value)


def run_and_kill(work: Callable[[Callable[[], None]], None], rng: random.Random) -> None:
    """Forks, lets `work(ready)` run, and kills it: mostly within a few milliseconds after it said
    that it is ready, at times before."""
    here, there = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(here)
            work(lambda: os.close(there))
        finally:
            os._exit(1)
    os.close(there)
    if rng.random() < 0.8:
        os.read(here, 1)
    os.close(here)
    until = time.perf_counter_ns() + rng.randrange(2_000_000)
    while time.perf_counter_ns() < until:
        pass
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    counting.count("kills")


def in_a_small_process(work: Callable[..., None], *arguments: Any) -> None:
    """Runs `work` where forking is cheap; what it raises is raised here, what it counts counts."""
    here, there = SPAWN.Pipe()
    process = SPAWN.Process(target=_report, args=(there, work, arguments), daemon=True)
    process.start()
    there.close()
    try:
        failure, counts = here.recv()
    except EOFError:
        failure, counts = f"the process ended with {process.exitcode}", {}
    finally:
        process.kill()
        process.join()
    for what, many in counts.items():
        counting.count(what, many)
    assert failure is None, failure


def _report(channel: Any, work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    failure = None
    try:
        work(*arguments)
    except BaseException:
        failure = traceback.format_exc()
    channel.send((failure, counting.take()))
