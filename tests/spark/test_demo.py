"""The Spark acts of `penstock demo`, on a few messages, in the session that the tests share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.spark import demo
from tests.spark.helpers import fill

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
def test_the_demo_tells_its_whole_story(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(spark), "stop", lambda self: None)
    said: list[str] = []
    story = {
        "messages": 300, "missing": 0, "course": [(0.0, 0, 0), (0.5, 300, 300)],
        "marks": [(0.2, "kill -9: producer 1")],
    }  # fmt: skip
    facts = demo.act(
        fill(tmp_path / "q", 300), tmp_path, said.append, tmp_path / "kept", 500, story
    )
    assert facts["ok"], facts
    assert (facts["rows"], facts["alerts"], facts["converted"]) == (1300, 10, 500)
    assert (facts["killed_tasks"], facts["audited"]) == (1, 800)
    assert "<svg" in (tmp_path / "kept" / "audit.html").read_text()
    page = Path(facts["page"]).read_text()
    assert page.count("<svg") == 2
    for words in ("kill -9: producer 1", "nothing was lost", 'href="audit.html"', "seconds"):
        assert words in page, words
    assert any("each once" in line for line in said)
