"""Queues as tables by `mapInArrow`, for a Spark that has no Python data sources: PySpark 3.5.

Plan, tasks and commit are those of the format "penstock": one task for each part of a segment,
absolute offsets, rows staged by tasks and appended by the driver under one publication.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from penstock.spark.pruning import Where, as_option

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from penstock.spark.batch import BatchReader
    from penstock.spark.sink import BatchWriter


def read_batches(spark: SparkSession, path: Where, *columns: str, **options: str) -> DataFrame:
    """The queues at `path` as a table of these columns; without any, of all that are usual.

    For PySpark 3.5; it works with newer ones too. `options` are those of a batch of the source.
    The range is that of this moment, and every action on the table reads it again.
    """
    from penstock.spark import schema as schemas
    from penstock.spark.batch import BatchReader
    from penstock.spark.options import SourceOptions
    from penstock.spark.versions import InputPartition

    wanted = {"columns": ",".join(columns)} if columns else {}
    parsed = SourceOptions.of({"path": as_option(path), **wanted, **options})
    schema = schemas.default_schema(parsed)
    reader = BatchReader(parsed, schema)
    tasks = reader.partitions() or [InputPartition(None)]
    numbers = spark.range(0, len(tasks), 1, len(tasks))  # One in each of Spark's tasks.
    return numbers.mapInArrow(_Read(reader, tasks), schema)


def write_batches(frame: DataFrame, path: str | PathLike[str], **options: str) -> None:
    """Puts the rows of a table into the queue at `path`, all of them at once.

    For PySpark 3.5; it works with newer ones too. `options` are those of the sink. In
    `foreachBatch` give `txnAppId`, a name of the query, and `txnVersion`, the batch's number:
    a batch that comes again is then not put twice.
    """
    from penstock.spark import sink
    from penstock.spark.staging import Staged

    writer = sink.writer({"path": fspath(path), **options}, frame.schema, overwrite=False)
    try:
        rows = frame.mapInArrow(_Stage(writer), _staged_schema()).collect()
    except BaseException:
        writer.abort([])
        raise
    writer.commit([Staged(**row.asDict()) for row in rows])


@dataclass
class _Read:
    """Runs in Spark's workers: gives the rows of the tasks whose numbers come in."""

    reader: BatchReader
    tasks: list[Any]

    def __call__(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from self.reader.read(self.tasks[number])


@dataclass
class _Stage:
    """Runs in Spark's workers: stages rows and gives what the commit has to know."""

    writer: BatchWriter

    def __call__(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from penstock.spark.versions import arrow_schema

        staged: Any = self.writer.write(rows)
        yield pa.RecordBatch.from_pylist([asdict(staged)], schema=arrow_schema(_staged_schema()))


def _staged_schema() -> StructType:
    from pyspark.sql.types import LongType, StringType, StructField, StructType

    from penstock.spark.staging import Staged

    kinds = {"path": StringType()}
    return StructType([
        StructField(one.name, kinds.get(one.name, LongType())) for one in fields(Staged)
    ])  # fmt: skip
