"""Delta and Iceberg tables without a jar: written by executors, committed once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import MissingExtraError, OptionError
from penstock.spark import pipelines
from penstock.spark.pipelines import Request, lake
from tests.spark.helpers import bodies, fill
from tests.spark.test_pipelines import events

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parent.parent.parent


def delta(folder: Path) -> Any:
    deltalake = pytest.importorskip("deltalake")
    return deltalake.DeltaTable(str(folder)).to_pyarrow_table()


def iceberg(folder: Path) -> Any:
    catalog = pytest.importorskip("pyiceberg.catalog")
    found = catalog.load_catalog("penstock", type="sql", uri=f"sqlite:///{folder}/catalog.db")
    return found.load_table(f"penstock.{folder.name}").scan().to_arrow()


READERS: dict[str, Callable[[Path], Any]] = {"delta": delta, "iceberg": iceberg}


@pytest.mark.spark
@pytest.mark.parametrize("format", READERS)
@pytest.mark.filterwarnings("default")  # Of the packages themselves.
def test_bronze_lands_once_also_when_a_batch_comes_again(
    spark: SparkSession, tmp_path: Path, format: str
) -> None:
    pytest.importorskip({"delta": "deltalake", "iceberg": "pyiceberg"}[format])
    path, target = fill(tmp_path / "q", 50), tmp_path / "orders"
    request = Request([str(path)], to=str(target), format=format)

    def run() -> dict[str, Any]:
        return pipelines.run(spark, "bronze", request, str(tmp_path / "runs"))

    assert run()["rows"] == 50
    fill(path, 20, first=50)
    run()
    commits = sorted((target / "_checkpoints" / "bronze" / "commits").glob("[0-9]*"))
    commits[-1].unlink()  # As if the driver had died between the table's commit and its own.
    run()
    found = READERS[format](target).sort_by("offset")
    assert [bytes(body) for body in found.column("body").to_pylist()] == bodies(path)
    assert found.column("timestamp").to_pylist()[0].tzinfo is not None


@pytest.mark.spark
@pytest.mark.parametrize("format", READERS)
@pytest.mark.filterwarnings("default")
def test_silver_writes_typed_columns(spark: SparkSession, tmp_path: Path, format: str) -> None:
    pytest.importorskip({"delta": "deltalake", "iceberg": "pyiceberg"}[format])
    path = events(tmp_path / "q", [("a", b'{"n": 1}'), ("a", b'{"n": 1}'), ("b", b"no json")])
    target = tmp_path / "typed"
    request = Request([str(path)], to=str(target), format=format, schema="n long")
    done = pipelines.run(spark, "silver", request, str(tmp_path / "runs"))
    assert (done["result"]["good"], done["result"]["bad"]) == (1, 1)
    assert READERS[format](target).column("n").to_pylist() == [1]


def test_a_missing_package_is_named_with_the_extra_that_brings_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(MissingExtraError, match=r"penstock\[delta\]"):
        lake.open_table(Request(["q"], format="delta"), str(tmp_path))


@pytest.mark.filterwarnings("default")
def test_an_iceberg_table_behind_a_url_needs_a_catalogue() -> None:
    pytest.importorskip("pyiceberg")
    with pytest.raises(OptionError, match="catalog"):
        lake.open_table(Request(["q"], format="iceberg"), "s3://bucket/orders")


def attempt(table: Any, name: str) -> list[lake.File]:
    """The files that one driver has written for a micro-batch, not yet committed."""
    import pyarrow as pa
    from pyarrow import parquet

    below = f"data/app/000000000000/{name}"
    folder = Path(table.root) / below
    folder.mkdir(parents=True)
    parquet.write_table(pa.table({"n": [1, 2, 3]}), folder / "part-0.parquet")
    return lake._files(table.root, below)


COMMITS = {"delta": "deltalake.DeltaTable.create_write_transaction",
           "iceberg": "pyiceberg.table.Transaction.add_files"}  # fmt: skip


@pytest.mark.parametrize("format", READERS)
@pytest.mark.filterwarnings("default")
def test_of_two_drivers_with_the_same_batch_a_table_takes_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    pytest.importorskip({"delta": "deltalake", "iceberg": "pyiceberg"}[format])
    request, target = Request(["q"], format=format), tmp_path / "orders"
    table = lake.open_table(request, str(target))
    assert table.commit(attempt(table, "first"), "app", 0)
    assert not table.commit(attempt(table, "late"), "app", 0)
    rival, mine = lake.open_table(request, str(target)), attempt(table, "mine")
    theirs: list[list[lake.File]] = []
    package, _, name = COMMITS[format].rpartition(".")
    commit = pytest.importorskip(package.rpartition(".")[0]).__dict__[package.rpartition(".")[2]]
    usual = getattr(commit, name)

    def overtaken(self: Any, *given: Any, **more: Any) -> Any:
        if not theirs:
            theirs.append(attempt(rival, "theirs"))
            assert rival.commit(theirs[0], "app", 1)
        return usual(self, *given, **more)

    monkeypatch.setattr(commit, name, overtaken)
    with pytest.raises(Exception, match=r"(?i)conflict|concurrent|requirement|changed"):
        table.commit(mine, "app", 1)
    assert table.last_batch("app") == 1
    assert READERS[format](target).column("n").to_pylist() == [1, 2, 3, 1, 2, 3]


def test_what_other_attempts_at_a_batch_have_left_is_removed(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    for name in ("mine", "theirs"):
        (tmp_path / "data/app/0" / name).mkdir(parents=True)
    lake._sweep(str(tmp_path), "data/app/0", kept="data/app/0/mine")
    assert [path.name for path in (tmp_path / "data/app/0").iterdir()] == ["mine"]


JOB = """
import os, signal, sys

import penstock.spark
from penstock.spark import pipelines
from penstock.spark.pipelines import Request, lake
from tests.spark import armed

path, target, runs, format, when = sys.argv[1:]
kind = lake.IcebergTable if format == "iceberg" else lake.DeltaTable
commit = kind.commit


def die() -> None:
    for pid in armed.family():
        os.kill(pid, signal.SIGKILL)


def dying(self, *given):
    if when == "before":
        die()
    commit(self, *given)
    if when == "after":
        die()


kind.commit = dying
spark = penstock.spark.session("lake", **armed.SETTINGS)
pipelines.run(spark, "bronze", Request([path], to=target, format=format), runs)
"""


def run_driver(folder: Path, format: str, when: str) -> int:
    """A driver of its own, which dies with its JVM before or after the table's first commit."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    with (folder / "log").open("wb") as log:
        return subprocess.run(
            [sys.executable, "-c", JOB, f"{folder}/q", f"{folder}/orders", f"{folder}/runs", format,
             when],
            cwd=ROOT, env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)}, check=False,
            stdout=log, stderr=log, start_new_session=True,
        ).returncode  # fmt: skip


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.crash
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("format", READERS)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.filterwarnings("default")
def test_a_driver_killed_beside_the_commit_of_a_table_lands_once(
    tmp_path: Path, format: str, when: str
) -> None:
    pytest.importorskip({"delta": "deltalake", "iceberg": "pyiceberg"}[format])
    path, target = fill(tmp_path / "q", 50), tmp_path / "orders"
    checkpoint = target / "_checkpoints" / "bronze"
    for first, last in ((0, 50), (50, 70)):
        assert run_driver(tmp_path, format, when) == -signal.SIGKILL, (tmp_path / "log").read_text()
        begun = {entry.name for entry in (checkpoint / "offsets").glob("[0-9]*")}
        assert begun - {entry.name for entry in (checkpoint / "commits").glob("[0-9]*")}
        if when == "after":
            assert READERS[format](target).num_rows == last
        elif first:
            assert READERS[format](target).num_rows == first
        assert run_driver(tmp_path, format, "never") == 0, (tmp_path / "log").read_text()
        found = READERS[format](target).sort_by("offset")
        assert [bytes(body) for body in found.column("body").to_pylist()] == bodies(path)
        fill(path, 20, first=last)
