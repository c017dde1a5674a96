"""The columns: their Spark types, and how each is made from what the core gives.

The core's batches become Spark's without a row ever being a Python object: constant columns are
repeated, the others are handed through, and the whole gets exactly the schema that Spark expects.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.errors import OptionError
from penstock.spark.versions import arrow_schema

if TYPE_CHECKING:
    from penstock.spark.options import SourceOptions

TEXT_MAP = MapType(StringType(), StringType())
KAFKA_HEADERS = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)


@dataclass(frozen=True)
class Column:
    """One column: its type, and the core's column it is made from ("": a constant)."""

    type: DataType
    core: str = ""


MESSAGES = {
    "queue": Column(StringType()),
    "offset": Column(LongType(), "offset"),
    "number": Column(LongType(), "number"),
    "timestamp": Column(TimestampType(), "timestamp_us"),
    "id": Column(StringType(), "id"),
    "key": Column(StringType(), "key"),
    "tag": Column(StringType(), "tag"),
    "headers": Column(TEXT_MAP, "headers"),
    "body": Column(BinaryType(), "body"),
}
ON_REQUEST = {
    "timestamp_ns": Column(LongType(), "timestamp_ns"),
    "payload": Column(BinaryType(), "payload"),
    "segment": Column(StringType(), "segment"),
    "position": Column(LongType(), "position"),
    "length": Column(LongType(), "length"),
    "corr_offset": Column(LongType(), "corr_offset"),
    "checksum_ok": Column(BooleanType()),
    "error": Column(StringType()),
}
FRAMES = ("queue", "segment", "position", "length", "offset", "number", "checksum_ok", "error")
KAFKA = {
    "key": Column(BinaryType(), "key"),
    "value": Column(BinaryType(), "body"),
    "topic": Column(StringType()),
    "partition": Column(IntegerType()),
    "offset": Column(LongType(), "offset"),
    "timestamp": Column(TimestampType(), "timestamp_us"),
    "timestampType": Column(IntegerType()),
    "headers": Column(KAFKA_HEADERS, "headers"),
}
SEGMENTS: dict[str, DataType] = {
    "queue": StringType(),
    "format": StringType(),
    "layout": StringType(),
    "segment": StringType(),
    "base": LongType(),
    "end": LongType(),
    "bytes": LongType(),
    "messages": LongType(),
    "first_number": LongType(),
    "first_timestamp": TimestampType(),
    "last_timestamp": TimestampType(),
    "sealed": BooleanType(),
}
GROUPS: dict[str, DataType] = {
    "queue": StringType(),
    "group": StringType(),
    "cursor": LongType(),
    "tail": LongType(),
    "lag": LongType(),
    "lag_bytes": LongType(),
}
COUNTS: dict[str, DataType] = {"queue": StringType(), "rows": IntegerType()}
FIXED = {"segments": SEGMENTS, "groups": GROUPS, "counts": COUNTS}
"""Tables that have these columns and no others."""


def known_columns(options: SourceOptions) -> dict[str, Column]:
    """Every column that a reader with these options may be asked for."""
    return KAFKA if options.layout == "kafka" else MESSAGES | ON_REQUEST


def default_schema(options: SourceOptions) -> StructType:
    """What a reader has unless `.schema()` asks for something else."""
    if options.table in FIXED:
        return _struct(FIXED[options.table])
    known = known_columns(options)
    names = list(options.columns)
    if not names and options.table == "frames":
        names = list(FRAMES)
    if not names:
        names = [*(KAFKA if options.layout == "kafka" else MESSAGES)]
        if not options.include_headers:
            names.remove("headers")
    for name in names:
        if name not in known:
            raise OptionError("columns", name, f"some of {', '.join(known)}")
    return _struct({name: known[name].type for name in names})


def _struct(types: dict[str, DataType]) -> StructType:
    return StructType([StructField(name, kind) for name, kind in types.items()])


def check(options: SourceOptions, schema: StructType) -> None:
    """Refuses columns that do not exist or have another type, before anything is read."""
    if options.table in FIXED:
        types = FIXED[options.table]
    else:
        types = {name: column.type for name, column in known_columns(options).items()}
    names = schema.fieldNames()
    if not names:
        raise OptionError("schema", "", f"at least one column, some of {', '.join(types)}")
    for index, field in enumerate(schema.fields):
        if field.name not in types:
            raise OptionError("schema", field.name, f"some of {', '.join(types)}")
        if field.name in names[:index]:
            raise OptionError("schema", field.name, "each column once")
        if not field.nullable:  # Spark would believe it, and fail on the first null, or worse.
            raise OptionError(
                "schema", f"{field.name} NOT NULL", f"{field.name}, which may be null"
            )
        expected = types[field.name]
        if field.dataType.simpleString() != expected.simpleString():
            found = f"{field.name} {field.dataType.simpleString()}"
            raise OptionError("schema", found, f"{field.name} {expected.simpleString()}")


class Shape:
    """From the core's batches to Spark's."""

    core_columns: list[str]
    wants_errors: bool

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._known = known_columns(options)
        self._is_kafka = options.layout == "kafka"
        self._names = schema.fieldNames()
        self.schema: pa.Schema = arrow_schema(schema)
        needed = dict.fromkeys(self._known[name].core for name in self._names)
        self.core_columns = [name for name in needed if name] or ["offset"]
        self.wants_errors = bool({"error", "checksum_ok"} & set(self._names))

    def batch(self, found: pa.RecordBatch, constants: dict[str, Any]) -> pa.RecordBatch:
        """The rows of `found` as Spark wants them."""
        arrays = [
            self._array(found, name, field.type, constants)
            for name, field in zip(self._names, self.schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _array(
        self, found: pa.RecordBatch, name: str, kind: pa.DataType, constants: dict[str, Any]
    ) -> pa.Array:
        core = self._known[name].core
        if not core:
            return repeated(constants.get(name), kind, found.num_rows)
        array = found.column(core)
        if self._is_kafka and name == "headers":
            return _kafka_headers(array)
        return array if array.type.equals(kind) else array.cast(kind)

    def damage(self, rows: list[dict[str, Any]]) -> pa.RecordBatch:
        """Rows for what could not be read."""
        return pa.RecordBatch.from_pylist(rows, schema=self.schema)


def repeated(value: str | int | None, kind: pa.DataType, count: int) -> pa.Array:
    """A column of one value. Made from bytes: `pyarrow.scalar` would import pandas, which takes
    longer than most tasks."""
    if value is None:
        return pa.nulls(count, kind)
    if isinstance(value, str):
        parts = [struct.pack("<ii", 0, len(value.encode())), value.encode()]
    else:
        parts = [struct.pack("<q", value)]
    one = pa.Array.from_buffers(kind, 1, [None, *map(pa.py_buffer, parts)])
    return pa.repeat(one[0], count)


def _kafka_headers(array: pa.MapArray) -> pa.Array:
    pair = pa.StructArray.from_arrays([array.keys, array.items.cast(pa.binary())], ["key", "value"])
    return pa.ListArray.from_arrays(array.offsets, pair)
