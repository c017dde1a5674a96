"""Celery over SQS: retries, late acks, and a worker that is killed in the middle of a task.

Run by itself, with the endpoint in the environment.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
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


def until(done: Path, pattern: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not list(done.glob(pattern)):
        assert time.monotonic() < end, f"no {pattern}"
        time.sleep(0.05)


def main() -> None:
    sys.path.insert(0, str(HERE))
    from celery_app import flaky, slow

    with tempfile.TemporaryDirectory() as folder:
        done = Path(folder)
        slow.delay("slow")
        with worker(done) as first:
            until(done, "slow.begun.*")
            first.kill()
        (done / "go").touch()
        for number in range(5):
            flaky.delay(f"flaky-{number}")
        with worker(done) as second:
            try:
                until(done, "slow")  # The killed worker had not acked it.
                for number in range(5):
                    until(done, f"flaky-{number}")
            finally:
                second.terminate()
        assert len(list(done.glob("slow.begun.*"))) == 2
    print("celery: retried, and done again after a kill")


if __name__ == "__main__":
    main()
