"""Reading and writing through our reader and writer classes, without a JVM."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from penstock import Queue
from penstock.spark import sink, source
from penstock.spark.stream import StreamReader
from penstock.spark.versions import HAS_LIMITS, ReadAllAvailable, ReadLimit
from tests.reading import bodies_at

MESSAGE = ("offset", "number", "timestamp_ns", "id", "key", "tag", "headers", "body")


def fill(path: Path, count: int, *, first: int = 0, **options: Any) -> Path:
    """A queue of that many messages."""
    with Queue(path, **options) as queue:
        for number in range(first, first + count):
            queue.put(b"body-%d" % number, tag=f"t.{number % 3}", id=f"id-{number}",
                      headers={"n": str(number)})  # fmt: skip
    return path


def options_of(path: object, **options: object) -> dict[str, str]:
    text = json.dumps([str(p) for p in path]) if isinstance(path, list) else str(path)
    return {"path": text, **{name.lower(): str(value) for name, value in options.items()}}


def collect(reader: Any, tasks: Iterable[Any]) -> list[dict[str, Any]]:
    """The rows of all tasks, in their order; every batch has Spark's very schema."""
    from pyspark.sql.pandas.types import to_arrow_schema

    wanted = to_arrow_schema(reader.schema, timezone="UTC")
    rows: list[dict[str, Any]] = []
    for task in tasks:
        for batch in reader.read(task):
            assert batch.schema.equals(wanted)
            rows += batch.to_pylist(maps_as_pydicts="strict")
    return rows


def batch(path: object, **options: object) -> list[dict[str, Any]]:
    """What `spark.read` would give."""
    given = options_of(path, **options)
    reader = source.reader(given, source.schema(given))
    return collect(reader, reader.partitions() or [InputPartition(None)])


def stream(path: object, **options: object) -> StreamReader:
    given = options_of(path, **options)
    return source.stream_reader(given, source.schema(given))


def latest(
    reader: StreamReader, start: dict[str, Any], limit: ReadLimit | None = None
) -> dict[str, Any]:
    """The end of the next micro-batch, asked for as this PySpark does."""
    if not HAS_LIMITS:
        return reader.latestOffset()  # type: ignore[call-arg]
    return reader.latestOffset(start, limit or reader.getDefaultReadLimit() or ReadAllAvailable())


def drain(
    reader: StreamReader, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
) -> tuple[list[list[dict[str, Any]]], dict[str, Any]]:
    """Micro-batches until nothing is new, as Spark would run them, and the last offset."""
    at = start if start is not None else reader.initialOffset()
    batches: list[list[dict[str, Any]]] = []
    while True:
        end = latest(reader, at, limit)
        if end == at:
            return batches, at
        batches.append(collect(reader, reader.partitions(at, end)))
        reader.commit(end)
        at = end


def scanned(path: Path, **options: Any) -> list[dict[str, Any]]:
    """What `cat` would give: the queue read by the engine."""
    with Queue(path, read_only=True, **options) as queue:
        return [{name: getattr(message, name) for name in MESSAGE} for message in queue.scan()]


bodies = bodies_at


def table(*found: bytes, tag: str | None = None) -> pa.RecordBatch:
    columns = {"body": pa.array(found, pa.binary())}
    if tag is not None:
        columns["tag"] = pa.array([tag] * len(found), pa.string())
    return pa.RecordBatch.from_pydict(columns)


def schema_of(text: str) -> Any:
    from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

    kinds = {"binary": BinaryType(), "string": StringType(), "long": LongType()}
    pairs = (part.split() for part in text.split(","))
    return StructType([StructField(name, kinds[kind]) for name, kind in pairs])


def stream_writer(path: Path, app: str = "app", **options: object) -> sink.StreamWriter:
    given = options_of(path, txnAppId=app, **options)
    return sink.stream_writer(given, schema_of("body binary"), overwrite=False)


def batch_writer(path: Path, **options: object) -> sink.BatchWriter:
    given = options_of(path, **options)
    return sink.writer(given, schema_of("body binary"), overwrite=False)
