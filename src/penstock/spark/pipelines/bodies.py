"""Bodies as columns: from JSON, or from CBOR by way of JSON."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from penstock.engine.codecs import CBOR_LIMITS
from penstock.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BAD = "_bad"
SAMPLE = 1000


def with_text(frame: DataFrame, decode: str) -> DataFrame:
    """With a column `_text`: the body as JSON, null where it is none."""
    if decode == "json":
        return frame.withColumn("_text", F.try_validate_utf8(F.col("body").cast("string")))
    if decode != "cbor":
        raise OptionError("decode", decode, "json or cbor")
    if find_spec("cbor2") is None:
        raise OptionError("decode", decode, "the package cbor2, here and on executors: "
                          "pip install cbor2")  # fmt: skip
    schema = StructType([*frame.schema.fields, StructField("_text", StringType())])
    return frame.mapInArrow(_cbor_to_json, schema)


def _cbor_to_json(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import cbor2

    def text(body: bytes | None) -> str | None:
        try:
            return json.dumps(cbor2.loads(body or b"", **CBOR_LIMITS), default=_plain)
        except (cbor2.CBORDecodeError, ValueError, TypeError, RecursionError):
            return None

    for batch in batches:
        texts = pa.array([text(body.as_py()) for body in batch.column("body")], pa.string())
        yield batch.append_column("_text", texts)


def _plain(value: object) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value)


def infer(frame: DataFrame, decode: str) -> str:
    """The columns of the first bodies, as DDL."""
    sample = with_text(frame.limit(SAMPLE), decode).select("_text").dropna()
    texts = [row[0] for row in sample.collect()]
    if not texts:
        raise OptionError("schema", "infer", "a body to look at; give the columns as DDL")
    spark = frame.sparkSession
    found = spark.read.json(spark.sparkContext.parallelize(texts))
    kept = [field for field in found.schema.fields if field.name != "_corrupt_record"]
    if not kept:
        raise OptionError("schema", "infer", f"{decode} objects; none of the bodies is one")
    return ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in kept)


def typed(frame: DataFrame, schema: str) -> DataFrame:
    """With the columns of `schema`, and `_bad`: why a body is none, or null."""
    parsed = F.from_json("_text", f"{schema}, _corrupt string", _PERMISSIVE)
    frame = frame.withColumn("_parsed", parsed)
    why = (
        F.when(F.col("_text").isNull(), F.lit("the body can't be decoded"))
        .when(F.col("_parsed").isNull(), F.lit("the body is no object"))
        .when(F.col("_parsed._corrupt").isNotNull(), F.lit("the body does not fit the schema"))
    )
    return frame.withColumn(BAD, why).withColumn("data", F.col("_parsed").dropFields("_corrupt"))


_PERMISSIVE = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_corrupt"}
