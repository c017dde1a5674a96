"""What a pipeline is asked to do, and the record that a run leaves."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from penstock import _core
from penstock.disk import files
from penstock.errors import OptionError, PenstockError
from penstock.formats import registry
from penstock.spark import queues, shipped
from penstock.spark.batch import limits, place_of
from penstock.spark.cursors import committed
from penstock.spark.offsets import Offsets
from penstock.spark.options import SourceOptions, plain
from penstock.spark.pipelines import failures
from penstock.spark.pipelines.stalls import StallDetector

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


@dataclass(frozen=True, kw_only=True)
class _Defaults:
    to: str = ""
    """Where the result goes: a folder, or for queues a queue."""
    format: str = "parquet"
    """What the result is written as: a format that Spark has."""
    options: dict[str, str] = field(default_factory=dict)
    """Options of that format."""
    source_options: dict[str, str] = field(default_factory=dict)
    """Options of the source: startingOffsets, tags, group, keyFile…"""
    checkpoint: str = ""
    """Where a stream remembers how far it is; empty: beside the result."""
    schema: str = ""
    """Columns of the bodies as DDL, or `infer`."""
    decode: str = "json"
    """What bodies are: json or cbor."""
    watermark: str = "10 minutes"
    """How late a message or its repetition may come."""
    dead_letters: str = ""
    """The queue for rows that could not be decoded; empty: beside the result."""
    window: str = "1 minute"
    """The step of a rollup."""
    follow: bool = False
    """Go on for ever instead of stopping at what is there now."""
    trim: bool = False
    """Delete from the queue what was compacted and compared."""
    dry_run: bool = False
    """Say what would be read and written, and stop."""


@dataclass(frozen=True)
class Request(_Defaults):
    """What one run of a pipeline is asked to do."""

    sources: Sequence[str] = ()
    """Queues: folders, files, globs, URLs."""

    def reading(self) -> dict[str, str]:
        """The options with which Spark reads the sources."""
        return {"path": json.dumps(list(self.sources)), **self.source_options}

    def parsed(self) -> SourceOptions:
        """The source's options, checked."""
        return SourceOptions.of({k.lower(): v for k, v in self.reading().items()})

    def batch(self, spark: SparkSession, **more: str) -> DataFrame:
        """The source as a table."""
        return spark.read.format("penstock").options(**(self.reading() | more)).load()

    def pinned(self) -> Request:
        """The same with its range fixed: what is read twice must be the same twice, also in a
        queue that others put into meanwhile."""
        options = self.parsed()
        first, last = {}, {}
        for name, where in queues.find_some(options).items():
            first[name], last[name] = limits(queues.open_queue(name, where, options), options)
        loose = ("startingtimestamp", "endingtimestamp", "startingoffsets", "endingoffsets", "view")
        kept = {k: v for k, v in self.source_options.items() if k.lower() not in loose}
        fixed = {"startingOffsets": json.dumps(first), "endingOffsets": json.dumps(last)}
        return replace(self, source_options=kept | fixed)

    def starts(self) -> dict[str, int]:
        """Where each queue begins that is there now."""
        options = self.parsed()
        found = queues.find(options).items()
        return {name: queues.open_queue(name, where, options).head for name, where in found}

    def local_target(self, *, replaces: bool = False) -> Path:
        """Where the result goes, if it has to be a folder that this machine sees."""
        text = plain(self.table_target(replaces=replaces))
        if shipped.is_url(text):
            raise OptionError("to", self.to, "a folder on this machine or on a mount")
        return Path(text)

    def stream(self, spark: SparkSession) -> DataFrame:
        """The source as a stream; with `follow` it may wait for queues that are not there yet."""
        if not self.follow:
            queues.find_some(self.parsed())
        return spark.readStream.format("penstock").options(**self.reading()).load()

    def trigger(self) -> dict[str, Any]:
        """When a stream's micro-batches run."""
        return {"processingTime": "1 second"} if self.follow else {"availableNow": True}

    def target(self) -> str:
        """Where the result goes, which must be said."""
        if not self.to:
            raise OptionError("to", self.to, "where the result goes")
        return self.to

    def table_target(self, *, replaces: bool = False) -> str:
        """Where files go: into no queue, and (if what is there is replaced) around none."""
        here = Path(plain(self.target())).absolute()
        if shipped.is_url(self.target()) and not self.to.startswith("file:"):
            return self.to
        sources = [where for where in queues.find(self.parsed()).values() if "://" not in where]
        for queue in (Path(where) for where in sources):
            if queue in (here, *here.parents) or (replaces and here in queue.parents):
                raise OptionError("to", self.to, f"a place apart from the queue {queue}")
        if is_queue(here):
            raise OptionError("to", self.to, "a folder for files: a queue is there")
        return self.to

    def refuse_queues(self) -> None:
        """For results that are tables: they have other columns than messages."""
        if self.format == "penstock":
            raise OptionError("format", self.format, "a format of tables: parquet, json, delta…")

    def checkpoint_folder(self, name: str) -> str:
        """Where the stream's progress is: with the result, but not inside a queue."""
        beside = "_checkpoints" if self.format == "penstock" else "/_checkpoints"
        return self.checkpoint or f"{self.target().rstrip('/')}{beside}/{name}"

    def plan(self, stream: str = "") -> dict[str, Any]:
        """What would be read, without reading it; a stream goes on from its checkpoint."""
        options, done = self.parsed(), Offsets()
        if stream:
            done = committed(Path(plain(self.checkpoint_folder(stream))), default=done)
        found = []
        for name, where in queues.find_some(options).items():
            queue = queues.open_queue(name, where, options)
            if name in done and done[name].identity == queue.identity:
                start, end = max(done[name].next, queue.head), queue.end
            elif place_of("startingOffsets", options.starting_offsets, name) == "group":
                start, end = queue.head, queue.end
            else:
                start, end = limits(queue, options)
            spans = queue.spans(start, end)
            found.append({
                "queue": name, "path": where, "first": start, "last": end,
                "segments": len(spans), "bytes": sum(span.bytes for span in spans),
            })  # fmt: skip
        return {"queues": found, "to": self.to, "format": self.format}


def is_queue(path: Path) -> bool:
    """Whether a queue of any format lies here."""
    try:
        registry.sniff(path)
    except PenstockError:
        return shipped.is_shipped(str(path))
    return True


def query_id(batch: DataFrame) -> str:
    """The id of the query whose micro-batch this is; it lives as long as its checkpoint."""
    found = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    return str(found)


OnProgress = Callable[[int], None]


class Run:
    """One run, which leaves a file whatever becomes of it."""

    name: str
    request: Request
    started: datetime
    id: str
    path: Path
    rows: int
    bytes: int
    outcome: str
    error: str

    def __init__(self, name: str, request: Request, folder: str = "runs") -> None:
        self.name, self.request = name, request
        self.started = datetime.now(UTC)
        self.id = f"{self.started:%Y%m%dT%H%M%S}-{name}-{secrets.token_hex(3)}"
        self.path = Path(folder) / f"{self.id}.json"
        self.rows = self.bytes = 0
        self.outcome, self.error = "running", ""
        self.facts: dict[str, Any] = {}
        self.lag: dict[str, dict[str, float | None]] = {}
        """What each queue had left behind the last micro-batch."""
        self.on_progress: OnProgress = lambda rows: None
        self._began, self._took = time.monotonic(), 0.0

    def as_dict(self) -> dict[str, Any]:
        """As it is written."""
        return {
            "id": self.id, "pipeline": self.name, "started": self.started.isoformat(),
            "seconds": round(self._took or time.monotonic() - self._began, 3), "rows": self.rows,
            "bytes": self.bytes, "outcome": self.outcome, "error": self.error, "lag": self.lag,
            "updated": datetime.now(UTC).isoformat(),
            "request": asdict(self.request), "result": self.facts,
        }  # fmt: skip

    def count(self, rows: int) -> None:
        """So many rows more."""
        self.rows += rows
        self.on_progress(self.rows)

    def drain(self, query: StreamingQuery) -> int:
        """Waits for a query's end, counting as it goes; returns its batches.

        One that follows ends when it is told to, by SIGTERM or Ctrl-C, and that is no failure.
        """
        try:
            return self._drain(query)
        except BaseException:
            query.stop()
            raise

    def _drain(self, query: StreamingQuery) -> int:
        seen, stalls, starts = -1, StallDetector(query), self.request.starts()
        with failures.asked() as is_asked:
            while True:
                is_over = query.awaitTermination(1)
                if is_asked():
                    query.stop()
                told = (self.rows, self.lag)
                for one in query.recentProgress:
                    if one["batchId"] <= seen:
                        continue
                    if one["numInputRows"]:
                        seen = one["batchId"]
                        self.count(one["numInputRows"])
                        self.bytes += sum(_bytes_of(s, starts) for s in one["sources"])
                    self.lag = {k: v for s in one["sources"] for k, v in lag_of(s).items()}
                if told != (self.rows, self.lag):  # A query that only waits reports, too.
                    self._write()
                if is_asked() and not self.request.follow:
                    raise KeyboardInterrupt
                if is_over or is_asked():
                    return seen + 1
                stalls.look()

    def __enter__(self) -> Self:
        """Writes the record. A run that dies before the end is found as `running`."""
        self._write()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._took = time.monotonic() - self._began
        self.outcome = "dry run" if self.request.dry_run else "done"
        if error is not None:
            self.outcome, self.error = "failed", failures.sentence(error)
        if isinstance(error, KeyboardInterrupt):
            self.outcome = "interrupted"
        if error is None and self.facts.get("ok") is False:
            self.outcome = "found faults"
        self._write()

    def _write(self) -> None:
        files.make_folder(self.path.parent)
        text = json.dumps(self.as_dict(), indent=1, default=str)
        _core.replace_file(self.path, text.encode() + b"\n")


def lag_of(source: Any) -> dict[str, dict[str, float | None]]:
    """Queue → what it had left behind a micro-batch, by one source of a progress report.

    Of any query that reads queues: `lag_of(query.lastProgress["sources"][0])`. Empty where Spark
    is older than 4.2, which asks for no such report.
    """
    found = _queues_of(source["latestOffset"])
    return {name: position["lag"] for name, position in found.items() if "lag" in position}


def _queues_of(offset: Any) -> dict[str, Any]:
    """The queues of an offset as progress reports have it: as JSON, or as what that says."""
    value = json.loads(offset) if isinstance(offset, str) else offset
    found: dict[str, Any] = (value or {}).get("q", {})
    return found


def _bytes_of(source: Any, starts: Mapping[str, int]) -> int:
    """What a micro-batch moved on, in bytes of the queue; the first one came from `starts`."""

    def positions(name: str) -> dict[str, int]:
        found = _queues_of(source[name])
        return {queue: int(position["next"]) for queue, position in found.items()}

    try:
        before, after = {**starts, **positions("startOffset")}, positions("endOffset")
    except (ValueError, TypeError, AttributeError, KeyError):
        return 0
    return sum(max(0, offset - before.get(queue, offset)) for queue, offset in after.items())
