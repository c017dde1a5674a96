"""Workers are killed at random under load, parents and children of a prefork pool.

With late acks no task is lost and none is acked twice. With early acks none is run twice: our step
in the worker acks each before it begins (`penstock.kombu.early_acks`).
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("celery")

import penstock

ROOT = Path(__file__).parents[2]
DEADLINE_S = 240.0
NAP = threading.Event()


class Workers:
    """Some workers that are always there again."""

    def __init__(self, folder: Path, *, late: bool, pool: str, count: int) -> None:
        told = {"KILLS_FOLDER": str(folder), "KILLS_LATE": "1" if late else "0"}
        paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        self._environment = os.environ | told | {"PYTHONPATH": paths}
        self._pool, self._log = pool, (folder / "workers.log").open("ab")
        self.running = [self._start() for _ in range(count)]

    def _start(self) -> subprocess.Popen[bytes]:
        command = [
            sys.executable, "-m", "celery", "-A", "tests.tasks.kills_app", "worker", "-l", "ERROR",
            "-P", self._pool, "-c", "2", "--without-gossip", "--without-mingle",
            "--without-heartbeat", "-n", f"{random.randrange(1 << 40):x}@%h",
        ]  # fmt: skip
        log = self._log
        return subprocess.Popen(command, env=self._environment, cwd=ROOT, stdout=log, stderr=log)

    def kill_one(self, whom: str) -> bool:
        at = random.randrange(len(self.running))
        worker = self.running[at]
        if whom == "child":
            listed = Path(f"/proc/{worker.pid}/task/{worker.pid}/children").read_text().split()
            if not listed:
                return False
            with suppress(ProcessLookupError):
                os.kill(int(random.choice(listed)), signal.SIGKILL)
            return True
        worker.kill()
        worker.wait()
        self.running[at] = self._start()
        return True

    def stop(self) -> None:
        for worker in self.running:
            worker.terminate()
        for worker in self.running:
            try:
                worker.wait(30)
            except subprocess.TimeoutExpired:
                worker.kill()
        self._log.close()


def counted(folder: Path) -> tuple[Counter[int], Counter[int]]:
    began: Counter[int] = Counter()
    done: Counter[int] = Counter()
    if (folder / "log").exists():
        for line in (folder / "log").read_text().splitlines():
            word, number = line.split()
            (began if word == "began" else done)[int(number)] += 1
    return began, done


def run(folder: Path, *, late: bool, pool: str, whom: list[str], tasks: int, workers: int) -> None:
    told = {"KILLS_FOLDER": str(folder), "KILLS_LATE": "1" if late else "0"}
    code = f"from tests.tasks.kills_app import task\nfor n in range({tasks}): task.delay(n)"
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | told | {"PYTHONPATH": paths}, cwd=ROOT, check=True,
    )  # fmt: skip
    crew = Workers(folder, late=late, pool=pool, count=workers)
    until = time.monotonic() + DEADLINE_S + 3.0 * len(whom)
    left = list(whom)
    try:
        with penstock.Queue(folder / "jobs" / "celery", create=False) as queue:
            group, seen = queue.group(), 0
            while time.monotonic() < until:
                counts = group.stats()
                out = counts["leased"] + counts["ready"] + counts["delayed"] + group.lag
                if out == 0 and not left:
                    break
                began = sum(counted(folder)[0].values())
                # A kill for every few tasks that were begun: the load goes on between two.
                if left and began > seen and crew.kill_one(left[-1]):
                    left.pop()
                    seen = began + tasks // (2 * len(whom))
                elif left and out == 0:
                    break

                NAP.wait(0.05)
            assert group.stats()["acked"] == tasks, "a task was lost, or acked twice"
    finally:
        crew.stop()
    assert len(left) <= len(whom) // 2, "too few kills: the tasks were done before"
    began_at, done = counted(folder)
    if late:
        assert set(done) == set(range(tasks)), "a task was lost"
    else:
        twice = [number for number, times in began_at.items() if times > 1]
        assert not twice, "a task was run twice"


@pytest.mark.crash
def test_killed_workers_lose_no_task_with_late_acks(tmp_path: Path) -> None:
    run(tmp_path, late=True, pool="prefork", whom=["parent", "child"], tasks=60, workers=2)


@pytest.mark.slow
@pytest.mark.crash
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("late", "pool", "whom"),
    [
        (True, "prefork", ["parent", "child"] * 50),
        (False, "prefork", ["parent", "child"] * 25),
        (False, "solo", ["parent"] * 50),
    ],
)
def test_two_hundred_kills(tmp_path: Path, late: bool, pool: str, whom: list[str]) -> None:
    run(tmp_path, late=late, pool=pool, whom=whom, tasks=200 * len(whom), workers=2)
