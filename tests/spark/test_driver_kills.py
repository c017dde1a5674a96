"""A real driver, JVM and all, killed in mid-stream and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock import Queue
from tests.spark.helpers import bodies

JOB = """
import sys
import penstock.spark

(folder,) = sys.argv[1:]
spark = penstock.spark.session("kills")
frame = (
    spark.readStream.format("penstock").option("group", "g").option("maxOffsetsPerTrigger", "50")
    .load(f"{folder}/in")
)
query = (
    frame.select("body").writeStream.format("penstock").option("path", f"{folder}/out")
    .option("checkpointLocation", f"{folder}/checkpoint")
    .trigger(availableNow=True).start()
)
query.awaitTermination()
"""


def start(folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", JOB, str(folder)], start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def wait_for(folder: Path, count: int, job: subprocess.Popen[bytes]) -> None:
    """Until the target holds that many messages; by the queue's own waiting, not by sleeping."""
    with Queue(folder / "out") as queue:
        group = queue.group(f"watch-{count}", ack="auto")
        seen = 0
        while seen < count and job.poll() is None:
            seen += len(group.get_many(1000, 1.0))


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.crash
@pytest.mark.timeout(3600)
def test_ten_killed_drivers_and_every_message_lands_once(tmp_path: Path) -> None:
    with Queue(tmp_path / "in") as queue:
        queue.put_many([b"%d" % number for number in range(2000)])
    for count in range(100, 1100, 100):
        job = start(tmp_path)
        wait_for(tmp_path, count, job)
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
    assert start(tmp_path).wait(240) == 0
    assert bodies(tmp_path / "out") == bodies(tmp_path / "in")
