"""Celery over SQS: retries, late acks, and a worker that is killed in the middle of a task.

Run by itself, with the endpoint in the environment.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

HERE = Path(__file__).parent
PATIENCE_S = 120


def worker(done: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "celery", "-A", "celery_app", "worker", "--pool", "solo"]
    quiet = ["--loglevel", "ERROR", "--without-gossip", "--without-mingle", "--without-heartbeat"]
    return subprocess.Popen(
        [*command, *quiet], cwd=HERE, env=os.environ | {"DONE": str(done)},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def until(worker: subprocess.Popen[bytes], done: Path, pattern: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not list(done.glob(pattern)):
        assert time.monotonic() < end, f"no {pattern}"
        with suppress(subprocess.TimeoutExpired):
            raise AssertionError(f"the worker ended: {worker.wait(0.05)}")


def main() -> None:
    sys.path.insert(0, str(HERE))
    from celery_app import flaky, slow

    with tempfile.TemporaryDirectory() as folder:
        done = Path(folder)
        os.mkfifo(done / "go")
        slow.delay("slow")
        with worker(done) as first:
            until(first, done, "slow.begun.*")
            first.kill()
        go = os.open(done / "go", os.O_RDWR)
        os.write(go, b"go\n")
        for number in range(5):
            flaky.delay(f"flaky-{number}")
        with worker(done) as second:
            try:
                until(second, done, "slow")  # The killed worker had not acked it.
                for number in range(5):
                    until(second, done, f"flaky-{number}")
            finally:
                second.terminate()
                os.close(go)
        assert len(list(done.glob("slow.begun.*"))) == 2
    print("celery: retried, and done again after a kill")


if __name__ == "__main__":
    main()
