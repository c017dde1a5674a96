"""With early acks a task is acked before it begins, so a killed worker leaves none to run again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("celery")

ROOT = Path(__file__).parents[2]
WORKER = """
import os, signal, sys
from celery import Celery
import penstock.kombu

folder, is_first = sys.argv[1], sys.argv[2] == "first"
app = Celery("kills", broker="penstock://" + folder + "/jobs")
app.conf.update(task_ignore_result=True, task_acks_late=False, worker_prefetch_multiplier=4,
                broker_connection_retry_on_startup=True)
parent = os.getpid()

@app.task(name="kill")
def kill(number):
    log = os.open(folder + "/log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(log, b"%d " % number)
    os.close(log)
    if is_first:
        os.kill(parent, signal.SIGKILL)  # As its first act, before the worker hears that it began.
        os._exit(0)

@app.task(name="end")
def end():
    os.kill(parent, signal.SIGTERM)

if is_first:
    for number in range(3):
        kill.delay(number)
else:
    end.delay()
app.worker_main(["worker", "-P", sys.argv[3], "-c", "1", "-l", "ERROR", "--without-gossip",
                 "--without-mingle", "--without-heartbeat"])
"""


@pytest.mark.crash
@pytest.mark.parametrize(
    "pool", ["prefork", "solo", pytest.param("threads", marks=pytest.mark.slow)]
)
def test_a_worker_killed_in_a_task_leaves_the_others_and_not_that_one(
    tmp_path: Path, pool: str
) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    for turn in ("first", "second"):
        command = [sys.executable, "-W", "ignore", "-c", WORKER, str(tmp_path), turn, pool]
        subprocess.run(command, env=environment, check=False, timeout=60, capture_output=True)
    assert (tmp_path / "log").read_text().split() == ["0", "1", "2"]
