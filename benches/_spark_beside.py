"""Queues beside the tables and the broker that a data engineer would compare them with.

Run as a program by `tools/spark_figures.py`, in an environment whose PySpark has a Kafka connector:
`python -m benches._spark_beside SIZE RESULT [JARS]`. Everything is measured in one session, and the
formats take turns. The broker's CPU time counts as its own, and what a format does not sync by
itself is synced before the clock stops. Bodies are text, since two formats hold nothing else.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from typing import Any

import pyspark
from pyspark.sql import functions as F

import penstock.spark
from benches.harness import machine, scratch
from benches.spark import TICK
from penstock import Queue

ROUNDS = 5
SEGMENTS = (10, 100, 1_000, 10_000)
SEGMENT_BYTES = 16384
BROKER = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{second}
listeners=PLAINTEXT://127.0.0.1:{first},CONTROLLER://127.0.0.1:{second}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={folder}
num.partitions=2
offsets.topic.replication.factor=1
log.segment.bytes=67108864
"""


@dataclass(frozen=True)
class Cost:
    """CPU seconds of all processes and of the Python ones among them, and wall seconds."""

    cpu_s: float
    python_s: float
    wall_s: float


def spent_s() -> dict[int, tuple[float, bool]]:
    """CPU seconds of this process and of each that descends from it, and whether it is Python's."""
    children: dict[int, list[int]] = {}
    spent: dict[int, tuple[float, bool]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                name, _, rest = (entry / "stat").read_text().rpartition(")")
            except OSError:
                continue
            fields = rest.split()
            children.setdefault(int(fields[1]), []).append(int(entry.name))
            seconds = (int(fields[11]) + int(fields[12])) / TICK
            spent[int(entry.name)] = seconds, "python" in name
    waiting, found = [os.getpid()], {}
    while waiting:
        pid = waiting.pop()
        if pid in spent:
            found[pid] = spent[pid]
        waiting += children.get(pid, [])
    return found


def between(start: dict[int, tuple[float, bool]]) -> tuple[float, float]:
    """CPU seconds since `start`, in all and in Python. A worker that ends on the way is missed:
    they stay for a minute."""
    total, python = 0.0, 0.0
    for pid, (seconds, is_python) in spent_s().items():
        seconds -= start.get(pid, (0.0, False))[0]
        total, python = total + seconds, python + seconds * is_python
    return total, python


def cost(work: Callable[[], object]) -> Cost:
    """What one work costs by itself."""
    return costs([""], lambda _: work())[""]


def costs(
    names: list[str], work: Callable[[str], object], before: Callable[[str], object] = str
) -> dict[str, Cost]:
    """The best of some rounds, each figure by itself; the first round warms up.

    The names take turns, so that the machine's other work, and the JVM's compiling of what they
    have in common, comes to all of them.
    """
    found: dict[str, list[tuple[float, ...]]] = {name: [] for name in names}
    for _ in range(1 + ROUNDS):
        for name in names:
            before(name)
            start, began = spent_s(), time.perf_counter()
            work(name)
            wall = time.perf_counter() - began
            found[name].append((*between(start), wall))
    return {
        name: Cost(*(min(values) for values in zip(*rounds[1:], strict=True)))
        for name, rounds in found.items()
    }


# ── the broker ─────────────────────────────────────────────────────────────────────────────


@contextmanager
def broker(jars: Path, folder: Path) -> Iterator[str]:
    """A Kafka broker of one process; its address."""
    first, second = free_port(), free_port()
    settings = folder / "server.properties"
    settings.write_text(BROKER.format(first=first, second=second, folder=folder / "kafka"))
    of_spark = Path(pyspark.__path__[0]) / "jars"
    java = ["java", "-Xmx1g", "-cp", f"{jars}/*:{of_spark}/*"]
    name = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    making = [*java, "kafka.tools.StorageTool", "format", "-t", name, "-c", str(settings)]
    subprocess.run(making, check=True, **quiet)
    with subprocess.Popen([*java, "kafka.Kafka", str(settings)], **quiet) as process:
        try:
            until_heard(first)
            yield f"127.0.0.1:{first}"
        finally:
            process.terminate()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def until_heard(port: int) -> None:
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise SystemExit("the broker does not answer")


# ── scans and sinks ────────────────────────────────────────────────────────────────────────


class Beside:
    """The same rows, written and read in every format."""

    def __init__(self, spark: Any, folder: Path, body: int, count: int, address: str) -> None:
        self.spark, self.folder, self.body, self.address = spark, folder, body, address
        text = f"concat(lpad(id, 10, '0'), repeat('x', {body - 10})) AS body"
        self.rows = spark.range(0, count, 1, 2).selectExpr(text).cache()
        self.rows.count()
        self.topic = f"bodies-{body}"

    def names(self) -> list[str]:
        return ["penstock", "parquet", "text", "json", *(["kafka"] if self.address else [])]

    def path(self, name: str) -> Path:
        return self.folder / f"{name}-{self.body}"

    def write(self, name: str) -> None:
        if name == "kafka":
            (self.rows.selectExpr("body AS value").write.format("kafka").option("topic", self.topic)
             .option("kafka.bootstrap.servers", self.address).save())  # fmt: skip
            return
        frame = self.rows.withColumnRenamed("body", "value") if name == "text" else self.rows
        writer = frame.write.format(name).mode("append")
        if name == "penstock":
            writer.save(str(self.path(name)))
            return
        writer.option("compression", "none").save(str(self.path(name)))
        sync_all(self.path(name))

    def clear(self, name: str) -> None:
        rmtree(self.path(name), ignore_errors=True)
        if name == "kafka":
            self.topic = f"bodies-{self.body}-{uuid.uuid4().hex[:8]}"

    def read(self, name: str) -> Any:
        if name == "kafka":
            reader = self.spark.read.format("kafka").option("subscribe", self.topic)
            reader = reader.option("kafka.bootstrap.servers", self.address)
            return reader.load().selectExpr("value AS body")
        if name == "penstock":
            return penstock.spark.table(self.spark, str(self.path(name)), "body")
        reader = self.spark.read.schema("body string") if name == "json" else self.spark.read
        frame = reader.format(name).load(str(self.path(name)))
        return frame.withColumnRenamed("value", "body") if name == "text" else frame

    def scan(self, name: str) -> None:
        (found,) = self.read(name).agg(F.sum(F.length("body"))).collect()[0]
        assert found == self.rows.count() * self.body, (name, found)

    def count(self, name: str) -> None:
        if name == "penstock":
            text = "SELECT count(*) FROM {q}"
            penstock.spark.sql(self.spark, text, q=str(self.path(name))).collect()
        else:
            self.read(name).count()


def sync_all(folder: Path) -> None:
    """What Spark's own files lack."""
    for path in [*folder.rglob("*"), folder]:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def compared(spark: Any, folder: Path, size: int, address: str) -> Iterator[dict[str, Any]]:
    """Sink, scan and count of every format, for short and for long bodies."""
    for body in (100, 1000):
        count = size // body
        beside = Beside(spark, folder, body, count, address)
        names = beside.names()
        for work, found in {
            "sink": costs(names, beside.write, beside.clear),
            "scan": costs(names, beside.scan),
            "count": costs(names, beside.count),
        }.items():
            for name in names:
                one = {"work": work, "format": name, "body": body, "rows": count}
                yield one | vars(found[name])
        for name in names:
            beside.clear(name)
        beside.rows.unpersist()


def by_segments(spark: Any, folder: Path, counts: tuple[int, ...]) -> Iterator[dict[str, Any]]:
    """The same bytes in few segments and in many."""
    total = max(counts) * SEGMENT_BYTES * 3 // 4 // 1000
    for count in counts:
        path = folder / f"segments-{count}"
        rows = total // count
        with Queue(path, segment_bytes=max(rows * 1100, SEGMENT_BYTES)) as queue:
            for _ in range(count):
                queue.put_many([bytes(950)] * rows)
        found = cost(
            lambda: penstock.spark.table(spark, str(path), "body")  # noqa: B023
            .agg(F.sum(F.length("body"))).collect()
        )  # fmt: skip
        with Queue(path, read_only=True) as queue:
            segments = len(queue.store.segments(fresh=True))
        one = {"work": "scan by segments", "format": "penstock", "segments": segments}
        yield one | {"rows": rows * count, "body": 950} | vars(found)
        rmtree(path)


def planning(folder: Path) -> Iterator[dict[str, Any]]:
    """CPU time of `latestOffset` and `partitions` for a micro-batch of ten rows."""
    path = folder / "planned"
    with Queue(path) as queue:
        queue.put_many([bytes(100)] * 1000)
    done = subprocess.run(
        [sys.executable, "-c", PLANS, str(path)], capture_output=True, text=True, check=True
    )
    cpu, wall = (float(part) for part in done.stdout.split())
    yield {"work": "plan of a micro-batch", "format": "penstock", "cpu_s": cpu, "wall_s": wall}


PLANS = """
import sys, time
from penstock import Queue
from penstock.spark import source
from penstock.spark.versions import HAS_LIMITS, ReadAllAvailable

path = sys.argv[1]
options = {"path": path}
reader = source.stream_reader(options, source.schema(options))
known, took = reader.initialOffset(), []

def plan():
    end = reader.latestOffset(known, ReadAllAvailable()) if HAS_LIMITS else reader.latestOffset()
    reader.partitions(known, end)
    return end

with Queue(path) as queue:
    for _ in range(30):
        queue.put_many([bytes(100)] * 10)
        queue.sync()
        cpu, wall = time.process_time(), time.perf_counter()
        known = plan()
        took.append((time.process_time() - cpu, time.perf_counter() - wall))
print(*(sorted(part)[len(took) // 2] for part in zip(*took)))
"""


def main(size: int, result: Path, jars: Path | None) -> None:
    about = machine() | {"pyspark": pyspark.__version__, "bytes": size}
    is_small = size < 100_000_000
    rows: list[dict[str, Any]] = []

    def keep(found: Iterator[dict[str, Any]]) -> None:
        for row in found:
            rows.append(row)
            print({k: round(v, 3) if isinstance(v, float) else v for k, v in row.items()},
                  file=sys.stderr, flush=True)  # fmt: skip

    settings = {"spark.driver.memory": "4g", "spark.ui.enabled": "false"}
    if jars is not None:
        settings["spark.jars"] = ",".join(str(path) for path in sorted(jars.glob("*.jar")))
    with scratch() as folder:
        keep(planning(folder))
        spark = penstock.spark.session("beside", **settings)
        spark.sparkContext.setLogLevel("OFF")
        try:
            if jars is None:
                keep(compared(spark, folder, size, ""))
            else:
                with broker(jars, folder) as address:
                    keep(compared(spark, folder, size, address))
            keep(by_segments(spark, folder, SEGMENTS[:2] if is_small else SEGMENTS))
        finally:
            spark.stop()
    value = {"benchmark": "spark", "machine": about, "rows": rows}
    result.write_text(json.dumps(value, indent=1) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]) if sys.argv[3:] else None)
