"""Queues without the format "penstock": what PySpark 3.5 has, tried on the newest one too."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import penstock.spark
from penstock.errors import NoQueueError, OptionError
from tests.spark.helpers import bodies, fill

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def test_a_table_by_batches_is_the_table_of_the_format(spark: SparkSession, tmp_path: Path) -> None:
    path = fill(tmp_path / "q", 300, segment_bytes=16384)
    found = penstock.spark.read_batches(spark, path, targetPartitionBytes="5000")
    usual = spark.read.format("penstock").load(str(path))
    assert found.rdd.getNumPartitions() > 2
    assert found.schema == usual.schema
    assert found.orderBy("offset").collect() == usual.orderBy("offset").collect()
    tags = penstock.spark.read_batches(spark, [str(path)], "tag", tags="t.1")
    assert tags.groupBy("tag").count().collect() == [("t.1", 100)]
    assert penstock.spark.read_batches(spark, path, table="segments").count() > 1


def test_an_empty_queue_is_an_empty_table_and_a_missing_one_an_error(
    spark: SparkSession, tmp_path: Path
) -> None:
    assert penstock.spark.read_batches(spark, fill(tmp_path / "q", 0)).count() == 0
    with pytest.raises(NoQueueError):
        penstock.spark.read_batches(spark, tmp_path / "none")
    with pytest.raises(OptionError, match="columns"):
        penstock.spark.read_batches(spark, tmp_path / "q", "nothing")


def test_batches_of_a_stream_are_put_once_by_their_number(
    spark: SparkSession, tmp_path: Path
) -> None:
    path, copy = fill(tmp_path / "q", 100), tmp_path / "copy"

    def put(frame: DataFrame, number: int) -> None:
        for _ in range(2):  # As after a crash between the commit and Spark's own note.
            penstock.spark.write_batches(frame, copy, txnAppId="copy", txnVersion=str(number))

    put(penstock.spark.read_batches(spark, path), 0)
    put(penstock.spark.read_batches(spark, path, "body", "tag", endingOffsets="number:10"), 1)
    assert bodies(copy) == bodies(path) + bodies(path)[:10]


def test_a_failed_task_puts_nothing_and_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(4).selectExpr(
        "IF(id = 3, NULL, CAST(CAST(id AS string) AS binary)) AS body"
    )
    with pytest.raises(Exception, match="a row has no body"):
        penstock.spark.write_batches(frame, tmp_path / "q", txnAppId="a", txnVersion="0")
    penstock.spark.write_batches(frame.where("body IS NOT NULL"), tmp_path / "q")
    assert len(bodies(tmp_path / "q")) == 3
