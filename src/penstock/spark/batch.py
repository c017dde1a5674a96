"""Reading a batch: which range, which tasks, which rows never leave the core."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.errors import OptionError
from penstock.spark import counts, queues, reading, tables
from penstock.spark.bounds import Bounds, TagFilter
from penstock.spark.options import SourceOptions
from penstock.spark.queues import Source
from penstock.spark.schema import Shape
from penstock.spark.tasks import Task, tasks
from penstock.spark.versions import DataSourceReader, InputPartition

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


EVERY = ""
"""Stands for the queues that an offsets option does not name."""
KAFKAS = {"-2": "earliest", "-1": "latest"}
"""What Kafka's numbers for places mean."""


class BatchReader(DataSourceReader):
    """One query's look at some queues."""

    options: SourceOptions
    schema: StructType
    bounds: Bounds

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self.options, self.schema = options, schema
        self.bounds = Bounds.from_text(options.bounds)
        if options.tags:  # Of two filters on tags, Spark itself checks the one in the query.
            self.bounds = replace(self.bounds, tags=TagFilter(options.tags))

    def partitions(self) -> list[InputPartition]:
        """The tasks, with absolute offsets."""
        if self.options.table in tables.TOLD:
            return []
        found = []
        names = queues.find_some(self.options)
        check_names(self.options, names)
        for name, where in names.items():
            queue = queues.open_queue(name, where, self.options)
            start, end = limits(queue, self.options)
            whole = queue.spans(start, end)
            found.append((queue, [span for span in whole if self.bounds.leaves(span)]))
        return list(tasks(self.options, found))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition."""
        if self.options.table in tables.TOLD:
            return iter([tables.read(self.options, self.schema)])
        if not isinstance(partition, Task):
            return iter(())
        if self.options.table == "counts":
            return counts.read(self.options, self.schema, partition.spans, self.bounds.tags)
        shape = Shape(self.options, self.schema)
        return reading.read(self.options, shape, partition.spans, self.bounds.tags)


def limits(queue: Source, options: SourceOptions) -> tuple[int, int]:
    """The range of a batch."""
    start = starting(queue, options)
    if options.ending_timestamp:
        end = queue.by_time("endingTimestamp", options.ending_timestamp)
    else:
        end = _place("endingOffsets", options.ending_offsets, queue, default="latest")
    if options.view == "pending":
        start = max(start, queue.pending(options.group))
    return start, max(start, end)


def starting(queue: Source, options: SourceOptions) -> int:
    """The offset at which a batch begins to read."""
    if options.starting_timestamp:
        return queue.by_time("startingTimestamp", options.starting_timestamp)
    return _place("startingOffsets", options.starting_offsets, queue, default="earliest")


def _place(option: str, text: str, queue: Source, *, default: str) -> int:
    where = place_of(option, text, queue.name) or default
    if where in ("earliest", "latest"):
        return queue.head if where == "earliest" else queue.end
    return queue.resolve(where, option)


def place_of(option: str, text: str, name: str) -> str:
    """What an offsets option says of one queue; empty: nothing."""
    said = places(option, text)
    return said.get(name, said[EVERY])


@lru_cache(maxsize=8)
def places(option: str, text: str) -> dict[str, str]:
    """An offsets option by queue: one place for all, or JSON by name."""
    if not text.startswith("{"):
        return {EVERY: KAFKAS.get(text, text)}
    try:
        found: dict[str, Any] = json.loads(text)
    except ValueError:
        found = {EVERY: None}
    if not all(type(place) in (int, str) for place in found.values()):
        raise OptionError(option, text, 'a word, or JSON like {"orders": 4096}')
    return {EVERY: ""} | {name: KAFKAS.get(str(at), str(at)) for name, at in found.items()}


def check_names(options: SourceOptions, names: Collection[str]) -> None:
    """Refuses places of queues that are not there: a name that is misspelt would mean nothing."""
    known = {EVERY, *names}
    for option, text in (
        ("startingOffsets", options.starting_offsets), ("endingOffsets", options.ending_offsets),
    ):  # fmt: skip
        for name in places(option, text).keys() - known:
            raise OptionError(option, name, f"queues of this query: {', '.join(sorted(names))}")
