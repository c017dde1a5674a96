"""Convert: to a queue of another format, then both are read again and compared.

Row by row in order, by a hash of everything that the new format keeps. What it has no place for
is refused by the sink before anything is written; say which columns to leave out with
`options={"drop": "tag,id"}`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from penstock.errors import OptionError, PenstockError
from penstock.spark.pipelines.request import Request, Run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CARRIED = ("body", "tag", "id", "key", "headers", "timestamp_ns")


class UnequalError(PenstockError):
    """The copy does not hold what the source holds."""


def digest(frame: DataFrame, columns: list[str]) -> tuple[int, int]:
    """Rows, and a hash that does not depend on where tasks were cut."""
    parts = [F.to_json(name) if name == "headers" else F.col(name) for name in columns]
    one = F.xxhash64(*parts).cast("decimal(38,0)")
    found = frame.agg(F.count(F.lit(1)), F.sum(one)).collect()[0]
    return int(found[0]), int(found[1] or 0)


def run(spark: SparkSession, request: Request, record: Run) -> dict[str, Any]:
    """Copies to the queue `to`, which must be new."""
    target, options = request.target(), dict(request.options)
    dropped = [name for name in options.pop("drop", "").split(",") if name]
    columns = [name for name in CARRIED if name not in dropped]
    if len(request.sources) != 1 or "*" in request.sources[0]:
        raise OptionError("source", list(request.sources), "one queue")
    if request.dry_run:
        return request.plan() | {"columns": columns}
    frame = request.batch(spark, columns=",".join(columns)).select(*columns)
    frame.write.format("penstock").mode("append").options(**options).save(target)
    compared = [name for name in columns if name != "timestamp_ns"]
    reading = {k: v for k, v in options.items() if k.lower() in ("keyfile", "keyenv")}
    copy = spark.read.format("penstock").options(**reading, columns=",".join(compared)).load(target)
    before, after = digest(frame.select(*compared), compared), digest(copy, compared)
    if before != after:
        raise UnequalError(f"{target} holds {after[0]} rows that hash to {after[1]}; the source "
                           f"has {before[0]} that hash to {before[1]}")  # fmt: skip
    record.count(before[0])
    return {"to": target, "rows": before[0], "compared": compared, "ok": True}
