"""Bronze: every message as it is, to files, once.

A stream that takes what is there and stops; the next run goes on where this one was. Spark's file
sink writes each micro-batch once. Partitioned by queue and day.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from penstock.spark.pipelines.request import Request, Run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(spark: SparkSession, request: Request, record: Run) -> dict[str, Any]:
    """Takes what is new to `to`."""
    target = request.target()
    if request.dry_run:
        return request.plan()
    frame = request.stream(spark)
    if "timestamp" in frame.columns:
        frame = frame.withColumn("date", F.to_date("timestamp"))
    writer = (
        frame.writeStream.format(request.format)
        .option("path", target)
        .option("checkpointLocation", request.checkpoint_folder("bronze"))
        .options(**request.options)
        .queryName(record.id)
    )
    by = [name for name in ("queue", "date") if name in frame.columns]
    if request.format == "penstock":
        by = []
    writer = writer.partitionBy(*by) if by else writer
    trigger = {"processingTime": "1 second"} if request.follow else {"availableNow": True}
    batches = record.drain(writer.trigger(**trigger).start())
    return {"to": target, "batches": batches}
