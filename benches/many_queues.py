"""Planning over many queues and segments: what a batch, a micro-batch and its checkpoint cost."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import penstock
from benches.harness import Row, best_cpu_ns, scratch
from penstock.spark import source
from penstock.spark.ship import ship
from penstock.spark.versions import ReadAllAvailable


def run(quick: bool) -> Iterator[Row]:
    """Rows for each number of queues, and for each number of segments in one queue."""
    yield from of_queues((10, 100) if quick else (10, 100, 1000, 10_000))
    yield from of_segments((10, 100) if quick else (10, 100, 1000, 10_000))
    yield from of_shipped((10, 100) if quick else (10, 100, 1000, 10_000))


def of_queues(counts: tuple[int, ...]) -> Iterator[Row]:
    """By the number of queues."""
    with scratch() as folder:
        made, first = 0, 0.0
        for count in counts:
            make(folder, made, count)
            made = count
            options = {"path": f"{folder}/*"}
            batch, micro, start = plans(options, count)
            first = first or micro
            yield Row(case=f"{count} queues, plan of a batch, each", ours=batch, unit="us")
            yield Row(case=f"{count} queues, plan of a micro-batch, each", ours=micro, unit="us",
                      peer="of 10 queues", peer_value=first, ratio_goal=2)  # fmt: skip
            size = len(json.dumps(start)) / count
            yield Row(case=f"{count} queues, checkpoint, each", ours=size, unit="bytes")


def of_segments(counts: tuple[int, ...]) -> Iterator[Row]:
    """By the number of segments of one queue; the micro-batch has all of them."""
    with scratch() as folder:
        for count in counts:
            path = folder / f"segments-{count}"
            with penstock.Queue(path, segment_bytes=16384) as queue:
                for _ in range(count):
                    queue.put_many([bytes(1000)] * 15)
                there = len(queue.store.segments(fresh=True))
            batch, micro, _ = plans({"path": str(path)}, there)
            yield Row(case=f"{there} segments, plan of a batch, each", ours=batch, unit="us")
            yield Row(case=f"{there} segments, plan of a micro-batch, each", ours=micro, unit="us")


def of_shipped(counts: tuple[int, ...]) -> Iterator[Row]:
    """By the number of shipped queues, which are planned from their manifests; these lie in a
    folder, so that what an object store takes to answer comes on top."""
    with scratch() as folder:
        make(folder, 0, 1)
        ship(folder / "queue-00000", f"file://{folder}/shipped/queue-00000", whole=True)
        first, made = folder / "shipped" / "queue-00000", 1
        for count in counts:
            for number in range(made, count):
                shutil.copytree(first, first.with_name(f"queue-{number:05d}"))
            made = count
            batch, micro, _ = plans({"path": f"{folder}/shipped/*"}, count)
            yield Row(case=f"{count} shipped, plan of a batch, each", ours=batch, unit="us")
            yield Row(case=f"{count} shipped, plan of a micro-batch, each", ours=micro, unit="us")


def plans(options: dict[str, str], count: int) -> tuple[float, float, dict[str, Any]]:
    """Microseconds of a batch's plan and a micro-batch's for each of `count`, and the offset that
    the latter begins at."""
    reader = source.reader(options, source.schema(options))
    batch = best_cpu_ns(reader.partitions, count, 3) / 1000
    stream = source.stream_reader(options, source.schema(options))
    start = stream.initialOffset()
    stream.latestOffset(start, ReadAllAvailable())  # Opens what later ones find open.

    def plan() -> None:
        stream.partitions(start, stream.latestOffset(start, ReadAllAvailable()))

    micro = best_cpu_ns(plan, count, 3) / 1000
    stream.stop()
    return batch, micro, start


def make(folder: Path, first: int, last: int) -> None:
    """Queues with a few messages."""
    for number in range(first, last):
        with penstock.Queue(folder / f"queue-{number:05d}", segment_bytes=65536) as queue:
            queue.put_many([bytes(100)] * 10)
