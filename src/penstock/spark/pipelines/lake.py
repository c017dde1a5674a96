"""Iceberg tables, and Delta tables where Spark has no jar for them: through Python packages.

Executors write a micro-batch as Parquet files inside the table's folder, and the driver commits
their names: by `deltalake` as one Delta transaction, by `pyiceberg` as one Iceberg snapshot. The
commit also holds the batch's number under the query's id, so a batch that comes again changes
nothing.

A driver that has lost its JVM may still be about to commit when the next one writes the same batch.
So each attempt has a folder of its own, and nobody removes files that another may commit: the table
takes one of the two, and the one whose commit was taken removes what is left of the others.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

from penstock.errors import MissingExtraError, OptionError
from penstock.spark import shipped
from penstock.spark.options import plain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.spark.pipelines.request import Request

DELTA_JAR = "io/delta/sql/DeltaSparkSessionExtension.class"
"""In it, Spark writes Delta tables by itself, with transactions of its own."""


def is_ours(spark: SparkSession, format: str) -> bool:
    """Whether a Python package writes the format: Iceberg's always, Delta's where this Spark has no
    jar for it. With Iceberg's jar a stream needs a table that is there, and knows no batches."""
    java = getattr(spark, "_jvm", None)
    if format != "delta" or java is None:
        return format == "iceberg"
    loader = java.java.lang.Thread.currentThread().getContextClassLoader()
    return loader.getResource(DELTA_JAR) is None


@dataclass(frozen=True)
class File:
    """One Parquet file of a micro-batch."""

    path: str
    """Below the table's folder."""
    rows: int
    bytes: int
    schema: Any


class Table(Protocol):
    """A table that takes a batch once."""

    root: str
    """Its folder, or its URL."""

    def last_batch(self, app: str) -> int:
        """The number of the last batch of this query that was committed; -1 if none was."""

    def commit(self, files: list[File], app: str, number: int) -> bool:
        """Adds the files as one commit that also says which batch it is; false if another attempt
        has done so. An error if one does at the same time."""


def open_table(request: Request, target: str) -> Table:
    """The table that a request names; it is made with its first batch."""
    return IcebergTable(request, target) if request.format == "iceberg" else DeltaTable(target)


def append(table: Table, frame: DataFrame, app: str, number: int) -> None:
    """Appends a micro-batch, unless it was appended before."""
    if table.last_batch(app) >= number:
        return
    batch = f"data/{app}/{number:012d}"
    below = f"{batch}/{secrets.token_hex(6)}"
    # This session is the micro-batch's own. Readers of both formats want times in microseconds.
    frame.sparkSession.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    frame.write.parquet(f"{table.root}/{below}")
    files = [file for file in _files(table.root, below) if file.rows]
    if files and table.commit(files, app, number):
        _sweep(table.root, batch, kept=below)


def _sweep(root: str, batch: str, kept: str) -> None:
    """Removes what earlier attempts at a batch have left, whose commits no table takes any more."""
    import fsspec

    system, folder = fsspec.core.url_to_fs(f"{root}/{batch}")
    for found in system.ls(folder, detail=False):
        if found.rstrip("/").rsplit("/", 1)[-1] != kept.rsplit("/", 1)[-1]:
            system.rm(found, recursive=True)


def _files(root: str, below: str) -> list[File]:
    import fsspec
    from pyarrow import parquet

    system, folder = fsspec.core.url_to_fs(f"{root}/{below}")
    found = []
    for path in sorted(system.glob(f"{folder}/*.parquet")):
        name = f"{below}/{path.rsplit('/', 1)[1]}"
        with system.open(path) as file:
            footer = parquet.read_metadata(file)
        schema = footer.schema.to_arrow_schema()
        found.append(File(name, footer.num_rows, system.size(path), schema))
    return found


class DeltaTable:
    """A Delta table, by the package `deltalake`."""

    root: str

    def __init__(self, target: str) -> None:
        self.root = _absolute(target)
        self._package = _package("deltalake", "delta")

    def last_batch(self, app: str) -> int:
        """The number of the last batch of this query that was committed; -1 if none was."""
        if not self._package.DeltaTable.is_deltatable(self.root):
            return -1
        found = self._package.DeltaTable(self.root).transaction_version(app)
        return -1 if found is None else int(found)

    def commit(self, files: list[File], app: str, number: int) -> bool:
        """Adds the files as one transaction that also says which batch it is."""
        from deltalake import CommitProperties, Schema, Transaction
        from deltalake.transaction import AddAction, create_table_with_add_actions

        actions = [
            AddAction(
                quote(file.path), file.bytes, {}, modification_time=0, data_change=True,
                stats=json.dumps({"numRecords": file.rows}),
            )
            for file in files
        ]  # fmt: skip
        schema = Schema.from_arrow(files[0].schema.remove_metadata())
        once = CommitProperties(app_transactions=[Transaction(app, number)])
        if not self._package.DeltaTable.is_deltatable(self.root):
            create_table_with_add_actions(self.root, schema, actions, commit_properties=once)
            return True
        table = self._package.DeltaTable(self.root)
        # In this very version: a commit of the same batch after it makes ours fail.
        if _is_done(table.transaction_version(app), number):
            return False
        table.create_write_transaction(actions, "append", schema, commit_properties=once)
        return True


class IcebergTable:
    """An Iceberg table, by the package `pyiceberg`.

    Options: `catalog` names one of pyiceberg's configuration; without it a catalogue in a SQLite
    file beside the data is used. `table` names the table, by default `penstock.<folder's name>`.
    """

    name: str

    def __init__(self, request: Request, target: str) -> None:
        _package("pyiceberg", "iceberg")
        options = dict(request.options)
        folder = _absolute(target)
        self.name = options.pop("table", f"penstock.{folder.rsplit('/', 1)[1]}")
        self._catalog = _catalog(options, folder)
        self._location = folder if shipped.is_url(folder) else f"file://{folder}"
        self.root = folder

    def _table(self) -> Any:
        from pyiceberg.exceptions import NoSuchTableError

        try:
            return self._catalog.load_table(self.name)
        except NoSuchTableError:
            return None

    def last_batch(self, app: str) -> int:
        """The number of the last batch of this query that was committed; -1 if none was."""
        table = self._table()
        return -1 if table is None else int(table.properties.get(f"penstock.batch.{app}", -1))

    def commit(self, files: list[File], app: str, number: int) -> bool:
        """Adds the files as one snapshot that also says which batch it is."""
        table = self._table()
        if table is None:
            self._catalog.create_namespace_if_not_exists(self.name.rpartition(".")[0])
            schema = files[0].schema.remove_metadata()
            table = self._catalog.create_table(self.name, schema, location=self._location)
        name = f"penstock.batch.{app}"
        if _is_done(table.properties.get(name), number):
            return False
        # In memory alone: else pyiceberg would commit the batch again behind the one that won.
        table.metadata.properties["commit.retry.num-retries"] = "0"
        with table.transaction() as change:
            change.set_properties({name: str(number)})
            change.add_files([f"{self._location}/{file.path}" for file in files])
        return True


def _is_done(last: object, number: int) -> bool:
    """Whether a table that remembers `last` has the batch."""
    return last is not None and int(str(last)) >= number


def _catalog(options: dict[str, str], folder: str) -> Any:
    from pyiceberg.catalog import load_catalog

    name = options.pop("catalog", None)
    if name is not None:
        return load_catalog(name, **options)
    if shipped.is_url(folder):
        raise OptionError(
            "catalog", "", "the name of a catalogue: a SQLite file serves folders alone"
        )
    Path(folder).mkdir(parents=True, exist_ok=True)
    uri = f"sqlite:///{folder}/catalog.db"
    return load_catalog("penstock", type="sql", uri=uri, warehouse=f"file://{folder}", **options)


def _absolute(target: str) -> str:
    """A URL as it is, a folder from the root on: Spark, the driver and a table's files name it."""
    found = plain(target).rstrip("/")
    return found if shipped.is_url(found) else str(Path(found).absolute())


def _package(name: str, extra: str) -> Any:
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError as error:
        purpose = f"format {extra} without Spark's own jar"
        raise MissingExtraError(name, extra, purpose) from error
