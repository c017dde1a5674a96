"""docs/spark.md says what the options are called; a test that reads both keeps them together."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.spark import options, schema, sink
from penstock.spark.pipelines import NAMES

PAGE = (Path(__file__).parent.parent.parent / "docs" / "spark.md").read_text()


@pytest.mark.parametrize("name", [*options.SPELLED, "path"])
def test_every_option_of_the_source_is_in_the_table(name: str) -> None:
    assert f"`{name}`" in PAGE


@pytest.mark.parametrize("name", sorted(sink.KNOWN - {"queryname", "checkpointlocation"}))
def test_every_option_of_the_sink_is_on_the_page(name: str) -> None:
    assert f"`{name}`" in PAGE.lower()


@pytest.mark.parametrize("name", [*schema.MESSAGES, *schema.ON_REQUEST])
def test_every_column_is_on_the_page(name: str) -> None:
    assert name in PAGE


@pytest.mark.parametrize("name", NAMES)
def test_every_pipeline_is_on_the_page(name: str) -> None:
    assert f"`{name}`" in PAGE or f"run {name}" in PAGE
