"""docs/spark.md says what the options are called, and its examples run as they stand there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock import Queue
from penstock.spark import options, schema, sink
from penstock.spark.pipelines import NAMES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "spark.md").read_text()


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.mark.spark
def test_the_python_and_the_sql_of_the_page_run(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Queue(tmp_path / "data" / "orders") as queue:
        queue.put_many([b"1", b"2"], tag="eu.created")
    (readme,) = (text for text in blocks((ROOT / "README.md").read_text(), "python")
                 if "spark" in text)  # fmt: skip
    examples = [
        readme.replace('"orders")      #', '"/data/orders")      #'),
        *blocks(PAGE, "python"),
    ]
    scope: dict[str, Any] = {}
    for text in examples:
        # Spark's paths begin where its JVM was started.
        text = re.sub(r'"(lake/|checkpoint")', rf'"{tmp_path}/\1', text)
        text = text.replace("/data/", f"{tmp_path}/data/")
        exec(text, scope)
        scope["df"] = scope["orders"]
        source = spark.readStream.format("penstock").option("group", "copy")
        scope["frame"] = source.load(str(tmp_path / "data" / "orders")).select("body", "tag")
    for name in ("stream", "query"):
        scope[name].processAllAvailable()
        scope[name].stop()
    assert spark.read.parquet(str(tmp_path / "lake" / "orders")).count() == 2
    assert spark.read.format("penstock").load(str(tmp_path / "data" / "out")).count() == 4
    (sql,) = blocks(PAGE, "sql")
    *before, last = [part for part in sql.split(";") if part.strip()]
    for statement in before:
        spark.sql(statement.replace("/data/", f"{tmp_path}/data/"))
    assert spark.sql(last).collect() == [("eu.created", 2)]
    assert "eu.created" in capsys.readouterr().out


@pytest.mark.spark
def test_the_page_for_people_from_kafka_runs(spark: SparkSession, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "migrate" / "kafka-in-spark.md").read_text()
    for text in blocks(page, "python"):
        exec(text.replace('"orders"', f'"{tmp_path}/orders"'), {})


def named(heading: str) -> list[str]:
    """The options in the first column of a section's table."""
    _, _, section = PAGE.partition(f"\n## {heading}\n")
    rows = re.findall(r"^\| (`.*?) \|", section.partition("\n## ")[0], re.MULTILINE)
    return [name for row in rows for name in re.findall(r"`(\w+)`", row)]


def test_the_table_beside_kafkas_has_every_option_of_the_source_and_no_other() -> None:
    assert sorted(named("Options, beside Kafka's")) == sorted([*options.SPELLED, "path"])


def test_the_sinks_table_has_every_option_of_the_sink_and_no_other() -> None:
    explained = {"path", "columns"}  # in the text, and among the source's
    assert set(named("Writing")) == set(sink.SPELLED) - explained


@pytest.mark.parametrize("name", [*schema.MESSAGES, *schema.ON_REQUEST])
def test_every_column_is_on_the_page(name: str) -> None:
    assert name in PAGE


@pytest.mark.parametrize("name", NAMES)
def test_every_pipeline_is_on_the_page(name: str) -> None:
    assert f"`{name}`" in PAGE or f"run {name}" in PAGE
