"""The notebook of docs/notebooks runs from its first cell to its last."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import penstock.spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTEBOOKS = sorted((Path(__file__).parents[2] / "docs" / "notebooks").glob("*.ipynb"))


def cells(path: Path) -> list[str]:
    found = json.loads(path.read_text())["cells"]
    return ["".join(cell["source"]) for cell in found if cell["cell_type"] == "code"]


@pytest.mark.spark
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_cell_runs(
    spark: SparkSession, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr("tempfile.mkdtemp", lambda: str(tmp_path))
    monkeypatch.setattr(penstock.spark, "session", lambda name: spark)
    *shown, last = cells(path)
    assert last == "spark.stop()"  # Not here: other tests use the session.
    scope: dict[str, Any] = {}
    for number, text in enumerate(shown):
        exec(compile(text, f"{path.name} cell {number}", "exec"), scope)
    assert scope["spark"].read.parquet(str(tmp_path / "lake")).count() == 3500
    assert len(penstock.Queue(tmp_path / "large", read_only=True)) == 350
    assert scope["done"]["outcome"] == "done"
    assert "asia.created" in capsys.readouterr().out
