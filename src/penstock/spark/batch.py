"""Reading a batch: which range, which tasks, which rows never leave the core."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
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
        for name, where in queues.find_some(self.options).items():
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
    end = queue.end
    if options.ending_timestamp:
        end = queue.by_time("endingTimestamp", options.ending_timestamp)
    else:
        text = per_queue("endingOffsets", options.ending_offsets, queue.name)
        end = queue.end if text in ("", "latest", "-1") else queue.resolve(text)
    if options.view == "pending":
        start = max(start, queue.pending(options.group))
    return start, max(start, end)


def starting(queue: Source, options: SourceOptions) -> int:
    """The offset at which a batch begins to read."""
    if options.starting_timestamp:
        return queue.by_time("startingTimestamp", options.starting_timestamp)
    text = per_queue("startingOffsets", options.starting_offsets, queue.name)
    return queue.head if text in ("", "earliest", "-2") else queue.resolve(text)


def per_queue(option: str, text: str, name: str) -> str:
    """One queue's part of an offsets option: a word for all, or JSON by name."""
    if not text.startswith("{"):
        return text
    try:
        found: dict[str, Any] = json.loads(text)
    except ValueError:
        raise OptionError(option, text, 'a word, or JSON like {"orders": 4096}') from None
    return str(found.get(name, ""))
