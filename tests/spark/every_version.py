"""What every PySpark can do with queues, run as a program: `python every_version.py`.

3.5 has no Python data sources: there only what goes through `mapInArrow` is tried.

Kept apart from the tests so that it needs nothing but PySpark and penstock.
"""

from __future__ import annotations

import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

import penstock
import penstock.spark


def main(folder: Path) -> None:
    spark = penstock.spark.session("versions")
    orders = folder / "orders"
    with penstock.Queue(orders) as queue:
        for number in range(100):
            queue.put(b"%d" % number, tag=f"t{number % 4}", id=f"m{number}")
    arrow(spark, orders, folder)
    if pyspark.__version__ >= "4":
        penstock.spark.register(spark)
        penstock.spark.register(spark)  # A notebook's cell is run again.
        batch(spark, orders)
        write(spark, orders, folder / "copy")
        stream(spark, orders, folder)
    print(f"pyspark {pyspark.__version__}, pandas {version('pandas')}: all fine")


def arrow(spark: SparkSession, orders: Path, folder: Path) -> None:
    table = penstock.spark.read_batches(spark, orders, targetPartitionBytes="2000")
    assert table.rdd.getNumPartitions() > 2
    assert table.where("tag = 't1'").count() == 25
    for number in (0, 1, 1):
        penstock.spark.write_batches(
            table, folder / "put", txnAppId="versions", txnVersion=str(number)
        )
    assert bodies(folder / "put") == sorted(2 * bodies(orders))


def batch(spark: SparkSession, orders: Path) -> None:
    reader = spark.read.format("penstock")
    table = reader.load(str(orders))
    assert table.count() == 100
    assert table.where("tag = 't1'").count() == 25
    text = "SELECT tag, count(*) n FROM {q} WHERE tag <> 't0' GROUP BY tag"
    assert [row.n for row in penstock.spark.sql(spark, text, q=orders).collect()] == [25] * 3
    assert reader.option("pushdown", "true").load(str(orders)).where("tag = 't1'").count() == 25
    kafka = spark.read.format("penstock").option("layout", "kafka").load(str(orders))
    assert [row.value for row in kafka.orderBy("offset").limit(2).collect()] == [b"0", b"1"]
    tags = spark.read.format("penstock").schema("tag string").load(str(orders))
    assert tags.distinct().count() == 4


def write(spark: SparkSession, orders: Path, copy: Path) -> None:
    table = spark.read.format("penstock").load(str(orders))
    table.write.format("penstock").mode("append").save(str(copy))
    assert bodies(copy) == bodies(orders)


def stream(spark: SparkSession, orders: Path, folder: Path) -> None:
    for _ in range(2):
        source = spark.readStream.format("penstock").option("group", "spark").load(str(orders))
        query = (
            source.writeStream.format("penstock")
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(folder / "streamed"))
        )
        query.awaitTermination()
        assert bodies(folder / "streamed") == bodies(orders)
        with penstock.Queue(orders) as queue:
            queue.put_many([b"more", b"and more"])


def bodies(path: Path) -> list[bytes]:
    with penstock.Queue(path, read_only=True) as queue:
        return sorted(message.body for message in queue.scan())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(sys.argv[1] if len(sys.argv) > 1 else folder))
