"""Spark over a gigabyte of messages, in local[2]: CPU seconds of the JVM and its Python workers.

CPU time, because other load on the machine does not change it much; wall time, as MB/s of bodies
and frames, is in the notes and means something on free cores alone. Parquet holds the same rows
without compression and reads only the columns of the query, so ours is told them for the goal. The
peer of each row was measured in the same session.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benches.harness import Row, scratch
from penstock import Queue

TICK = os.sysconf("SC_CLK_TCK")
BYTES = 1_000_000_000
FRAME = 48
"""A frame's share besides the body, about."""


def tree_cpu_s() -> float:
    """CPU seconds of this process and all that descend from it, the dead ones too."""
    children: dict[int, list[int]] = {}
    spent: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            children.setdefault(int(fields[1]), []).append(int(entry.name))
            spent[int(entry.name)] = sum(int(value) for value in fields[11:15]) / TICK
    waiting, total = [os.getpid()], 0.0
    while waiting:
        pid = waiting.pop()
        total += spent.get(pid, 0.0)
        waiting += children.get(pid, [])
    return total


def best(work: Callable[[], object], rounds: int) -> tuple[float, float]:
    """CPU and wall seconds, each the best of the rounds; the first one warms up."""
    work()
    cpu, wall = [], []
    for _ in range(rounds):
        before, began = tree_cpu_s(), time.perf_counter()
        work()
        wall.append(time.perf_counter() - began)
        cpu.append(tree_cpu_s() - before)
    return min(cpu), min(wall)


def fill(path: Path, count: int, body: int) -> None:
    with Queue(path, durability="process") as queue:
        for first in range(0, count, 1000):
            bodies = [b"%08d" % n + b"x" * (body - 8) for n in range(first, first + 1000)]
            queue.put_many(bodies, tag=f"t.{first // 1000 % 16}")


def run(quick: bool) -> Iterator[Row]:
    import penstock.spark

    size, rounds = (20_000_000, 1) if quick else (BYTES, 3)
    for kind in ("penstock", "zbus", "mfq", "beats"):
        yield from planning(kind, (10, 100) if quick else (10, 10_000))
    spark = penstock.spark.session("bench", spark_driver_memory="4g")
    spark.sparkContext.setLogLevel("OFF")
    try:
        for body, cpu_goal, wall_goal in ((100, 3.0, 400), (1000, 2.0, 600)):
            with scratch() as folder:
                count = size // (body + FRAME) // 1000 * 1000
                fill(folder / "q", count, body)
                yield from Reading(spark, folder, body, count, rounds).rows(cpu_goal, wall_goal)
                yield writing(spark, folder, body, min(count, 1_000_000), rounds)
    finally:
        spark.stop()


class Reading:
    """One queue, read in every way."""

    def __init__(self, spark: Any, folder: Path, body: int, count: int, rounds: int) -> None:
        self.spark, self.folder, self.body = spark, folder, body
        self.count, self.rounds = count, rounds
        self.bytes = count * (body + FRAME)
        self.parquet = str(folder / "parquet")
        self.queue().write.option("compression", "none").parquet(self.parquet)

    def queue(self, schema: str = "") -> Any:
        reader = self.spark.read.format("penstock")
        return (reader.schema(schema) if schema else reader).load(str(self.folder / "q"))

    def lengths(self, frame: Callable[[], Any]) -> tuple[float, float]:
        from pyspark.sql import functions as F

        return best(lambda: frame().agg(F.sum(F.length("body"))).collect(), self.rounds)

    def tags(self, frame: Callable[[], Any]) -> tuple[float, float]:
        return best(lambda: frame().groupBy("tag").count().collect(), self.rounds)

    def rate(self, wall: float) -> str:
        return f"{self.count / wall:,.0f} rows/s, {self.bytes / wall / 1e6:,.0f} MB/s"

    def rows(self, cpu_goal: float, wall_goal: float) -> Iterator[Row]:
        name, parquet = f"{self.body} B", lambda: self.spark.read.parquet(self.parquet)
        flat_cpu, flat_wall = self.lengths(parquet)
        full_cpu, full_wall = self.lengths(self.queue)
        body_cpu, body_wall = self.lengths(lambda: self.queue("body binary"))
        yield Row(case=f"{name}: sum(length(body)), all columns", ours=full_cpu, unit="s",
                  peer="Parquet, no compression", peer_value=flat_cpu,
                  note=f"{self.rate(full_wall)}; Parquet {self.rate(flat_wall)}")  # fmt: skip
        yield Row(case=f"{name}: sum(length(body)), column body", ours=body_cpu, unit="s",
                  peer="Parquet, no compression", peer_value=flat_cpu, ratio_goal=cpu_goal,
                  note=self.rate(body_wall))  # fmt: skip
        yield Row(case=f"{name}: the same, wall", ours=self.bytes / body_wall / 1e9, unit="GB/s",
                  goal=wall_goal / 1000, note="on free cores")  # fmt: skip
        tag_cpu, tag_wall = self.tags(lambda: self.queue("tag string"))
        all_cpu, _ = self.tags(self.queue)
        yield Row(case=f"{name}: groupBy(tag), column tag", ours=tag_cpu, unit="s",
                  peer="all columns", peer_value=all_cpu, ratio_goal=1 / 1.5,
                  note=self.rate(tag_wall))  # fmt: skip
        yield self.row_by_row(name, full_cpu)

    def row_by_row(self, name: str, full_cpu: float) -> Row:
        """What a source that yields tuples costs: an eighth of the queue, times eight."""
        from pyspark import cloudpickle

        from benches import _tuples

        # Workers know nothing of this folder.
        cloudpickle.register_pickle_by_value(_tuples)  # type: ignore[no-untyped-call]
        self.spark.dataSource.register(_tuples.TupleSource)
        part = self.count // 8

        def frame() -> Any:
            reader = self.spark.read.format("tuples").option("path", str(self.folder / "q"))
            return reader.option("limit", str(part)).load()

        cpu, _ = self.lengths(frame)
        return Row(case=f"{name}: sum(length(body)), all columns, Arrow", ours=full_cpu, unit="s",
                   peer="a row at a time in Python", peer_value=cpu * 8,
                   ratio_goal=0.5)  # fmt: skip


def writing(spark: Any, folder: Path, body: int, rows: int, rounds: int) -> Row:
    """Rows per second into a queue, with commit and sync, beside Parquet."""
    frame = spark.read.parquet(str(folder / "parquet")).limit(rows).select("body", "tag")
    frame = frame.repartition(2).cache()
    frame.count()
    out = folder / "out"

    def put() -> None:
        shutil.rmtree(out, ignore_errors=True)
        frame.write.format("penstock").mode("append").save(str(out))

    _, put_wall = best(put, rounds)
    flat = str(folder / "out.parquet")
    _, flat_wall = best(lambda: frame.write.mode("overwrite").parquet(flat), rounds)
    frame.unpersist()
    return Row(case=f"{body} B: sink, body and tag, durable, once", ours=rows / put_wall,
               unit="msg/s", peer="Parquet, snappy, not synced",
               peer_value=rows / flat_wall)  # fmt: skip


# ── planning ───────────────────────────────────────────────────────────────────────────────

PLAN = """
import os, sys
from penstock.spark import source
from pyspark.sql.streaming.datasource import ReadAllAvailable

path, start, *group = sys.argv[1:]
options = {"path": path} | ({"group": group[0]} if group else {})
reader = source.stream_reader(options, source.schema(options))
known = reader.initialOffset()
(name,) = known["q"]
known["q"][name]["next"] = int(start)

def plan():
    end = reader.latestOffset(known, ReadAllAvailable())
    return reader.partitions(known, end)

def read_bytes():
    with open("/proc/self/io") as file:
        return int(file.readline().split()[1])

plan()
for follower in reader._followers.values():
    follower.queue.sync()   # its maintenance thread looks once for what was read before
before = read_bytes()
os.getppid()   # a mark for strace
plan()
os.getppid()
print(read_bytes() - before)
"""


def planning(kind: str, counts: tuple[int, int]) -> Iterator[Row]:
    """System calls and bytes of `latestOffset` and `partitions`, for few segments and for many."""
    found = []
    for count in counts:
        with scratch() as folder:
            with Queue(
                folder / "q", format=kind, segment_bytes=16384, durability="process"
            ) as queue:
                for _ in range(count):
                    queue.put(bytes(11_000))
                last = queue.store.segments(fresh=True)[-3].base
                has_group = queue.store.capabilities.deletes_consumed
                if has_group:
                    queue.group("slow", start="earliest")  # Deleting is no part of planning.
            found.append(planned(folder, last, "plan" if has_group else ""))
    (few_calls, few_bytes), (many_calls, many_bytes) = found
    text = f"{counts[0]} segments"
    if few_calls:
        yield Row(case=f"planning {kind}, {counts[1]:,} segments: calls", ours=many_calls, unit="",
                  peer=text, peer_value=few_calls, ratio_goal=2.0)  # fmt: skip
    yield Row(case=f"planning {kind}, {counts[1]:,} segments: bytes", ours=many_bytes, unit="",
              peer=text, peer_value=few_bytes, ratio_goal=2.0)  # fmt: skip


def planned(folder: Path, start: int, group: str) -> tuple[int, int]:
    """System calls (0 without strace) and bytes of one plan. With a group where the format deletes
    what nobody waits for."""
    command = [sys.executable, "-c", PLAN, str(folder / "q"), str(start), *filter(None, [group])]
    log = folder / "calls"
    if shutil.which("strace"):
        command = ["strace", "-f", "-o", str(log), *command]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    calls = log.read_text().splitlines() if log.exists() else []
    marks = [number for number, line in enumerate(calls) if "getppid(" in line]
    return (marks[-1] - marks[-2] - 1 if len(marks) > 1 else 0), int(done.stdout)
