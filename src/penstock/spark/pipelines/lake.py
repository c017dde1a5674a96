"""Delta and Iceberg tables as targets where Spark has no jar for them: through Python packages.

Executors write a micro-batch as Parquet files inside the table's folder, and the driver commits
their names: by `deltalake` as one Delta transaction, by `pyiceberg` as one Iceberg snapshot. The
commit also holds the batch's number under the query's id, so a batch that comes again changes
nothing; files that were never committed are written over.
"""

from __future__ import annotations

import json
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

JARS = {
    "delta": "io.delta.sql.DeltaSparkSessionExtension",
    "iceberg": "org.apache.iceberg.spark.source.IcebergSource",
}
"""Format → a class that Spark has where it can write the format by itself."""


def is_ours(spark: SparkSession, format: str) -> bool:
    """Whether a Python package has to write the format, because this Spark has no jar for it."""
    java = getattr(spark, "_jvm", None)
    if format not in JARS or java is None:
        return False
    loader = java.java.lang.Thread.currentThread().getContextClassLoader()
    return loader.getResource(JARS[format].replace(".", "/") + ".class") is None


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

    def commit(self, files: list[File], app: str, number: int) -> None:
        """Adds the files as one commit that also says which batch it is."""


def open_table(request: Request, target: str) -> Table:
    """The table that a request names; it is made with its first batch."""
    return IcebergTable(request, target) if request.format == "iceberg" else DeltaTable(target)


def append(table: Table, frame: DataFrame, app: str, number: int) -> None:
    """Appends a micro-batch, unless it was appended before."""
    if table.last_batch(app) >= number:
        return
    below = f"data/{app}/{number:012d}"
    # This session is the micro-batch's own. Readers of both formats want times in microseconds.
    frame.sparkSession.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    frame.write.mode("overwrite").parquet(f"{table.root}/{below}")
    files = [file for file in _files(table.root, below) if file.rows]
    if files:
        table.commit(files, app, number)


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

    def commit(self, files: list[File], app: str, number: int) -> None:
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
        if self._package.DeltaTable.is_deltatable(self.root):
            table = self._package.DeltaTable(self.root)
            table.create_write_transaction(actions, "append", schema, commit_properties=once)
        else:
            create_table_with_add_actions(self.root, schema, actions, commit_properties=once)


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

    def commit(self, files: list[File], app: str, number: int) -> None:
        """Adds the files as one snapshot that also says which batch it is."""
        table = self._table()
        if table is None:
            self._catalog.create_namespace_if_not_exists(self.name.rpartition(".")[0])
            schema = files[0].schema.remove_metadata()
            table = self._catalog.create_table(self.name, schema, location=self._location)
        with table.transaction() as change:
            change.set_properties({f"penstock.batch.{app}": str(number)})
            change.add_files([f"{self._location}/{file.path}" for file in files])


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
