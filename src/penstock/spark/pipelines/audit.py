"""Audit: is every frame whole, is any number missing, is any id there twice, and what is in it.

Reads everything once with its checksums, passing damage over, and writes `audit.html` (one file,
no scripts) and `audit.json` to the folder `to`. `ok` is false when anything is wrong.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pyspark.sql import Window
from pyspark.sql import functions as F

from penstock import _core
from penstock.disk import files
from penstock.spark.pipelines import report
from penstock.spark.pipelines.request import Request, Run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

COLUMNS = "queue,offset,number,timestamp,id,tag,length,segment,position,checksum_ok,error"
MOST = 100
"""Faults of one kind that are listed."""


def run(spark: SparkSession, request: Request, record: Run) -> dict[str, Any]:
    """Looks at everything; writes the report if `to` is given."""
    folder = request.local_target() if request.to else None
    if request.dry_run:
        return request.plan()
    frame = request.batch(spark, columns=COLUMNS, failOnDataLoss="false").persist()
    try:
        facts = found(frame)
    finally:
        frame.unpersist()
    record.count(facts["messages"])
    record.bytes = facts["bytes"]
    if folder is not None:
        files.make_folder(folder)
        text = json.dumps(facts, indent=1, default=str)
        _core.replace_file(folder / "audit.json", text.encode())
        _core.replace_file(folder / "audit.html", report.html(facts).encode())
    return facts


def found(frame: DataFrame) -> dict[str, Any]:
    """Everything that the report says, as plain values."""
    good, bad = frame.where("error is null"), frame.where("error is not null")
    total = good.agg(
        F.count(F.lit(1)), F.sum("length"), F.min("timestamp"), F.max("timestamp"),
        F.sum(F.when(F.col("checksum_ok").isNull(), 1).otherwise(0)),
    ).collect()[0]  # fmt: skip
    gaps, doubles = _gaps(good), _doubles(good)
    damage = bad.select("queue", "segment", "position", "length", "error").limit(MOST).collect()
    facts: dict[str, Any] = {
        "messages": int(total[0]),
        "bytes": int(total[1] or 0),
        "first": total[2],
        "last": total[3],
        "unchecked": int(total[4] or 0),
        "corrupt": bad.count(),
        "damage": _plain(damage),
        "gaps": _plain(gaps.limit(MOST).collect()),
        "duplicates": _plain(doubles.limit(MOST).collect()),
        "queues": _plain(_by(good, F.col("queue")).collect()),
        "tags": _plain(_by(good, F.col("tag")).orderBy(F.desc("messages")).limit(50).collect()),
        "hours": _plain(
            _by(good, F.date_trunc("hour", "timestamp").alias("hour")).orderBy("hour").collect()
        ),
    }
    facts["ok"] = not (facts["corrupt"] or facts["gaps"] or facts["duplicates"])
    return facts


def _by(frame: DataFrame, column: Any) -> DataFrame:
    return frame.groupBy(column).agg(
        F.count(F.lit(1)).alias("messages"), F.sum("length").alias("bytes")
    )


def _gaps(frame: DataFrame) -> DataFrame:
    """Where a number does not follow the one before it."""
    order = Window.partitionBy("queue").orderBy("offset")
    step = frame.where("number is not null").select(
        "queue", "offset", "number", F.lag("number").over(order).alias("before")
    )
    return step.where("before is not null and number != before + 1")


def _doubles(frame: DataFrame) -> DataFrame:
    """Ids that come more than once in a queue."""
    counts = frame.where("id is not null").groupBy("queue", "id").count()
    return counts.where("count > 1").orderBy(F.desc("count"))


def _plain(rows: list[Row]) -> list[dict[str, Any]]:
    return [row.asDict() for row in rows]
