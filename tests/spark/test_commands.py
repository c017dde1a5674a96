"""`penstock pipeline` and `penstock ship`, run in this process, in the session that tests share."""

from __future__ import annotations

import json
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkRuntimeError
from pyspark.sql.streaming.datasource import ReadAllAvailable

from penstock import Queue, StorageError
from penstock.cli import demo, main
from tests.spark.helpers import bodies, drain, fill, stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Cli:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: object, code: int = 0) -> str:
        self._capsys.readouterr()
        found = main([str(word) for word in words])
        out, err = self._capsys.readouterr()
        assert found == code, err
        return out if code in (0, 1) else err


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys)


@pytest.fixture
def shared(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands use the tests' session, and leave it running."""
    monkeypatch.setattr(type(spark), "stop", lambda self: None)


def test_the_pipelines_are_listed(cli: Cli) -> None:
    text = cli("pipeline", "list")
    assert all(name in text for name in ("bronze", "silver", "rollup", "audit", "convert"))


def test_an_unknown_pipeline_is_refused_before_spark_starts(cli: Cli, tmp_path: Path) -> None:
    assert "bronze, silver, " in cli("pipeline", "run", "gold", tmp_path, code=2)


def test_a_missing_queue_or_schema_is_found_before_spark_starts(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(import_module("penstock.spark.session"), "session", start)
    there = fill(tmp_path / "q", 1)
    assert "no queue is here" in cli("pipeline", "run", "bronze", tmp_path / "nosuch", code=2)
    assert "--schema" in cli("pipeline", "run", "silver", there, "--to", tmp_path / "t", code=2)
    for name in ("bronze", "silver", "rollup", "replay", "convert", "compact"):
        assert "--to: expected" in cli("pipeline", "run", name, there, code=2)


def test_an_option_without_a_value_is_refused(cli: Cli, tmp_path: Path) -> None:
    path = fill(tmp_path / "q", 1)
    err = cli("pipeline", "run", "bronze", path, "--option", "compression", code=2)
    assert "k=v" in err


def test_settings_of_spark_are_handed_on(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def session(name: str, **settings: object) -> None:
        raise StorageError("java", f"{settings['spark.jars.packages']}")

    monkeypatch.setattr(sys.modules["penstock.spark.session"], "session", session)
    jars = ("--conf", "spark.jars.packages=io.delta:x")
    assert "io.delta:x" in cli("pipeline", "run", "lag", fill(tmp_path / "q", 1), *jars, code=2)


@pytest.mark.spark
def test_a_run_says_what_it_did_and_leaves_a_record(shared: None, cli: Cli, tmp_path: Path) -> None:
    path, runs = fill(tmp_path / "q", 30), tmp_path / "runs"
    given = ("pipeline", "run", "bronze", path, "--to", tmp_path / "lake", "--runs", runs, "--json")
    dry: dict[str, Any] = json.loads(cli(*given, "--dry-run"))
    assert (dry["outcome"], (tmp_path / "lake").exists()) == ("dry run", False)
    done = json.loads(cli(*given, "--group", "bronze"))
    assert (done["outcome"], done["rows"]) == ("done", 30)
    assert json.loads((runs / f"{done['id']}.json").read_text())["rows"] == 30
    checkpoint = tmp_path / "lake" / "_checkpoints" / "bronze"
    cli("pipeline", "cursor", path, "--checkpoint", checkpoint, "--group", "bronze")
    with Queue(path) as queue:
        assert queue.group("bronze", create=False).lag == 0


def test_a_cursor_of_another_queue_or_one_without_its_key_is_refused(
    cli: Cli, tmp_path: Path
) -> None:
    path, key = fill(tmp_path / "q", 5, key=bytes(32)), tmp_path / "key"
    key.write_bytes(bytes(32))
    reader = stream(path, group="g", keyFile=key)
    at = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    reader.stop()
    checkpoint = tmp_path / "checkpoint"
    for name, text in (("offsets", json.dumps(at)), ("commits", "")):
        (checkpoint / name).mkdir(parents=True)
        (checkpoint / name / "0").write_text(f"v1\n{text}")
    words = ("--checkpoint", checkpoint, "--group", "g")
    other = fill(tmp_path / "other", 1)
    assert "it knows q" in cli("pipeline", "cursor", other, *words, code=2)
    assert "encrypted" in cli("pipeline", "cursor", path, *words, code=2)
    cli("pipeline", "cursor", path, *words, "--option", f"keyFile={key}")
    with Queue(path, key=bytes(32)) as queue:
        assert queue.group("g", create=False).lag == 0


@pytest.mark.spark
def test_faults_make_the_exit_code_one(shared: None, cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "q"
    with Queue(path) as queue:
        queue.put_many([b"a", b"b"])
        for _ in range(2):
            queue.put(b"c", id="twice")
    text = cli("pipeline", "run", "audit", path, "--runs", tmp_path / "runs", "--no-json", code=1)
    assert "twice" in text


@pytest.mark.spark
def test_what_spark_fails_at_is_one_sentence_with_queue_file_and_byte(
    shared: None, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = fill(tmp_path / "q", 100)
    (segment,) = path.glob("log/*.seg")
    raw = bytearray(segment.read_bytes())
    raw[raw.index(b"body-50")] ^= 1
    segment.write_bytes(bytes(raw))
    runs = tmp_path / "runs"
    words = ["pipeline", "run", "replay", path, "--to", tmp_path / "to", "--runs", runs]
    assert main([str(word) for word in words]) == 1
    error = capsys.readouterr().err
    assert re.search(rf"^penstock: queue q: .*{segment.name}:\d+: found", error, re.MULTILINE)
    assert "Traceback" not in error
    (record,) = (json.loads(p.read_text()) for p in runs.iterdir())
    assert (record["outcome"], record["error"][:8]) == ("failed", "queue q:")


@pytest.mark.spark
def test_a_wrong_schema_is_one_sentence_too(
    shared: None, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ["pipeline", "run", "silver", str(fill(tmp_path / "q", 1)), "--schema", "n lonng"]
    assert main([*words, "--to", str(tmp_path / "to"), "--runs", str(tmp_path / "runs")]) == 2
    error = capfd.readouterr().err
    assert "penstock: Spark: Syntax error at or near 'lonng'." in error
    assert '"stacktrace"' not in error


def test_a_template_is_a_project(cli: Cli, tmp_path: Path) -> None:
    text = cli("pipeline", "template", tmp_path / "p", "--source", "/data/orders")
    assert "spark-pipeline.yml" in text
    assert "/data/orders" in (tmp_path / "p" / "transformations" / "tables.py").read_text()


def test_shipping_says_what_it_copied(cli: Cli, tmp_path: Path) -> None:
    path, url = fill(tmp_path / "q", 50), f"memory://ship-{tmp_path.name}/q"
    assert json.loads(cli("ship", path, url, "--json"))["segments"] == 0
    dry = json.loads(cli("ship", path, url, "--whole", "--dry-run", "--json"))
    done = json.loads(cli("ship", path, url, "--whole", "--json"))
    assert dry["segments"] == done["segments"] == 1
    found = [row["body"] for rows in drain(stream(url, columns="body"))[0] for row in rows]
    assert found == bodies(path)
    assert "already" in cli("ship", path, url, "--whole", "--no-json")


def test_shipping_a_folder_without_a_queue_is_an_error(cli: Cli, tmp_path: Path) -> None:
    assert "no queue is here" in cli("ship", tmp_path / "none", "memory://none", code=2)


def test_a_demo_that_spark_ends_says_so_in_one_sentence(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise PySparkRuntimeError("[STREAM_FAILED] Query ended: no worker. SQLSTATE: X1\nMore")

    monkeypatch.setattr("penstock.spark.demo.act", fail)
    monkeypatch.setattr(demo._Demo, "run", lambda self: {"ok": True})
    said = cli("demo", "--spark", code=2)
    assert said == "penstock: Spark: Query ended: no worker. (STREAM_FAILED)\n"


def test_a_demo_asks_for_the_extra_before_it_begins(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.cli.pipeline.find_spec", lambda name: None)
    monkeypatch.setattr(demo._Demo, "run", lambda self: pytest.fail("it began"))
    assert "pip install 'penstock[spark]'" in cli("demo", "--spark", code=2)
