"""Bronze: every message as it is, to files, once.

A stream that takes what is there and stops; the next run goes on where this one was. Spark's file
sink writes each micro-batch once. Files are partitioned by queue and day. Delta and Iceberg tables
are written by Spark where it has their jars, and else by their Python packages (see `lake`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from penstock.spark.pipelines import lake
from penstock.spark.pipelines.request import Request, Run, query_id
from penstock.spark.session import listen_for_callbacks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


FILES = ("parquet", "orc", "json", "csv", "delta", "iceberg")
"""Formats that are folders of files; others (penstock, Kafka) get the messages and no more."""


def run(spark: SparkSession, request: Request, record: Run) -> dict[str, Any]:
    """Takes what is new to `to`."""
    is_files = request.format in FILES
    target = request.table_target() if is_files else request.target()
    if request.dry_run:
        return request.plan("bronze")
    frame = request.stream(spark)
    if is_files and "timestamp" in frame.columns:
        frame = frame.withColumn("date", F.to_date("timestamp"))
    if lake.is_ours(spark, request.format):
        return {"to": target, "batches": _to_lake(spark, request, record, frame, target)}
    writer = (
        frame.writeStream.format(request.format)
        .option("path", target)
        .option("checkpointLocation", request.checkpoint_folder("bronze"))
        .options(**request.options)
        .queryName(record.id)
    )
    by = [name for name in ("queue", "date") if is_files and name in frame.columns]
    writer = writer.partitionBy(*by) if by else writer
    batches = record.drain(writer.trigger(**request.trigger()).start())
    return {"to": target, "batches": batches}


def _to_lake(
    spark: SparkSession, request: Request, record: Run, frame: DataFrame, target: str
) -> int:
    table = lake.open_table(request, target)

    def write(batch: DataFrame, number: int) -> None:
        lake.append(table, batch, f"bronze-{query_id(batch)}", number)

    listen_for_callbacks(spark)
    writer = (
        frame.writeStream.foreachBatch(write)
        .option("checkpointLocation", request.checkpoint_folder("bronze"))
        .queryName(record.id)
    )
    return record.drain(writer.trigger(**request.trigger()).start())
