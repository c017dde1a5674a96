"""The whole way through a JVM: few tests, each of something that only Spark itself can show."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from penstock import Queue
from tests.spark.helpers import bodies, fill, scanned

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def run(frame: DataFrame, folder: Path, **options: str) -> list[int]:
    """Writes all that is there to a queue; answers the rows of each micro-batch."""
    query = (
        frame.writeStream.format("penstock")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .options(**options)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return [one["numInputRows"] for one in query.recentProgress]


def test_a_queue_is_a_table_without_being_registered(spark: SparkSession, tmp_path: Path) -> None:
    path = fill(tmp_path / "q", 300)
    frame = spark.read.format("penstock").load(str(path))
    rows = frame.orderBy("offset").collect()
    assert [bytes(row.body) for row in rows] == bodies(path)
    assert rows[7].headers == {"n": "7"}
    assert int(rows[7].timestamp.timestamp() * 1e6) == scanned(path)[7]["timestamp_ns"] // 1000


def test_filters_and_columns_reach_the_source_in_both_kinds_of_session(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = fill(tmp_path / "q", 300)
    setting = "spark.sql.python.filterPushdown.enabled"
    for is_on in ("true", "false"):
        spark.conf.set(setting, is_on)
        frame = spark.read.format("penstock").schema("tag string").load(str(path))
        assert frame.where("tag = 't.1'").count() == 100
        assert frame.where("tag in ('t.1', 't.2') and tag like 't%'").count() == 200
        # Spark would keep filters that a source takes for the next query on the same frame.
        assert frame.count() == 300
        one = spark.read.format("penstock").option("pushdown", "true").load(str(path))
        assert one.where("tag = 't.1' and offset > 100").count() == 99
    spark.conf.set(setting, "true")


def test_sql_reads_a_temporary_view(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path / "a", 10)
    fill(tmp_path / "b", 5)
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW m USING penstock OPTIONS (path '{tmp_path}/*')")
    found = spark.sql("SELECT queue, count(*) n FROM m GROUP BY queue ORDER BY queue").collect()
    assert [(row.queue, row.n) for row in found] == [("a", 10), ("b", 5)]
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW b USING penstock OPTIONS (path '{tmp_path}/b', "
        f"columns 'body,tag')"
    )
    spark.sql("INSERT INTO b SELECT body, 'again' FROM m WHERE queue = 'a'")
    assert [row["tag"] for row in scanned(tmp_path / "b")].count("again") == 10


def test_a_list_of_paths_is_read(spark: SparkSession, tmp_path: Path) -> None:
    paths = [str(fill(tmp_path / name, 3)) for name in ("a", "b")]
    frame = spark.read.format("penstock").option("path", json.dumps(paths)).load()
    assert frame.count() == 6


def test_a_batch_goes_round(spark: SparkSession, tmp_path: Path) -> None:
    path = fill(tmp_path / "q", 500)
    frame = spark.read.format("penstock").option("minPartitions", "4").load(str(path))
    assert frame.rdd.getNumPartitions() >= 4
    frame.write.format("penstock").mode("append").save(str(tmp_path / "copy"))
    assert sorted(bodies(tmp_path / "copy")) == sorted(bodies(path))


def test_a_stream_goes_round_once_across_restarts(spark: SparkSession, tmp_path: Path) -> None:
    path = fill(tmp_path / "q", 100)
    source = spark.readStream.format("penstock").option("group", "g")
    source = source.option("maxOffsetsPerTrigger", "40")
    frame = source.load(str(path)).select("body", "tag", "id")
    assert run(frame, tmp_path) == [40, 40, 20]
    fill(path, 30, first=100)
    assert run(frame, tmp_path)[:1] == [30]
    assert bodies(tmp_path / "out") == bodies(path)
    with Queue(path) as queue:
        assert queue.group("g", create=False).lag == 0


def test_rows_of_a_stream_go_to_the_queues_that_they_name(
    spark: SparkSession, tmp_path: Path
) -> None:
    for name, count in (("eu", 30), ("us", 20)):
        fill(tmp_path / "in" / name, count)
    source = spark.readStream.format("penstock").option("maxOffsetsPerTrigger", "25")
    frame = source.load(str(tmp_path / "in" / "*")).select("queue", "body")
    assert sum(run(frame, tmp_path, route="true")) == 50
    for name in ("eu", "us"):
        assert bodies(tmp_path / "out" / name) == bodies(tmp_path / "in" / name)


def test_an_error_names_queue_file_and_byte(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.errors import PySparkException

    path = fill(tmp_path / "q", 100)
    (segment,) = path.glob("log/*.seg")
    raw = bytearray(segment.read_bytes())
    raw[5000] ^= 255
    segment.write_bytes(bytes(raw))
    with pytest.raises(PySparkException, match=rf"queue q: .*{segment.name}:\d+: found"):
        spark.read.format("penstock").load(str(path)).collect()


def test_a_watermark_works_on_the_timestamp(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "q"
    with Queue(path) as queue:
        for minute in range(1, 11):  # Spark takes the very first instant for late.
            for _ in range(3):
                queue.put(b"x", id=str(minute), timestamp_ns=minute * 60 * 10**9)
    frame = spark.readStream.format("penstock").load(str(path))
    once = frame.withWatermark("timestamp", "1 minute").dropDuplicatesWithinWatermark(["id"])
    run(once.select("body", "id"), tmp_path)
    assert len(bodies(tmp_path / "out")) == 10


def test_long_rows_come_to_the_sink_in_batches_of_a_few_megabytes(spark: SparkSession) -> None:
    def sizes(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.record_batch({"size": pa.array([batch.nbytes], pa.int64())})

    rows = spark.range(0, 20_000, 1, 1).selectExpr("repeat('x', 1000) AS body")
    found = [row["size"] for row in rows.mapInArrow(sizes, "size long").collect()]
    assert sum(found) > 20_000_000
    assert max(found) < 6 << 20
