"""Writing to a queue, batch and streaming: each micro-batch lands whole and once.

Tasks stage their rows (`staging.py`); the commit, which runs where the queue folder is local,
appends all of them under one publication and remembers the batch (`engine/intents.py`). Spark may
ask for a commit again after a crash: a batch that is in the ledger is not put a second time.
"""

from __future__ import annotations

import functools
import itertools
import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
import pyarrow.compute as pc

from penstock.disk import files
from penstock.engine.intents import Ledger
from penstock.engine.queue import Queue
from penstock.errors import NoQueueError, OptionError, PenstockError, UnsupportedError, either
from penstock.formats import registry
from penstock.options import key_from
from penstock.sidecar import sinks
from penstock.spark import shipped, staging
from penstock.spark.options import parsed, plain
from penstock.spark.versions import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
    lighten_worker,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

COLUMNS: dict[str, tuple[str, ...]] = {
    "body": ("binary", "string"),
    "payload": ("binary",),
    "queue": ("string",),
    "tag": ("string",),
    "id": ("string",),
    "key": ("string",),
    "headers": ("map<string,string>",),
    "timestamp": ("timestamp",),
    "timestamp_ns": ("bigint",),
}
ASSIGNED = {"offset", "number"}
"""Columns of our own source that the queue gives anew: dropped, so that a table can go round."""

SPELLED = (
    "path", "queueFormat", "queueLayout", "create", "delivery", "txnAppId", "txnVersion",
    "stagingDir", "keyFile", "keyEnv", "route", "columns",
)  # fmt: skip
"""`columns` is the source's, and says which ones a view has that rows are inserted into."""
KNOWN = {name.lower() for name in SPELLED} | {"checkpointlocation", "queryname"}


@dataclass(frozen=True)
class SinkOptions:
    """How a queue is written."""

    path: str
    app: str
    """The name of the ledger; empty when batches of two runs can't be told apart."""
    version: int
    staging: str
    delivery: Literal["exactly-once", "at-least-once"]
    queue_format: str | None
    queue_layout: str | None
    create: bool
    key_file: str | None
    key_env: str | None
    is_routed: bool
    """Whether `path` is a folder of queues, and each row's column `queue` says which one."""

    def key(self) -> bytes | None:
        """The queue's key, looked up where this runs."""
        return key_from(file=self.key_file, env=self.key_env)

    def open(self, name: str = "") -> Queue:
        """The queue, for appending; with `name`, one of several."""
        return Queue(
            Path(self.path) / name, format=self.queue_format, layout=self.queue_layout,
            create=self.create, key=self.key(),
        )  # fmt: skip


def options_of(given: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """The sink's options, from those that Spark passes on."""
    lighten_worker()
    lower = {name.lower(): text for name, text in given.items()}
    for name in lower:
        if name not in KNOWN:
            raise OptionError(name, lower[name], f"one of {', '.join(sorted(SPELLED))}")
    delivery = lower.get("delivery", "exactly-once")
    if delivery not in ("exactly-once", "at-least-once"):
        raise OptionError("delivery", delivery, "exactly-once or at-least-once")
    path, app, version = _path(lower), *_transaction(lower, streaming=streaming)
    name = sinks.file_name(app) if app else f"job-{uuid.uuid4().hex}"
    folder = lower.get("stagingdir", "") or str(_sidecar(path, lower) / "staging")
    return SinkOptions(
        str(path), app, version, f"{folder.rstrip('/')}/{name}",
        delivery,  # type: ignore[arg-type]
        lower.get("queueformat"), lower.get("queuelayout"), _is(lower, "create", "true"),
        lower.get("keyfile"), lower.get("keyenv"), _is(lower, "route", "false"),
    )  # fmt: skip


def _is(lower: Mapping[str, str], name: str, default: str) -> bool:
    return bool(parsed(name, lower.get(name, default), "bool"))


def _path(lower: Mapping[str, str]) -> Path:
    path = plain(lower.get("path", ""))
    if not path or shipped.is_url(path):
        raise OptionError("path", path, "a folder on a local disk: queues are written there only")
    if shipped.is_shipped(path):
        raise OptionError("path", path, "a queue itself: what was shipped is only read")
    return Path(path).absolute()


def _transaction(lower: Mapping[str, str], *, streaming: bool) -> tuple[str, int]:
    """The application whose ledger counts and, in a batch, its number; without one "" and 0."""
    given, version = lower.get("txnappid", ""), lower.get("txnversion", "")
    if version and not version.isdigit():
        raise OptionError("txnVersion", version, "a number that grows: 0, 1, 2…")
    if not streaming:
        if bool(given) != bool(version):
            raise OptionError("txnVersion", version, "both txnAppId and txnVersion, or none")
        return given, int(version or 0)
    app = given or _query_id(lower.get("checkpointlocation", "")) or ""
    if not app and lower.get("delivery") != "at-least-once":
        raise OptionError(
            "txnAppId", "", "a name for this query that stays the same when it restarts: its "
            "checkpoint is not given as an option, or is not a local folder (or say "
            "delivery=at-least-once)",
        )  # fmt: skip
    return app, int(version or 0)


def _sidecar(path: Path, lower: Mapping[str, str]) -> Path:
    """Where the queue's own sidecar is, or will be: rows are staged before it is made."""
    is_file = path.suffix == ".bin" or lower.get("queueformat") == "vqs"
    is_file = is_file and lower.get("queuelayout") != "stage4" and not _is(lower, "route", "false")
    if path.is_file() or (is_file and not path.exists()):
        return path.with_name(path.name + ".penstock")
    return path / ".penstock"


def _query_id(checkpoint: str) -> str | None:
    """The query's id, which survives restarts: Spark keeps it in the checkpoint."""
    folder = plain(checkpoint)
    if not folder or shipped.is_url(folder):
        return None
    try:
        return str(json.loads((Path(folder) / "metadata").read_text())["id"])
    except (FileNotFoundError, ValueError, KeyError):
        return None


def check_schema(schema: StructType, *, is_routed: bool) -> None:
    """Refuses what a message has no place for."""
    names = schema.fieldNames()
    if is_routed and "queue" not in names:
        raise UnsupportedError("the option route needs a column queue: where each row goes")
    if not {"body", "payload"} & set(names):
        found = ", ".join(names) or "none"
        raise UnsupportedError(f"the table has no column body (it has {found}): select one AS body")
    for field in schema.fields:
        kind = field.dataType.simpleString()
        if field.name in ASSIGNED:
            continue
        if field.name not in COLUMNS:
            known = ", ".join(COLUMNS)
            raise UnsupportedError(
                f"a message has no place for column {field.name}; it has {known}"
            )
        if kind not in COLUMNS[field.name]:
            wanted = either(COLUMNS[field.name])
            raise UnsupportedError(f"column {field.name} is {kind}; it must be {wanted}")


def check_place(options: SinkOptions) -> None:
    """Refuses a path at which the commit could not put anything, before rows are staged there."""
    path = Path(options.path)
    found = registry.format_class(options.queue_format or "penstock")
    if options.is_routed:
        if _is_queue(path):
            raise OptionError("path", path, "a folder of queues (option route): a queue is there")
        if not options.create and not path.exists():
            raise NoQueueError(path)
    elif not options.create or not registry.is_empty(path):
        found, _ = registry.sniff(path, options.queue_format)
    if options.queue_layout and options.queue_layout not in found.layouts:
        known = f"{either(found.layouts)} (format {found.name})"
        raise OptionError("queueLayout", options.queue_layout, known)


def _is_queue(path: Path) -> bool:
    try:
        registry.sniff(path)
    except PenstockError:
        return False
    return True


class _Sink:
    """What both kinds of writer do."""

    def __init__(self, options: SinkOptions) -> None:
        """Nothing is opened yet: tasks get a copy."""
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """In a task: stages the rows."""
        lighten_worker()
        batches = iter(iterator)
        first = next(batches, None)
        if first is None:
            return staging.Staged("", 0, 0, 0, 0, 0)
        kept, named = self._kept(first.schema.names)

        def rows() -> Iterator[pa.RecordBatch]:
            for batch in itertools.chain([first], batches):
                mine = batch.select(kept).rename_columns(named)
                if mine.column("body").null_count:
                    raise UnsupportedError(
                        "a row has no body (it is null): leave it out, or give it "
                        "an empty one with coalesce(body, '')"
                    )
                yield mine

        schema = first.select(kept).rename_columns(named).schema
        return staging.write(self.options.staging, rows(), schema, self.options.key())

    def _kept(self, names: list[str]) -> tuple[list[str], list[str]]:
        """Columns that are staged, and what they are called there."""
        dropped = ASSIGNED if self.options.is_routed else ASSIGNED | {"queue"}
        if "body" in names:
            dropped = dropped | {"payload"}  # the same, still encoded; it is encoded anew
        kept = [name for name in names if name not in dropped]
        return kept, ["body" if name == "payload" else name for name in kept]

    def put(
        self, messages: Iterable[WriterCommitMessage | None], app: str, version: int,
        *, is_last: bool = False,
    ) -> None:  # fmt: skip
        """On the driver: all rows of all tasks, once. `is_last`: it is not asked for again."""
        lighten_worker()
        key = self.options.key()
        staged = [one for one in staging.staged_of(messages) if one.rows]
        if not self.options.is_routed:
            self._put_one("", app, version, is_last, lambda: _read(staged, key))
        elif staged:
            table = _read(staged, key)
            for name in _targets(table):
                mine = table.filter(pc.equal(table["queue"], name)).drop_columns("queue")
                self._put_one(name, app, version, is_last, functools.partial(_same, mine))
        staging.sweep(self.options.staging)

    def _put_one(
        self, name: str, app: str, version: int, is_last: bool, rows: Callable[[], pa.Table]
    ) -> None:
        with self.options.open(name) as queue:
            ledger = Ledger(queue.store, app)
            if ledger.last < version or ledger.files.note.exists():
                ledger.commit(version, rows())
            if is_last:
                ledger.drop()


def _read(staged: list[staging.Staged], key: bytes | None) -> pa.Table:
    tables = [staging.read(one, key) for one in staged]
    return pa.concat_tables(tables) if tables else _nothing()


def _same(table: pa.Table) -> pa.Table:
    return table


def _targets(table: pa.Table) -> list[str]:
    """The queues that rows name, in an order that is the same when the batch comes again."""
    names = pc.unique(table["queue"]).to_pylist()
    wrong = [name for name in names if name is None or not files.is_name(name)]
    if wrong:
        raise UnsupportedError(
            f"a row goes to queue {wrong[0]!r}: expected a name like eu.orders-1"
        )
    return sorted(names)


def _nothing() -> pa.Table:
    return pa.table({"body": pa.array([], pa.binary())})


class BatchWriter(_Sink, DataSourceArrowWriter):
    """`df.write.format("penstock").mode("append")`."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All tasks are done."""
        if self.options.app:
            self.put(messages, self.options.app, self.options.version)
            return
        app = self.options.staging.rsplit("/", 1)[-1]
        self.put(messages, app, 0, is_last=True)
        staging.drop(self.options.staging)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """A task failed: nothing was put."""
        staging.forget(messages)
        if not self.options.app:
            staging.drop(self.options.staging)


class StreamWriter(_Sink, DataSourceStreamArrowWriter):
    """`df.writeStream.format("penstock")`."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """A micro-batch is done; may come again with the same rows."""
        app = self.options.app or f"once-{uuid.uuid4().hex}"
        self.put(messages, app, batchId, is_last=not self.options.app)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Comes also after a commit that failed half-way: what was published stays."""
        staging.forget(messages)


def writer(given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> BatchWriter:
    """What Spark writes a batch with; refuses what a queue can't take."""
    if overwrite:
        raise UnsupportedError('a queue is only ever appended to: use .mode("append")')
    options = options_of(given, streaming=False)
    check_schema(schema, is_routed=options.is_routed)
    check_place(options)
    return BatchWriter(options)


def stream_writer(given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> StreamWriter:
    """What Spark writes a stream with; refuses the same."""
    if overwrite:
        raise UnsupportedError('a queue is only ever appended to: use .outputMode("append")')
    options = options_of(given, streaming=True)
    check_schema(schema, is_routed=options.is_routed)
    check_place(options)
    return StreamWriter(options)
