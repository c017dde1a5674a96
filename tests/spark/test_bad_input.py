"""What goes wrong is a Spark error that says where: never an empty table, never fewer rows."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock import Queue
from tests.spark.helpers import batch, fill

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def read(spark: SparkSession, path: object, **options: str) -> DataFrame:
    return spark.read.format("penstock").options(**options).load(str(path))


def damaged(path: Path) -> Path:
    fill(path, 100)
    flip(path, b"body-50")
    return path


def flip(path: Path, body: bytes) -> None:
    (segment,) = path.glob("log/*.seg")
    raw = bytearray(segment.read_bytes())
    raw[raw.index(body)] ^= 1
    segment.write_bytes(bytes(raw))


def empty(path: Path) -> Path:
    path.mkdir()
    return path


CASES: dict[str, tuple[Callable[[SparkSession, Path], Any], str]] = {
    "a missing path": (lambda s, p: read(s, p / "nothing").count(), r"nothing: no queue is here"),
    "no queue there": (lambda s, p: read(s, empty(p / "empty")).count(), r"empty: no queue"),
    "a glob of nothing": (lambda s, p: read(s, p / "*").count(), r"\*: no queue is here"),
    "a corrupt segment": (
        lambda s, p: read(s, damaged(p / "q")).collect(), r"queue q: .*0\.seg:\d+: found",
    ),
    "a missing key": (
        lambda s, p: read(s, fill(p / "q", 5, key=bytes(32))).collect(), r"q.*encrypted.*key",
    ),
    "an unknown column": (
        lambda s, p: read(s, fill(p / "q", 5), columns="bodi").count(), r"bodi.*expected some of",
    ),
    "an unknown column of a schema": (
        lambda s, p: s.read.format("penstock").schema("bodi binary").load(str(fill(p / "q", 1)))
        .collect(), r"bodi.*expected some of",
    ),
    "an unknown option": (
        lambda s, p: read(s, fill(p / "q", 5), startingOfsets="1").count(), r"startingOffsets",
    ),
    "overwriting": (
        lambda s, p: read(s, fill(p / "q", 5)).write.format("penstock").mode("overwrite")
        .save(str(p / "q")), r"only ever appended to",
    ),
    "a table without bodies": (
        lambda s, p: s.range(3).write.format("penstock").mode("append").save(str(p / "q")),
        r"no column body",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_batch_fails_and_says_where(spark: SparkSession, tmp_path: Path, case: str) -> None:
    from pyspark.errors import PySparkException

    work, text = CASES[case]
    with pytest.raises(PySparkException, match=f"(?s){text}"):
        work(spark, tmp_path)


def test_damage_that_may_be_lost_is_passed_over_and_shown(
    spark: SparkSession, tmp_path: Path
) -> None:
    frame = read(spark, damaged(tmp_path / "q"), failOnDataLoss="false", columns="body,error")
    rows = frame.collect()
    assert len([row for row in rows if row.error is None]) == 99
    assert [row.error for row in rows if row.error is not None] != []


def drain(spark: SparkSession, path: Path, **options: str) -> int:
    frame = spark.readStream.format("penstock").options(**options).load(str(path))
    folder = path.parent
    query = (
        frame.select("body")
        .writeStream.format("parquet")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return sum(one["numInputRows"] for one in query.recentProgress)


def trim(path: Path) -> None:
    with Queue(path, segment_bytes=1 << 18) as queue:
        for _ in range(1500):
            queue.put(bytes(1000))
        queue.trim("latest")


def make_anew(path: Path) -> None:
    shutil.rmtree(path)
    fill(path, 7)


def damage_what_comes(path: Path) -> None:
    fill(path, 10, first=10)
    flip(path, b"body-15")


@pytest.mark.parametrize(
    ("harm", "text"),
    [
        (trim, r"queue q: retention removed offsets \d+ to \d+"),
        (make_anew, r"queue q: .* was made anew"),
        (damage_what_comes, r"queue q: .*0\.seg:\d+: found"),
    ],
)
def test_a_stream_notices_what_happened_to_its_queue(
    spark: SparkSession, tmp_path: Path, harm: Callable[[Path], None], text: str
) -> None:
    from pyspark.errors import PySparkException

    path = fill(tmp_path / "q", 10)
    assert drain(spark, path) == 10
    harm(path)
    with pytest.raises(PySparkException, match=f"(?s){text}"):
        drain(spark, path)
    assert drain(spark, path, failOnDataLoss="false") > 0


def test_a_queue_that_another_program_owns_is_no_stream(
    spark: SparkSession, tmp_path: Path
) -> None:
    from pyspark.errors import PySparkException

    path = tmp_path / "q"
    with Queue(path, format="beats") as queue:
        queue.put(b"a")
    shutil.rmtree(path / ".penstock")
    assert read(spark, path).count() == 1
    with pytest.raises(PySparkException, match=r"(?s)q: a beats queue deletes what was read"):
        drain(spark, path, group="g")


def test_a_torn_tail_is_never_silent(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "q"
    with Queue(path, format="zbus") as queue:
        queue.put_many([b"body"] * 10)
    shutil.rmtree(path / ".penstock")  # As the original leaves it.
    (block,) = (path / "data").iterdir()
    with block.open("ab") as stream:
        stream.write(b"a frame that was never published")
    assert len(batch(path)) == 10
    assert "torn: " in caplog.text
    assert "stray bytes after the end" in caplog.text
