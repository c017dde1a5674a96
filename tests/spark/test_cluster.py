"""Source, sink and a pipeline on a real cluster, while its executors are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock import Queue
from tests.spark import cluster
from tests.spark.helpers import bodies, fill
from tests.spark.killing import OTHERS, Producer, each_once, stop_all

pytestmark = [pytest.mark.spark, pytest.mark.crash]

JOB = """
import json, sys
import penstock.spark
from penstock.spark import pipelines

url, folder = sys.argv[1:]
spark = penstock.spark.session(
    "cluster", spark_master=url, spark_executor_memory="512m", spark_driver_memory="512m",
    spark_executor_cores="1", spark_task_maxFailures="12",
    **{"spark.executor.extraJavaOptions": "LEAN", "spark.driver.extraJavaOptions": "LEAN"},
)
table = spark.read.format("penstock").option("minPartitions", "4").load(f"{folder}/small")
table.write.format("penstock").mode("append").save(f"{folder}/copy")
request = pipelines.Request([f"{folder}/small"], to=f"{folder}/bronze")
bronze = pipelines.run(spark, "bronze", request, f"{folder}/runs")
print(json.dumps({"rows": table.count(), "bronze": bronze["rows"]}), flush=True)
frame = spark.readStream.format("penstock").option("maxOffsetsPerTrigger", "100")
query = (
    frame.option("minPartitions", "4").option("group", "g").load(f"{folder}/in").select("body")
    .writeStream.format("penstock").option("path", f"{folder}/out")
    .option("checkpointLocation", f"{folder}/checkpoint").start()
)
sys.stdin.readline()
query.stop()
""".replace("LEAN", cluster.LEAN)


KILLS = 1


def test_a_cluster_reads_writes_and_survives_a_dead_executor(tmp_path: Path) -> None:
    fill(tmp_path / "small", 200)
    for queue in ("in", "out"):
        Queue(tmp_path / queue).close()
    others = [Producer(tmp_path / "out", who) for who in OTHERS]
    try:
        with cluster.running(tmp_path) as spark:
            run_and_kill(spark, tmp_path, others)
    finally:
        counts = stop_all(others)
    assert bodies(tmp_path / "copy") == bodies(tmp_path / "small")
    each_once(tmp_path / "in", tmp_path / "out", counts)


def run_and_kill(spark: cluster.Cluster, folder: Path, others: list[Producer]) -> None:
    with (folder / "job.log").open("wb") as log, subprocess.Popen(
        [sys.executable, "-c", JOB, spark.url, str(folder)], start_new_session=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
    ) as job:  # fmt: skip
        try:
            follow(spark, folder, others, job)
        finally:
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)


def follow(
    spark: cluster.Cluster, folder: Path, others: list[Producer], job: subprocess.Popen[bytes]
) -> None:
    """Feeds the job, and kills an executor each time that it has something to do."""
    assert job.stdout is not None
    first = job.stdout.readline()
    assert first, (folder / "job.log").read_text()[-3000:]
    assert json.loads(first) == {"rows": 200, "bronze": 200}
    killed: list[int] = []
    total = landed = 0
    with Queue(folder / "in") as source, Queue(folder / "out") as target:
        group = target.group("watch", ack="auto")
        while len(killed) < KILLS or landed < total:
            if landed == total:
                fresh = [pid for pid in spark.executors() if pid not in killed]
                source.put_many([b"row %d" % number for number in range(total, total + 200)])
                total += 200
                for other in others:
                    other.put()
                for pid in fresh[:1]:
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)
            found = group.get_many(1000, 1.0)
            landed += sum(message.body.startswith(b"row") for message in found)
            assert job.poll() is None, (folder / "job.log").read_text()[-3000:]
    job.communicate(b"stop\n")
    assert job.returncode == 0
