"""The options of the source, from Spark's texts: checked here and nowhere else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Literal, TypeVar, get_args

from penstock.engine import positions
from penstock.errors import OptionError, UnsupportedError, either
from penstock.logs import renamed
from penstock.options import MIB, QueueOptions, key_from

Table = Literal["messages", "segments", "groups", "frames", "counts"]
T = TypeVar("T", bound=str)
SPARKS_OWN = {"checkpointlocation", "queryname", "outputmode", "mergeschema", "encoding"}


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """How a queue is read. Keys are never among them: options are shown in plans."""

    paths: tuple[str, ...]
    """Queues: folders, files, globs, URLs of shipped queues."""
    queue_format: str | None = None
    """The queue's format; none: found out."""
    queue_layout: str | None = None
    """The layout inside the format; none: found out."""
    table: Table = "messages"
    """What the rows are."""
    layout: Literal["penstock", "kafka"] = "penstock"
    """Which system's names the columns have."""
    columns: tuple[str, ...] = ()
    """Only these columns; none: all that are usual."""
    include_headers: bool = True
    """Whether `headers` is among the columns."""
    view: Literal["all", "pending"] = "all"
    """`pending`: only what the format's own cursor (or `group`) has not passed."""
    tags: str = ""
    """Only messages whose tag matches."""
    starting_offsets: str = ""
    """Where reading begins; empty: the default."""
    ending_offsets: str = "latest"
    """Where a batch ends."""
    starting_timestamp: str = ""
    """Reading begins at this time: ms since 1970, or like 2026-11-01T12:00."""
    ending_timestamp: str = ""
    """A batch ends at this time."""
    max_rows: int = 0
    """Rows of a micro-batch at most; 0: no limit. (maxOffsetsPerTrigger)"""
    max_bytes: int = 0
    """Bytes of a micro-batch at most; 0: no limit. (maxBytesPerTrigger)"""
    min_rows: int = 0
    """A micro-batch waits for this many rows. (minOffsetsPerTrigger)"""
    max_delay_s: float = 900.0
    """… but not longer than this. (maxTriggerDelay)"""
    partition_bytes: int = 64 * MIB
    """What one task reads, about. (targetPartitionBytes)"""
    min_partitions: int = 0
    """Tasks at least, if there is enough to cut."""
    fail_on_data_loss: bool = True
    """Whether lost or damaged data fails the query, or is logged and passed over."""
    pushdown: bool = False
    """Take filters over from Spark. Only for a table that is used in one query alone: Spark 4.3
    keeps the filters of one query for the next one on the same DataFrame, which then lacks rows."""
    bounds: str = ""
    """Offsets, times and tags outside of which no row is used: written by `penstock.spark.sql`."""
    group: str = ""
    """The group whose cursor follows a stream."""
    retain_unread: bool = True
    """Whether retention waits until that group has read a segment."""
    key_file: str = ""
    """The file that holds the queue's key, on every machine that reads."""
    key_env: str = ""
    """The environment variable that holds the queue's key, on every machine that reads."""

    @property
    def counts_unread(self) -> bool:
        """Whether a count may come from summaries: who wants only what can be read has to look."""
        return self.table == "counts" and self.fail_on_data_loss and not self.tags

    def queue_options(self) -> QueueOptions:
        """For opening; the key is looked up where this runs."""
        key = key_from(file=self.key_file or None, env=self.key_env or None)
        return QueueOptions.of(key=key)

    def for_shipped(self, format: str, layout: str) -> SourceOptions:
        """The same for a copy whose manifest says what it is."""
        return replace(self, queue_format=format, queue_layout=layout)

    @classmethod
    def of(cls, given: Mapping[str, str]) -> SourceOptions:
        """From Spark's options, whose names come in lower case."""
        values: dict[str, object] = {"paths": _paths(given)}
        kinds = {field.name: str(field.type) for field in fields(cls)}
        for name, text in given.items():
            spelled = NAMES.get(name.lower())
            if name.lower() == "hold":
                renamed("the option hold", "retainUnread")
            if spelled is not None:
                field = SPELLED[spelled]
                values[field] = parsed(spelled, text, kinds[field])
            elif name.lower() == "owner":
                raise UnsupportedError(
                    "a table of Spark's catalogue loses its options: use CREATE TEMPORARY VIEW … "
                    "USING penstock OPTIONS (path '…')"
                )
            elif name.lower() not in SPARKS_OWN | {"path", "paths"}:
                raise OptionError(name, text, f"one of {', '.join(sorted(SPELLED))}")
        options = cls(**values)  # type: ignore[arg-type]
        _one_of("table", options.table, Table)
        _one_of("layout", options.layout, Literal["penstock", "kafka"])
        _one_of("view", options.view, Literal["all", "pending"])
        if options.layout == "kafka" and options.table != "messages":
            raise OptionError("table", options.table, "messages where layout is kafka")
        return options


SPELLED = {
    "queueFormat": "queue_format",
    "queueLayout": "queue_layout",
    "table": "table",
    "layout": "layout",
    "columns": "columns",
    "includeHeaders": "include_headers",
    "view": "view",
    "tags": "tags",
    "startingOffsets": "starting_offsets",
    "endingOffsets": "ending_offsets",
    "startingTimestamp": "starting_timestamp",
    "endingTimestamp": "ending_timestamp",
    "maxOffsetsPerTrigger": "max_rows",
    "maxBytesPerTrigger": "max_bytes",
    "minOffsetsPerTrigger": "min_rows",
    "maxTriggerDelay": "max_delay_s",
    "targetPartitionBytes": "partition_bytes",
    "minPartitions": "min_partitions",
    "failOnDataLoss": "fail_on_data_loss",
    "pushdown": "pushdown",
    "bounds": "bounds",
    "group": "group",
    "retainUnread": "retain_unread",
    "keyFile": "key_file",
    "keyEnv": "key_env",
}
"""Option as a user writes it → field."""

NAMES = {name.lower(): name for name in SPELLED} | {"hold": "retainUnread"}
"""Option as Spark hands it over → as a user writes it."""


def _one_of(name: str, value: str, kind: object) -> None:
    if value not in get_args(kind):
        raise OptionError(name, value, either(get_args(kind)))


def _paths(given: Mapping[str, str]) -> tuple[str, ...]:
    lower = {name.lower(): text for name, text in given.items()}
    text = lower.get("path", "")
    found = _list("paths", lower.get("paths") or "[]")
    found += _list("path", text) if text.startswith("[") else [text] if text else []
    if not found:
        raise OptionError("path", text, 'a queue: .load("PATH"), a list of them, or a glob')
    return tuple(plain(path) for path in found)


def plain(path: str) -> str:
    """A path without the scheme that Spark puts before those of this machine."""
    return path.removeprefix("file://").removeprefix("file:")


def _list(name: str, text: str) -> list[str]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(isinstance(path, str) for path in found):
        raise OptionError(name, text, 'a list as JSON: ["/data/a", "/data/b"]')
    return found


def parsed(name: str, text: str, kind: str) -> object:
    """The value of an option, by the type of its field."""
    if kind == "bool":
        if text.lower() not in ("true", "false"):
            raise OptionError(name, text, "true or false")
        return text.lower() == "true"
    if kind == "int":
        return size_of(name, text)
    if kind == "float":
        seconds = positions.seconds_of(text)
        if seconds is None:
            raise OptionError(name, text, "a time like 30s, 15m, 2h")
        return seconds
    if kind.startswith("tuple"):
        return tuple(part.strip() for part in text.split(",") if part.strip())
    return text


UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def size_of(name: str, text: str) -> int:
    """A count, or a size like `64m`."""
    digits, unit = text.strip().lower().removesuffix("b").removesuffix("i"), 1
    if digits[-1:] in UNITS:
        digits, unit = digits[:-1], UNITS[digits[-1]]
    if not digits.isdigit():
        raise OptionError(name, text, "a number, or a size like 64m")
    return int(digits) * unit


def timestamp_ns(name: str, text: str) -> int:
    """A time as Kafka's options have it (ms since 1970), or as people write it."""
    if text.isdigit():
        return int(text) * 1_000_000
    try:
        return positions.datetime_ns(datetime.fromisoformat(text))
    except ValueError:
        raise OptionError(name, text, "ms since 1970, or like 2026-11-01T12:00") from None
