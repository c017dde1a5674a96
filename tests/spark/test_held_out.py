"""Damaged queues of every layout through Spark itself: batch, SQL and streams, beside `cat`.

The same queues as in `test_one_rule`, which calls the readers without a JVM. Here is what only
Spark shows: that an error in a planner or a task ends the query, and that rows arrive as they were.
"""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import penstock.spark
from penstock.cli import main
from penstock.spark.versions import HAS_LIMITS
from tests.spark.damaging import CASES, CONTRADICTIONS, DAMAGE, filled, segments

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

Spoil = Callable[[Path, str], None]
OPTIONS = {"columns": "queue,offset,body", "targetPartitionBytes": "8k"}
DELETING = ("beats", "vqs")
"""Formats whose streams delete what they have read, and whose queues are streams of one group."""


def by_damage() -> list[tuple[str, str, str, Spoil]]:
    def of(damage: Callable[[list[Path]], None]) -> Spoil:
        return lambda path, kind: damage(segments(path, kind))

    def word(change: Callable[[Path], None]) -> Spoil:
        return lambda path, _: change(path)

    files = [(kind, layout, damage.__name__, of(damage)) for kind, layout in CASES
             for damage in DAMAGE]  # fmt: skip
    words = [(kind, layout, change.__name__, word(change))
             for kind, layout, change in CONTRADICTIONS]  # fmt: skip
    return files + words


class Judged:
    """One damaged queue, and what the command line says of it."""

    def __init__(self, path: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.path = path
        capfd.readouterr()
        self.code = main(["verify", str(path), "--json"])
        self.is_corrupt = json.loads(capfd.readouterr().out)["corrupt"] or self.code == 2
        main(["cat", str(path), "--json"])
        lines = capfd.readouterr().out.splitlines()
        found = map(json.loads, lines)
        self.rows = [(one["offset"], base64.b64decode(one["body"])) for one in found]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("damaged")


@pytest.fixture
def judged(folder: Path, capfd: pytest.CaptureFixture[str]) -> list[Judged]:
    found = []
    for kind, layout, name, spoil in by_damage():
        path = folder / f"{kind}-{layout}-{name}"
        if not path.exists():
            spoil(filled(path, kind, layout), kind)
        found.append(Judged(path, capfd))
    return found


def rows_by_queue(frame: DataFrame) -> dict[str, list[tuple[int, bytes]]]:
    found: dict[str, list[tuple[int, bytes]]] = {}
    for row in frame.collect():
        found.setdefault(Path(row.queue).name, []).append((row.offset, bytes(row.body)))
    return {name: sorted(rows) for name, rows in found.items()}


def wanted(queues: list[Judged]) -> dict[str, list[tuple[int, bytes]]]:
    return {one.path.name: one.rows for one in queues if one.rows}


def paths(queues: list[Judged]) -> str:
    return json.dumps([str(one.path) for one in queues])


def test_a_tolerant_query_has_the_rows_of_cat(spark: SparkSession, judged: list[Judged]) -> None:
    readable = [one for one in judged if one.code < 2]
    assert len(readable) > len(judged) // 2
    reader = spark.read.format("penstock").options(**OPTIONS, failOnDataLoss="false")
    frame = reader.option("path", paths(readable)).load()
    assert rows_by_queue(frame) == wanted(readable)
    text = "SELECT queue, count(*) n, max(offset) last FROM {q} GROUP BY queue"
    summed = {Path(row.queue).name: (row.n, row.last)
              for row in penstock.spark.sql(spark, text, q=frame).collect()}  # fmt: skip
    assert summed == {name: (len(rows), rows[-1][0]) for name, rows in wanted(readable).items()}


def test_a_strict_query_fails_where_verify_finds_damage(
    spark: SparkSession, judged: list[Judged]
) -> None:
    wrong = []
    for one in judged:
        frame = spark.read.format("penstock").options(**OPTIONS).load(str(one.path))
        rows = None
        with contextlib.suppress(Exception):
            rows = rows_by_queue(frame).get(one.path.name, [])
        fits = None if one.is_corrupt else one.rows
        if rows != fits:
            wrong.append(one.path.name)
    assert not wrong


def test_a_tolerant_stream_has_the_rows_of_cat(
    spark: SparkSession, judged: list[Judged], tmp_path: Path
) -> None:
    readable = [one for one in judged if one.code < 2]
    for is_deleting in (False, True):
        some = [one for one in readable if one.path.name.startswith(DELETING) == is_deleting]
        reader = spark.readStream.format("penstock").options(**OPTIONS, failOnDataLoss="false")
        if is_deleting:
            reader = reader.option("group", "default")
        if HAS_LIMITS:
            reader = reader.option("maxOffsetsPerTrigger", "2000")
        frame = reader.option("path", paths(some)).load()
        name = f"damaged_{is_deleting}"
        query = frame.writeStream.format("memory").queryName(name).trigger(availableNow=True)
        query.start().awaitTermination()
        assert rows_by_queue(spark.table(name)) == wanted(some)
