"""Spark over a queue, in local[2]: CPU seconds of the JVM and its Python workers.

CPU time, because other load on the machine does not change it. Parquet holds the same rows without
compression. The peer of each row was measured in the same session.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benches.harness import Row, scratch
from penstock import Queue

TICK = os.sysconf("SC_CLK_TCK")
BODY = 100


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


def fill(path: Path, count: int) -> None:
    with Queue(path, durability="process") as queue:
        for first in range(0, count, 1000):
            bodies = [b"%08d" % n + b"x" * (BODY - 8) for n in range(first, first + 1000)]
            queue.put_many(bodies, tag=f"t.{first // 1000 % 16}")


def run(quick: bool) -> Iterator[Row]:
    import penstock.spark

    count, rounds = (200_000, 1) if quick else (4_000_000, 3)
    with scratch() as folder:
        fill(folder / "q", count)
        spark = penstock.spark.session("bench")
        spark.sparkContext.setLogLevel("OFF")
        try:
            yield from measured(spark, folder, count, rounds)
        finally:
            spark.stop()


def measured(spark: Any, folder: Path, count: int, rounds: int) -> Iterator[Row]:
    from pyspark.sql import functions as F

    def queue(schema: str = "") -> Any:
        reader = spark.read.format("penstock")
        return (reader.schema(schema) if schema else reader).load(str(folder / "q"))

    parquet = str(folder / "parquet")
    queue().write.option("compression", "none").parquet(parquet)

    def by_tag(frame: Any) -> Callable[[], object]:
        return lambda: frame().groupBy("tag").count().collect()

    def length(frame: Any) -> Callable[[], object]:
        return lambda: frame().agg(F.sum(F.length("body"))).collect()

    tag_cpu, tag_wall = best(by_tag(lambda: queue("tag string")), rounds)
    all_cpu, _ = best(by_tag(queue), rounds)
    body_cpu, body_wall = best(length(lambda: queue("body binary")), rounds)
    full_cpu, full_wall = best(length(queue), rounds)
    flat_cpu, _ = best(length(lambda: spark.read.parquet(parquet)), rounds)
    yield Row(
        case="groupBy(tag), column tag only",
        ours=tag_cpu,
        unit="s",
        peer="all columns",
        peer_value=all_cpu,
        ratio_goal=0.75,
        note=f"{count / tag_wall:,.0f} rows/s",
    )
    yield Row(case="sum(length(body)), column body only", ours=body_cpu, unit="s",
              peer="Parquet, no compression", peer_value=flat_cpu, ratio_goal=3.0,
              note=f"{count / body_wall:,.0f} rows/s")  # fmt: skip
    yield Row(case="sum(length(body)), all columns", ours=full_cpu, unit="s",
              peer="Parquet, no compression", peer_value=flat_cpu,
              note=f"{count / full_wall:,.0f} rows/s")  # fmt: skip

    rows = min(count, 1_000_000)
    frame = spark.read.parquet(parquet).limit(rows).select("body", "tag").repartition(2).cache()
    frame.count()
    number = iter(range(10**6))

    def put() -> None:
        frame.write.format("penstock").mode("append").save(str(folder / f"out{next(number)}"))

    _, put_wall = best(put, rounds)
    _, flat_wall = best(
        lambda: frame.write.mode("overwrite").parquet(str(folder / "out.parquet")), rounds
    )
    yield Row(case="sink: body and tag, durable, once", ours=rows / put_wall, unit="msg/s",
              peer="Parquet, snappy", peer_value=rows / flat_wall, goal=1_000_000)  # fmt: skip
