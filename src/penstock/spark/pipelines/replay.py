"""Replay: a range of messages, chosen by offset, time or tag, put again to another queue.

The order within each queue stays. Given a name and a version (`txnAppId`, `txnVersion` in the
options), a replay that is repeated puts nothing twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.spark.pipelines.request import Request, Run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CARRIED = ("body", "tag", "id", "key", "headers", "timestamp_ns")


def run(spark: SparkSession, request: Request, record: Run) -> dict[str, Any]:
    """Puts the range to the queue `to`."""
    target, request = request.target(), request.pinned()
    columns = ",".join(CARRIED)
    if request.dry_run:
        rows = request.batch(spark, columns="offset").count()
        return request.plan() | {"rows": rows}
    frame = request.batch(spark, columns=columns).select(*CARRIED)
    frame.write.format("penstock").mode("append").options(**request.options).save(target)
    rows = request.batch(spark, columns="offset").count()
    record.count(rows)
    return {"to": target, "rows": rows}
