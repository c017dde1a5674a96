"""From edges to a cluster: queues on several hosts, shipped to object storage, read by Spark.

Each edge is a process in a mount namespace of its own, whose queue lies on a disk that nobody else
sees, under the same path everywhere. Between them and the cluster there is an S3 server alone.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock import Queue
from tests.spark import cluster

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]

EDGES = ("berlin", "lima", "pune")
ROUND = 2000
EDGE = """
import json, sys
import penstock
from penstock.spark.ship import ship
name, path, url = sys.argv[1:]
queue = penstock.Queue(path, segment_bytes=1 << 18, retention_bytes=1 << 18)
queue.group("shipping")      # retention waits until a segment was shipped
for line in sys.stdin:
    first, count = map(int, line.split())
    for number in range(first, first + count):
        queue.put(b"%s %d " % (name.encode(), number) + bytes(500), tag=name)
    queue.sync()
    before = queue.trim()
    facts = ship(path, url, group="shipping", whole=True)
    queue.trim()
    answer = {"trimmed_early": before, "missing": facts.get("missing"), "left": len(queue)}
    print(json.dumps(answer), flush=True)
"""
JOB = """
import json, sys
import penstock.spark
url, folder, bucket = sys.argv[1:]
spark = penstock.spark.session(
    "edges", spark_master=url, spark_executor_memory="512m", spark_driver_memory="512m",
    spark_executor_cores="1",
    **{"spark.executor.extraJavaOptions": "LEAN", "spark.driver.extraJavaOptions": "LEAN"},
)
every = f"s3://{bucket}/*/orders"
for line in sys.stdin:
    counts = penstock.spark.sql(spark, "SELECT tag, count(*) n FROM {q} GROUP BY tag", q=every)
    stream = spark.readStream.format("penstock").option("columns", "queue,offset,tag").load(every)
    query = (
        stream.writeStream.format("parquet").option("path", f"{folder}/lake")
        .option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start()
    )
    query.awaitTermination()
    back = counts.selectExpr("cast(to_json(struct(tag, n)) as binary) body", "tag")
    (back.write.format("penstock").mode("append").option("stagingDir", f"s3://{bucket}/staging")
        .save(f"{folder}/results"))
    lake = spark.read.parquet(f"{folder}/lake")
    print(json.dumps({
        "counts": {row.tag: row.n for row in counts.collect()}, "rows": lake.count(),
        "different": lake.distinct().count(),
    }), flush=True)
""".replace("LEAN", cluster.LEAN)


@contextmanager
def s3_server(folder: Path) -> Iterator[str]:
    """Its address, once it answers; it chooses a free port."""
    pytest.importorskip("moto.server")
    with (folder / "s3.log").open("wb") as log:
        server = subprocess.Popen(
            [sys.executable, "-u", "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"],
            stdout=log, stderr=log,
        )  # fmt: skip
    try:
        yield cluster._said(folder / "s3.log", rb"Running on (http://\S+)", server)
    finally:
        server.kill()
        server.wait()


@contextmanager
def edge(name: str, disk: Path, bucket: str) -> Iterator[subprocess.Popen[str]]:
    mounted = f'mount -t tmpfs edge {disk} && exec "$@"'
    with subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", mounted, "sh", sys.executable, "-c", EDGE,
         name, str(disk / "orders"), f"s3://{bucket}/{name}/orders"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.kill()


def ask(process: subprocess.Popen[str], line: str, log: Path | None = None) -> dict[str, Any]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()
    answer = process.stdout.readline()
    said = "" if answer or log is None else log.read_text(errors="replace")[-4000:]
    assert answer, f"it ended with {process.wait()}: {said}"
    found: dict[str, Any] = json.loads(answer)
    return found


def test_three_edges_a_bucket_and_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3fs = pytest.importorskip("s3fs")
    if os.geteuid() != 0:
        pytest.skip("mount namespaces need root")
    disk = tmp_path / "disk"
    disk.mkdir()
    with ExitStack() as stack:
        server = stack.enter_context(s3_server(tmp_path))
        for key, value in {
            "AWS_ENDPOINT_URL": re.sub(r"/$", "", server), "AWS_ACCESS_KEY_ID": "edge",
            "AWS_SECRET_ACCESS_KEY": "edge", "AWS_DEFAULT_REGION": "us-east-1",
        }.items():  # fmt: skip
            monkeypatch.setenv(key, value)
        s3fs.S3FileSystem(skip_instance_cache=True).mkdir("spool")
        edges = {name: stack.enter_context(edge(name, disk, "spool")) for name in EDGES}
        spark = stack.enter_context(cluster.running(tmp_path))
        log = stack.enter_context((tmp_path / "job.log").open("wb"))
        job = stack.enter_context(subprocess.Popen(
            [sys.executable, "-c", JOB, spark.url, str(tmp_path), "spool"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
        ))  # fmt: skip
        stack.callback(job.kill)
        for turn in (1, 2):
            for process in edges.values():
                done = ask(process, f"{(turn - 1) * ROUND} {ROUND}")
                assert done["trimmed_early"] == 0  # Not before it was shipped.
                assert not done["missing"]
                assert done["left"] < ROUND * turn  # What was shipped is no longer needed here.
            found = ask(job, "go", tmp_path / "job.log")
            assert found["counts"] == dict.fromkeys(EDGES, ROUND * turn)
            assert found["rows"] == found["different"] == ROUND * turn * len(EDGES)
    with Queue(tmp_path / "results", read_only=True) as queue:
        assert sorted(m.tag or "" for m in queue.scan()) == sorted([*EDGES, *EDGES])
    assert not (disk / "orders").exists()  # Nobody but an edge ever saw its disk.
