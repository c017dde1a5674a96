"""The examples about Spark run as they are, in the session that the tests share."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parent.parent.parent / "examples"

pytestmark = pytest.mark.spark


@pytest.fixture
def output(
    spark: SparkSession, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> str:  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["example"])
    runpy.run_path(str(EXAMPLES / request.param), run_name="__main__")
    return capsys.readouterr().out


@pytest.mark.parametrize("output", ["spark_table.py"], indirect=True)
def test_a_spool_becomes_a_table(output: str) -> None:
    assert "| info|     270|" in output


@pytest.mark.parametrize("output", ["spark_stream.py"], indirect=True)
def test_a_stream_puts_each_message_once(output: str) -> None:
    assert output.splitlines()[-2:] == ["run 1: 1000 messages", "run 2: 1000 messages"]
