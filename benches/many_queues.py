"""Planning over many queues: what a batch, a micro-batch and its checkpoint cost for each queue."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import penstock
from benches.harness import Row, best_cpu_ns, scratch
from penstock.spark import source
from penstock.spark.stream import StreamReader
from penstock.spark.versions import ReadAllAvailable


def run(quick: bool) -> Iterator[Row]:
    """A row for each number of queues."""
    with scratch() as folder:
        made, first = 0, 0.0
        for count in (10, 100) if quick else (10, 100, 1000):
            make(folder, made, count)
            made = count
            options = {"path": f"{folder}/*"}
            reader = source.reader(options, source.schema(options))
            batch = best_cpu_ns(reader.partitions, count, 3) / 1000
            stream = source.stream_reader(options, source.schema(options))
            start = stream.initialOffset()
            stream.latestOffset(start, ReadAllAvailable())  # Opens what later ones find open.

            def plan(stream: StreamReader = stream, start: dict[str, Any] = start) -> None:
                stream.partitions(start, stream.latestOffset(start, ReadAllAvailable()))

            micro = best_cpu_ns(plan, count, 3) / 1000
            stream.stop()
            first = first or micro
            yield Row(case=f"{count} queues, plan of a batch, each", ours=batch, unit="us")
            yield Row(case=f"{count} queues, plan of a micro-batch, each", ours=micro, unit="us",
                      peer="of 10 queues", peer_value=first, ratio_goal=2)  # fmt: skip
            size = len(json.dumps(start)) / count
            yield Row(case=f"{count} queues, checkpoint, each", ours=size, unit="bytes")


def make(folder: Path, first: int, last: int) -> None:
    """Queues with a few messages."""
    for number in range(first, last):
        with penstock.Queue(folder / f"queue-{number:05d}", segment_bytes=65536) as queue:
            queue.put_many([bytes(100)] * 10)
