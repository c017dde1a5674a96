"""A Spark source as one would write it first: a queue, row by row, as tuples."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition


class TupleSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "tuples"

    def schema(self) -> str:
        return "offset long, number long, timestamp timestamp, id string, tag string, body binary"

    def reader(self, schema: Any) -> DataSourceReader:
        return TupleReader(self.options["path"], int(self.options["limit"]))


class TupleReader(DataSourceReader):
    def __init__(self, path: str, limit: int) -> None:
        self.path, self.limit = path, limit

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        from penstock import Queue

        with Queue(self.path, read_only=True) as queue:
            for count, message in enumerate(queue.scan()):
                if count == self.limit:
                    return
                when = datetime.fromtimestamp((message.timestamp_ns or 0) / 1e9, UTC)
                yield (
                    message.offset, message.number, when, message.id, message.tag, message.body,
                )  # fmt: skip
