"""Watching: what waits behind a stream, and the page of runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock import Queue
from penstock.cli import main
from penstock.errors import MissingFileError
from penstock.spark.pipelines import request as requests
from penstock.spark.pipelines import status
from penstock.spark.versions import ReadMaxRows
from tests.spark.helpers import fill, stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_plan_reports_what_its_micro_batch_leaves_behind(tmp_path: Path) -> None:
    path = fill(tmp_path / "q", 100)
    reader = stream(path)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(30))
    report = reader.reportLatestOffset()
    assert report is not None
    left = report["q"]["q"]["lag"]
    assert (left["messages"], left["bytes"]) == (
        70,
        report["q"]["q"]["next"] - end["q"]["q"]["next"],
    )
    assert left["seconds"] >= 0
    reader.latestOffset(end, ReadMaxRows(1000))
    again = reader.reportLatestOffset()
    assert again is not None
    assert again["q"]["q"]["lag"] == {"messages": 0, "bytes": 0, "seconds": 0.0}
    reader.stop()


@pytest.mark.parametrize("format", ["zbus", "vqs", "mfq", "beats"])
def test_every_format_tells_what_waits(tmp_path: Path, format: str) -> None:
    from penstock.spark import queues
    from penstock.spark.options import SourceOptions

    path = tmp_path / "q"
    with Queue(path, format=format) as writer:
        writer.put_many([b'{"n": 1}'] * 20)
    queue = queues.open_queue("q", str(path), SourceOptions.of({"path": str(path)}))
    left = queue.left(queue.head)
    assert left["messages"] in (20, None)
    assert (left["bytes"] or 0) > 0
    assert queue.left(queue.end) == {"messages": 0, "bytes": 0, "seconds": 0.0}


@pytest.mark.spark
def test_a_run_keeps_the_lag_of_its_last_micro_batch(spark: SparkSession, tmp_path: Path) -> None:
    from penstock.spark import pipelines

    path = fill(tmp_path / "q", 30)
    request = pipelines.Request([str(path)], to=str(tmp_path / "lake"))
    pipelines.run(spark, "bronze", request, str(tmp_path / "runs"))
    (record,) = status.runs(tmp_path / "runs")
    assert record["lag"] == {"q": {"messages": 0, "bytes": 0, "seconds": 0.0}}
    assert status.row(record)["lag"] == 0


def write(folder: Path, number: int, **more: Any) -> None:
    folder.mkdir(exist_ok=True)
    record = {
        "id": f"r{number}", "pipeline": "bronze", "started": f"2026-11-16T10:0{number}:00+00:00",
        "outcome": "done", "rows": number * 10, "seconds": 1.5, "error": "",
    }  # fmt: skip
    (folder / f"r{number}.json").write_text(json.dumps(record | more))


def test_runs_are_listed_the_newest_first_and_other_files_are_passed_over(tmp_path: Path) -> None:
    write(tmp_path / "runs", 1, lag={"a": {"messages": 2, "bytes": 3, "seconds": 9.0}})
    write(tmp_path / "runs", 2, outcome="failed", error="<no> disk")
    (tmp_path / "runs" / "other.json").write_text("[1]")
    (tmp_path / "runs" / "torn.json").write_text("{")
    newest, oldest = status.runs(tmp_path / "runs")
    assert (newest["id"], status.row(newest)["lag"]) == ("r2", None)
    assert (status.row(oldest)["lag"], status.row(oldest)["waited_s"]) == (2, 9.0)
    page = status.html([newest, oldest])
    assert "1 failed" in page
    assert "&lt;no&gt; disk" in page
    with pytest.raises(MissingFileError, match="--runs"):
        status.runs(tmp_path / "nowhere")


def test_the_command_shows_runs_and_writes_their_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "runs", 1)
    page = tmp_path / "page.html"
    for more in (["--no-json"], ["--json"], ["--page", str(page)]):
        assert main(["pipeline", "status", "--runs", str(tmp_path / "runs"), *more]) == 0
    shown = capsys.readouterr().out
    assert shown.count("bronze") == 2
    assert "<h2>bronze</h2>" in page.read_text()


def test_the_lag_of_an_older_spark_is_unknown() -> None:
    assert requests.lag_of({"latestOffset": None}) == {}
    assert requests.lag_of({"latestOffset": '{"v": 1, "q": {"a": {"next": 1}}}'}) == {}
