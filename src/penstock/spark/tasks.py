"""Spark's tasks: spans, cut or put together until each has about `targetPartitionBytes`."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from penstock.spark.options import SourceOptions
from penstock.spark.spans import Source, Span, cut
from penstock.spark.versions import InputPartition


@dataclass(frozen=True)
class Task(InputPartition):
    """Spans that one task reads, in order."""

    spans: tuple[Span, ...]


def tasks(options: SourceOptions, ranges: Iterable[tuple[Source, list[Span]]]) -> list[Task]:
    """All spans, cut and put together."""
    ranges = list(ranges)
    total = sum(span.bytes for _, spans in ranges for span in spans)
    most = max(1, options.partition_bytes)
    if options.min_partitions > 1:
        most = max(1, min(most, math.ceil(total / options.min_partitions)))
    found: list[Task] = []
    together: list[Span] = []
    size = 0
    for queue, spans in ranges:
        for span in (part for whole in spans for part in cut(queue, whole, most)):
            if together and size + span.bytes > most:
                found.append(Task(tuple(together)))
                together, size = [], 0
            together.append(span)
            size += span.bytes
    if together:
        found.append(Task(tuple(together)))
    return found
