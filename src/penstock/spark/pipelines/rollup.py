"""Rollup: how many messages and bytes per queue, tag and minute.

As a batch the whole range is counted and the result replaced; with `follow` it is a stream that
adds a window once nothing more can come for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from penstock.spark.pipelines.request import Request, Run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def counted(frame: DataFrame, window: str) -> DataFrame:
    """Messages and bytes per window, queue and tag."""
    return (
        frame.groupBy(F.window("timestamp", window).alias("w"), "queue", "tag")
        .agg(
            F.count(F.lit(1)).alias("messages"),
            F.sum(F.length("body")).alias("bytes"),
            F.min("timestamp").alias("first"),
            F.max("timestamp").alias("last"),
        )
        .select(F.col("w.start").alias("start"), F.col("w.end").alias("end"), "queue", "tag",
                "messages", "bytes", "first", "last")
    )  # fmt: skip


def run(spark: SparkSession, request: Request, record: Run) -> dict[str, Any]:
    """Counts messages per queue, tag and minute, and writes the counts to `to`."""
    request.refuse_queues()
    target = request.table_target(replaces=True)
    if request.dry_run:
        return request.plan("rollup" if request.follow else "") | {"window": request.window}
    if request.follow:
        frame = request.stream(spark).withWatermark("timestamp", request.watermark)
        query = (
            counted(frame, request.window)
            .writeStream.format(request.format)
            .option("path", target)
            .option("checkpointLocation", request.checkpoint_folder("rollup"))
            .options(**request.options)
            .outputMode("append")
            .queryName(record.id)
            .trigger(**request.trigger())
            .start()
        )
        return {"to": target, "batches": record.drain(query)}
    frame = request.batch(spark, columns="queue,timestamp,tag,body")
    counts = counted(frame, request.window).persist()
    counts.write.format(request.format).mode("overwrite").options(**request.options).save(target)
    total = counts.agg(F.sum("messages"), F.sum("bytes"), F.count(F.lit(1))).collect()[0]
    counts.unpersist()
    record.count(int(total[0] or 0))
    record.bytes = int(total[1] or 0)
    return {"to": target, "windows": int(total[2])}
