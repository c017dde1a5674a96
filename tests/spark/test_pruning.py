"""Queries that read only what they need: the same rows, from fewer columns and segments."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import penstock.spark
from penstock import Queue
from penstock.errors import OptionError, UnsupportedError
from penstock.spark import pruning
from penstock.spark.bounds import EVERY_TAG, Bounds, TagFilter
from tests.spark.helpers import fill

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUERIES = {
    "SELECT tag, count(*) FROM {q} GROUP BY tag": {"tag"},
    "SELECT count(*) FROM {q}": set(),
    "SELECT count(*) FROM {q} a CROSS JOIN {q} b": set(),
    "SELECT queue, count(*) FROM {q} GROUP BY queue": {"queue"},
    "SELECT upper(t) FROM (SELECT tag AS t, body FROM {q})": {"tag"},
    "SELECT a.id FROM {q} a JOIN {q} b ON a.offset = b.number WHERE a.tag = 't.1'": {
        "id", "offset", "number", "tag",
    },
    "SELECT tag, (SELECT max(number) FROM {q}) FROM {q}": {"tag", "number"},
    "SELECT id FROM {q} WHERE tag IN ('t.1', 'x') AND offset >= 4096 ORDER BY offset LIMIT 5": {
        "id", "tag", "offset",
    },
    "SELECT tag, rank() OVER (PARTITION BY tag ORDER BY number) FROM {q}": {"tag", "number"},
    "WITH c AS (SELECT * FROM {q} WHERE tag = 't.1') SELECT c.number, d.id FROM c JOIN c d "
    "USING (number)": {"number", "id", "tag"},
    "SELECT headers['n'] FROM {q} WHERE tag = 'T.1' COLLATE UTF8_LCASE": {"headers", "tag"},
    "SELECT a.tag FROM {q} a LEFT ANTI JOIN {q} b ON a.number = b.number AND b.tag = 't.2'": {
        "tag", "number",
    },
    "SELECT tag, max(struct(offset, id)).id FROM {q} GROUP BY ROLLUP(tag)": {"tag", "offset", "id"},
    "SELECT * FROM {q} UNION ALL SELECT * FROM {q} WHERE tag LIKE 't.%'": {
        "queue", "offset", "number", "timestamp", "id", "key", "tag", "headers", "body",
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(fill(tmp_path_factory.mktemp("pruning") / "q", 300))


@pytest.mark.spark
@pytest.mark.parametrize("query", QUERIES)
def test_a_query_reads_the_columns_that_it_needs(
    spark: SparkSession, path: str, query: str
) -> None:
    whole = spark.sql(query, q=pruning.table(spark, path))
    (need,) = pruning._needs(pruning._optimized(whole)).values()
    assert need.columns == QUERIES[query]
    found = penstock.spark.sql(spark, query, q=path)
    assert found.columns == whole.columns
    assert sorted(map(str, found.collect())) == sorted(map(str, whole.collect()))


@pytest.mark.spark
def test_a_result_may_be_filtered_again_and_again(spark: SparkSession, path: str) -> None:
    found = penstock.spark.sql(spark, "SELECT tag, offset FROM {q} WHERE tag LIKE 't.%'", q=path)
    assert found.where("tag = 't.1'").count() == 100
    assert found.count() == 300


@pytest.mark.spark
def test_a_table_has_only_the_columns_that_were_named(spark: SparkSession, path: str) -> None:
    assert penstock.spark.table(spark, path, "tag", "offset").columns == ["tag", "offset"]
    assert "body" in penstock.spark.table(spark, Path(path)).columns
    assert penstock.spark.table(spark, [path], "tag", tags="t.1").count() == 100


@pytest.mark.spark
def test_queues_and_frames_stand_in_one_query(spark: SparkSession, path: str) -> None:
    names = spark.createDataFrame([("t.1", "one")], "tag string, name string")
    found = penstock.spark.sql(
        spark, "SELECT name, count(*) n FROM {q} JOIN {names} USING (tag) GROUP BY name",
        q=path, names=names,
    )  # fmt: skip
    assert [tuple(row) for row in found.collect()] == [("one", 100)]


@pytest.mark.spark
def test_segments_that_the_query_rejects_are_not_planned(
    spark: SparkSession, tmp_path: Path
) -> None:
    with Queue(tmp_path / "q", segment_bytes=65536) as queue:
        for number in range(200):
            queue.put(b"%d" % number * 500, timestamp_ns=number * 10**9)
        assert len(queue.store.segments(fresh=True)) > 2
        last = queue.offsets().tail
    path = str(tmp_path / "q")
    query = f"SELECT number FROM {{q}} WHERE offset < {last // 4}"
    whole = penstock.spark.table(spark, path, minPartitions="50")
    found = penstock.spark.sql(spark, query, q=path)
    assert found.count() == whole.where(f"offset < {last // 4}").count() > 0
    (need,) = pruning._needs(pruning._optimized(spark.sql(query, q=whole))).values()
    assert (need.bounds.first_offset, need.bounds.last_offset) == (0, last // 4)


@pytest.mark.spark
@pytest.mark.parametrize("query", [
    "CREATE TEMP VIEW made AS SELECT * FROM {q}", "CACHE TABLE made SELECT * FROM {q}",
    "INSERT INTO made SELECT body FROM {q}", "FROM {q} INSERT INTO made SELECT body",
    "WITH c AS (SELECT 1) INSERT INTO made SELECT body FROM {q}",
])  # fmt: skip
def test_what_would_run_twice_is_refused(spark: SparkSession, path: str, query: str) -> None:
    with pytest.raises(UnsupportedError, match="sql only reads"):
        penstock.spark.sql(spark, query, q=path)
    assert not spark.catalog.tableExists("made")


def test_bounds_only_become_narrower_where_a_comparison_says_so() -> None:
    bounds = Bounds().narrowed("GreaterThan", "offset", [10]).narrowed("LessThan", "offset", [20])
    assert (bounds.first_offset, bounds.last_offset) == (10, 20)
    assert bounds.narrowed("EqualTo", "body", [1]) == bounds
    assert bounds.narrowed("In", "offset", [1, 2]) == bounds
    tagged = bounds.narrowed("In", "tag", ["a", "b"])
    assert tagged.tags == TagFilter("a;b", "exact")
    assert tagged.narrowed("EqualTo", "tag", ["c"]) == tagged
    assert bounds.narrowed("EqualTo", "tag", ["a;b"]).tags == EVERY_TAG
    assert tagged.around(bounds).tags == EVERY_TAG
    assert Bounds.from_text(tagged.as_text()) == tagged
    with pytest.raises(OptionError, match="bounds"):
        Bounds.from_text("{}x")


def test_a_pyspark_without_python_sources_is_refused_with_advice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import pyspark

    monkeypatch.setattr(pyspark, "__version__", "3.5.8")
    for call in (penstock.spark.register, lambda _: penstock.spark.table(None, "q")):  # type: ignore[arg-type]
        with pytest.raises(UnsupportedError, match=r"read_batches"):
            call(None)  # type: ignore[arg-type]
