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
from contextlib import contextmanager, nullcontext
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

ROUNDS, FEW_ROUNDS = 5, 2
BODIES = (100, 1000)
SEGMENTS = (10, 100, 1_000, 10_000)
TASKS = (100, 1_000)
SEGMENT_BYTES = 16384
"""The smallest segment."""
FRAMES_BYTES = 11_900
"""What fits into it, beside its header."""
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
log.segment.delete.delay.ms=100
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


def costs(
    names: list[str], work: Callable[[str], object], before: Callable[[str], object] = str,
    rounds: int = ROUNDS,
) -> dict[str, Cost]:  # fmt: skip
    """The best of some rounds, each figure by itself; the first round warms up.

    The names take turns, so that the machine's other work, and the JVM's compiling of what they
    have in common, comes to all of them.
    """
    found: dict[str, list[tuple[float, ...]]] = {name: [] for name in names}
    for _ in range(1 + rounds):
        for name in names:
            before(name)
            start, began = spent_s(), time.perf_counter()
            work(name)
            wall = time.perf_counter() - began
            found[name].append((*between(start), wall))
    return {
        name: Cost(*(min(values) for values in zip(*each[1:], strict=True)))
        for name, each in found.items()
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
    # Never with a dash in front, which would make an option of it.
    name = base64.urlsafe_b64encode(b"\0" + uuid.uuid4().bytes[1:]).decode().rstrip("=")
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
    for _ in range(1800):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise SystemExit("the broker does not answer")


# ── scans and sinks ────────────────────────────────────────────────────────────────────────


class Beside:
    """The same rows, written and read in every format; in that many segments or files, or as they
    come."""

    def __init__(
        self, spark: Any, folder: Path, body: int, count: int, address: str, parts: int = 0
    ) -> None:
        self.spark, self.folder, self.body, self.address = spark, folder, body, address
        text = f"concat(lpad(id, 10, '0'), repeat('x', {body - 10})) AS body"
        self.rows = spark.range(0, count, 1, 2).selectExpr(text).cache()
        self.count_of_rows = self.rows.count()
        self.part_rows = -(-count // parts) if parts else 0
        self.topic = f"bodies-{body}"

    def names(self) -> list[str]:
        return ["penstock", "parquet", "text", "json", *(["kafka"] if self.address else [])]

    def path(self, name: str) -> Path:
        return self.folder / f"{name}-{self.body}"

    def write(self, name: str) -> None:
        if name == "kafka":
            writer = self.rows.selectExpr("body AS value").write.format("kafka")
            writer = writer.option("kafka.bootstrap.servers", self.address)
            if self.part_rows:  # A broker takes no batch that is larger than a segment.
                writer = writer.option("kafka.batch.size", min(16384, self.part_bytes() // 3))
            writer.option("topic", self.topic).save()
            return
        frame = self.rows.withColumnRenamed("body", "value") if name == "text" else self.rows
        writer = frame.write.format(name).mode("append")
        if name == "penstock":
            writer.save(str(self.path(name)))
            return
        if self.part_rows:
            writer = writer.option("maxRecordsPerFile", self.part_rows)
        writer.option("compression", "none").save(str(self.path(name)))
        sync_all(self.path(name))

    def part_bytes(self) -> int:
        """About what the frames of one segment take."""
        return self.part_rows * (self.body + 60)

    def clear(self, name: str) -> None:
        """Leaves nothing to append to, or an empty queue or topic with segments of that size."""
        rmtree(self.path(name), ignore_errors=True)
        if name == "penstock" and self.part_rows:
            with Queue(self.path(name)) as queue:
                queue.put(bytes(self.body))
                frame_bytes = queue.offsets().tail
            rmtree(self.path(name))
            size = SEGMENT_BYTES - FRAMES_BYTES + self.part_rows * frame_bytes
            Queue(self.path(name), segment_bytes=max(size, SEGMENT_BYTES)).close()
        if name == "kafka":
            self.topic = made_anew(self.spark, self.address, self.topic, self.body,
                                   self.part_bytes() if self.part_rows else 0)  # fmt: skip

    def spread(self) -> None:
        """The queue again, in many segments: a batch of a sink lands whole in one."""
        bodies = [b"%010d" % number + b"x" * (self.body - 10) for number in range(self.part_rows)]
        self.clear("penstock")
        with Queue(self.path("penstock"), create=False) as queue:
            for first in range(0, self.count_of_rows, self.part_rows):
                queue.put_many(bodies[: self.count_of_rows - first])

    def parts_of(self, name: str) -> int:
        """Into how many segments or files the rows went."""
        if name == "penstock":
            with Queue(self.path(name), read_only=True) as queue:
                return len(queue.store.segments(fresh=True))
        if name == "kafka":
            return len(list((self.folder / "kafka").glob(f"{self.topic}-[0-9]*/*.log")))
        return len(list(self.path(name).glob("part-*")))

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
        assert found == self.count_of_rows * self.body, (name, found)

    def count(self, name: str) -> None:
        if name == "penstock":
            text = "SELECT count(*) FROM {q}"
            penstock.spark.sql(self.spark, text, q=str(self.path(name))).collect()
        else:
            self.read(name).count()


def made_anew(spark: Any, address: str, old: str, body: int, segment_bytes: int) -> str:
    """A new topic instead of the old one: a broker maps the indexes of every segment it has."""
    java = spark._jvm
    settings = java.java.util.Properties()
    settings.put("bootstrap.servers", address)
    admin = java.org.apache.kafka.clients.admin.AdminClient.create(settings)
    try:
        known = admin.listTopics().names().get()
        if known.contains(old):
            gone = java.java.util.ArrayList()
            gone.add(old)
            admin.deleteTopics(gone).all().get()
        fresh = java.java.util.ArrayList()
        topic = f"bodies-{body}-{uuid.uuid4().hex[:8]}"
        made = java.org.apache.kafka.clients.admin.NewTopic(topic, 2, 1)
        if segment_bytes:
            made = made.configs({"segment.bytes": str(segment_bytes)})
        fresh.add(made)
        admin.createTopics(fresh).all().get()
    finally:
        admin.close()
    return topic


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
    for body in BODIES:
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


def by_segments(
    spark: Any, folder: Path, counts: tuple[int, ...], address: str
) -> Iterator[dict[str, Any]]:
    """The same rows in few segments or files and in many, written and read."""
    for body in BODIES:
        rows = max(counts) * FRAMES_BYTES // (body + 60)
        for count in counts:
            beside = Beside(spark, folder, body, rows, address, parts=count)
            names = beside.names()
            one = {"body": body, "rows": rows, "segments": count}
            sink = costs(names, beside.write, beside.clear, rounds=FEW_ROUNDS)
            for name in names:
                parts = {"format": name, "parts": beside.parts_of(name)}
                yield {"work": "sink by segments"} | parts | one | vars(sink[name])
            beside.spread()
            scan = costs(names, beside.scan, rounds=FEW_ROUNDS)
            for name in names:
                parts = {"format": name, "parts": beside.parts_of(name)}
                yield {"work": "scan by segments"} | parts | one | vars(scan[name])
                beside.clear(name)
            beside.rows.unpersist()


def by_tasks(spark: Any, folder: Path, counts: tuple[int, ...]) -> Iterator[dict[str, Any]]:
    """The same few bytes in few tasks and in many: what a task costs by itself."""
    path = folder / "tasks"
    with Queue(path) as queue:
        queue.put_many([bytes(100)] * max(counts))
        size = queue.offsets().tail
    for count in counts:
        options = {"targetPartitionBytes": str(-(-size // count))}
        frame = penstock.spark.table(spark, str(path), "offset", **options)
        made = frame.rdd.getNumPartitions()

        def work(_: str, frame: Any = frame) -> None:
            # Another plan each time: Spark keeps the shuffled rows of one that ran.
            frame.agg(F.max("offset")).collect()

        found = costs([""], work, rounds=FEW_ROUNDS)[""]
        one = {"work": "scan by tasks", "format": "penstock", "tasks": made, "rows": max(counts)}
        yield one | vars(found)
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
            with broker(jars, folder) if jars is not None else nullcontext("") as address:
                keep(compared(spark, folder, size, address))
                some = slice(2 if is_small else None)
                keep(by_segments(spark, folder, SEGMENTS[some], address))
                keep(by_tasks(spark, folder, TASKS[some]))
        finally:
            spark.stop()
    value = {"benchmark": "spark", "machine": about, "rows": rows}
    result.write_text(json.dumps(value, indent=1) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]) if sys.argv[3:] else None)
