"""Lag: how far every group of every queue is behind, Spark's own among them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.spark.pipelines.request import Request, Run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(spark: SparkSession, request: Request, record: Run) -> dict[str, Any]:
    """A table of groups; written to `to` if that is given."""
    request.refuse_queues()
    target = request.table_target() if request.to else ""
    if request.dry_run:
        return request.plan()
    frame = request.batch(spark, table="groups")
    rows = [row.asDict() for row in frame.orderBy("queue", "group").collect()]
    record.count(len(rows))
    if target:
        frame.write.format(request.format).mode("append").options(**request.options).save(target)
    return {"groups": rows}
