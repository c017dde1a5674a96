"""From one queue to another through Spark, each message once, however often it is restarted."""

from __future__ import annotations

import tempfile
from pathlib import Path

from pyspark.sql import functions as F

import penstock.spark
from penstock import Queue


def run(folder: Path) -> None:
    spark = penstock.spark.session("stream")
    spark.sparkContext.setLogLevel("ERROR")
    orders = (
        spark.readStream.format("penstock")
        .option("group", "shouting")  # retention waits, and lag tools see how far the stream is
        .load(str(folder / "orders"))
    )
    loud = orders.select(F.upper(F.col("body").cast("string")).alias("body"), "tag", "id")
    for attempt in range(2):  # the second run finds nothing to do
        query = (
            loud.writeStream.format("penstock")
            .option("path", str(folder / "loud"))
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        with Queue(folder / "loud", read_only=True) as queue:
            print(f"run {attempt + 1}: {len(queue)} messages")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        with Queue(Path(place) / "orders") as queue:
            queue.put_many([b"order %d" % number for number in range(1000)])
        run(Path(place))
