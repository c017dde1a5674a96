"""What a task reads: facts, no handles.

Every span has absolute offsets, so that a task that runs again reads the same rows. Segments are
cut or put together until each task has about `targetPartitionBytes`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from pyspark.sql.datasource import InputPartition

from penstock.spark.options import SourceOptions
from penstock.spark.queues import Source


@dataclass(frozen=True)
class Span:
    """A range of one segment."""

    queue: str
    where: str
    identity: str
    base: int
    read_from: int
    start: int
    end: int
    file: str
    is_shipped: bool = False
    first_ns: int | None = None
    last_ns: int | None = None

    @property
    def bytes(self) -> int:
        """About as many as are read."""
        return self.end - self.read_from


@dataclass(frozen=True)
class Task(InputPartition):
    """Spans that one task reads, in order."""

    spans: tuple[Span, ...]


def whole_spans(queue: Source, start: int, end: int) -> list[Span]:
    """One span per segment."""
    return [
        Span(
            queue.name, queue.where, queue.identity, piece.base, piece.read_from, piece.first,
            piece.last, piece.file, queue.is_shipped, piece.first_ns, piece.last_ns,
        )
        for piece in queue.pieces(start, end)
    ]  # fmt: skip


def cut(queue: Source, span: Span, most: int) -> Iterator[Span]:
    """The span in parts of about `most` bytes, as far as it can be cut."""
    if span.bytes <= most:
        yield span
        return
    piece = next(iter(queue.pieces(span.start, span.end)))
    start, read_from = span.start, span.read_from
    for at in queue.cuts(piece, most):
        if at > start:
            yield replace(span, start=start, read_from=read_from, end=at)
            start = read_from = at
    yield replace(span, start=start, read_from=read_from)


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
