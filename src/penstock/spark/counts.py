"""How many messages there are: rows that stand for many.

A sealed segment says in its summary how many messages it has, and so does a manifest; such a part
of a queue is not read at all. `penstock.spark.sql` makes rows of these counts again where a query
uses no column.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import LongType, StructField, StructType

from penstock.spark import reading
from penstock.spark.schema import Shape, repeated
from penstock.spark.versions import arrow_schema

if TYPE_CHECKING:
    from penstock.spark.bounds import TagFilter
    from penstock.spark.options import SourceOptions
    from penstock.spark.spans import Span

AT_MOST = 65536
"""Messages that one row stands for: Spark makes an array of as many values of it."""
OFFSETS = StructType([StructField("offset", LongType())])


def read(
    options: SourceOptions, schema: StructType, spans: tuple[Span, ...], tags: TagFilter
) -> Iterator[pa.RecordBatch]:
    """For each queue of a task, as many messages as its spans have."""
    shape, wanted = Shape(options, OFFSETS), arrow_schema(schema)
    for queue, parts in groupby(spans, lambda span: span.queue):
        total, unknown = 0, []
        for span in parts:
            if span.messages is None or tags.text:
                unknown.append(span)
            else:
                total += span.messages
        for batch in reading.read(options, shape, tuple(unknown), tags):
            total += batch.num_rows
        yield _batch(queue, total, wanted)


def _batch(queue: str, total: int, schema: pa.Schema) -> pa.RecordBatch:
    counts = array("i", [AT_MOST] * (total // AT_MOST) + [total % AT_MOST])
    rows = pa.Array.from_buffers(pa.int32(), len(counts), [None, pa.py_buffer(counts)])
    columns = {"queue": repeated(queue, pa.string(), len(counts)), "rows": rows}
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)
