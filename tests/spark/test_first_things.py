"""The section of docs/first-things.md that needs Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.test_first_things import BLOCK, PAGE, SECTIONS, SPARK


@pytest.mark.spark
def test_a_stream_looks_as_the_page_says(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = dict(BLOCK.findall(SECTIONS[SPARK]))
    # The JVM was started elsewhere: what is relative for a reader is not for it, and its console is
    # not ours. A table in memory shows the same rows.
    here = blocks["python"].replace('load("events")', f'load("{tmp_path}/events")')
    here = here.replace('format("console")', 'format("memory").queryName("seen")')
    exec(compile(here, str(PAGE), "exec"), {})
    spark.table("seen").orderBy("offset").show()
    assert capsys.readouterr().out.strip() in blocks["text"]
