"""Real drivers, JVM and all, killed at the steps of a stream and started again.

Sometimes only the JVM dies, and what its Python processes were doing they may still finish, beside
the driver that comes next. Two other processes put into the target meanwhile. Starting a driver is
what costs: the next one starts while one runs to its death.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from penstock import Queue
from penstock.spark.versions import HAS_LIMITS
from tests.spark import armed, cluster
from tests.spark.killing import OTHERS, Producer, each_once, stop_all

pytestmark = [pytest.mark.spark, pytest.mark.crash]

ROOT = Path(__file__).parent.parent.parent
JOB = "import sys; from tests.spark import armed; armed.main(sys.argv[1])"
ROWS = 30
"""Per driver: a micro-batch and a half, so that each has a batch to repeat or a second one."""
FEW = ("rows are appended|1|all", "ledger is written|1|jvm")
"""Where a row could be lost or doubled; `test_kills` tries every step without a JVM."""
NOBODY = "never|1|all"
# Before limits there is one micro-batch for each driver: no step comes a second time, and the
# source, which is told of a batch when the next one is planned, is told nothing.
# And a driver that finds a batch to repeat does that one alone, and does not ask how far it goes:
# one that does not die comes before the first step. Another one comes after each JVM that dies
# alone: its Python processes may still land the batch, and then there are no rows to append.
MANY = tuple(
    order
    for times in ((1, 2) if HAS_LIMITS else (1,))
    for what in ("all", "jvm")
    for name in (armed.STEPS[1:] if HAS_LIMITS else ("never", *armed.STEPS[1:-2]))
    for order in (f"{name}|{times}|{what}", *((NOBODY,) * (what == "jvm" and not HAS_LIMITS)))
)


LAST = (NOBODY,) * (1 if HAS_LIMITS else 2)
"""Who does the rest."""


@contextmanager
def driver(folder: Path, order: str, number: int) -> Iterator[subprocess.Popen[bytes]]:
    """A driver that has its session, or soon will, and waits for a line."""
    mine = folder / f"driver{number}"
    mine.mkdir()
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(paths), "SPARK_HOME": str(folder / "home"),
        armed.ORDER: f"{order}|{mine}",
    }  # fmt: skip
    with (mine / "log").open("wb") as log:
        job = subprocess.Popen(
            [sys.executable, "-c", JOB, str(folder)], cwd=mine, env=environment,
            stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    try:
        yield job
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
        job.communicate()


def kill_drivers(folder: Path, orders: tuple[str, ...]) -> None:
    for queue in ("in", "out"):
        Queue(folder / queue).close()
    cluster.lean_home(folder)
    others = [Producer(folder / "out", name) for name in OTHERS]
    try:
        with ExitStack() as stack, Queue(folder / "in") as source:
            everyone = (*orders, *LAST)
            jobs = [stack.enter_context(driver(folder, orders[0], 0))]
            for number, order in enumerate(everyone):
                if number + 1 < len(everyone):
                    following = driver(folder, everyone[number + 1], number + 1)
                    jobs.append(stack.enter_context(following))
                first = number * ROWS
                source.put_many([b"row %d" % n for n in range(first, first + ROWS)])
                for other in others:
                    other.put()
                jobs[number].communicate(b"go\n")
                ended(folder / f"driver{number}", order, jobs[number].returncode)
    finally:
        counts = stop_all(others)
    each_once(folder / "in", folder / "out", counts)


def ended(mine: Path, order: str, code: int) -> None:
    """The driver died where it was told to; the last one did all that was left."""
    name = order.partition("|")[0]
    died = (mine / "died").read_text().splitlines() if (mine / "died").exists() else []
    is_right = (died, code) == ([], 0) if name == "never" else died == [name] and code != 0
    assert is_right, f"{order}: died at {died}, exit {code}\n{(mine / 'log').read_text()[-3000:]}"


@pytest.mark.timeout(900)
def test_two_killed_drivers_and_every_row_lands_once(tmp_path: Path) -> None:
    kill_drivers(tmp_path, FEW)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_drivers_killed_at_every_step_and_every_row_lands_once(tmp_path: Path) -> None:
    kill_drivers(tmp_path, MANY)
