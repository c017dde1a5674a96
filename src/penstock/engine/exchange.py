"""Queues to files that other tools read, and back: JSON Lines, Parquet, Arrow IPC.

    penstock.export("orders", "orders.parquet")
    penstock.import_("orders.parquet", "copy")

A file is written beside its place and renamed when it is whole: an export that fails leaves what
was there. JSON Lines has one object per message, the one that `penstock cat --json` prints; the
other two have one row per message with the columns of `Queue.scan` and `due`. pyarrow is imported
for those alone.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, Unpack

from penstock import _core
from penstock.engine import optional_packages, positions
from penstock.engine.convert import (
    BATCH_MESSAGES,
    Losses,
    OnProgress,
    Progress,
    asked,
    checked_drop,
    kept,
    opened,
    place_of,
)
from penstock.engine.queue import Queue
from penstock.engine.table import Scan, remaining
from penstock.errors import FormatError, NotAFolderError, OptionError, UnsupportedError, either
from penstock.formats.values import Damage
from penstock.options import QueueKeywords
from penstock.records import dataclass, field

if TYPE_CHECKING:
    import pyarrow as pa

Kind = Literal["jsonl", "parquet", "arrow"]
KINDS: tuple[Kind, ...] = ("jsonl", "parquet", "arrow")
SUFFIXES: dict[str, Kind] = {
    **{".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl"},
    **{".parquet": "parquet", ".pq": "parquet"},
    **{".arrow": "arrow", ".arrows": "arrow", ".feather": "arrow", ".ipc": "arrow"},
}
MAX_LINE_BYTES = 1 << 30
COLUMNS = ("offset", "number", "timestamp", "due", "id", "key", "tag", "headers", "body")
"""The columns of a table: those of `Queue.scan`, and the time until which a message is delayed."""


@dataclass(slots=True)
class Exchanged:
    """What an export or import has moved."""

    messages: int = 0
    bytes: int = 0
    """How many bytes of bodies were moved."""
    lost: dict[str, int] = field(default_factory=dict)
    """Field → how many messages lost it (`drop`)."""
    left_out: int = 0
    """Messages that the queue can't hold at all (`drop=body`)."""
    damage: list[Damage] = field(default_factory=list)
    """What was passed over in the queue (`tolerant`)."""


def kind_of(path: str | Path, kind: str | None = None) -> Kind:
    """The kind of a file: as named, else by the file's suffix."""
    found = kind or SUFFIXES.get(Path(path).suffix.lower())
    for known in KINDS:
        if found == known:
            return known
    if kind:
        raise OptionError("kind", kind, either(KINDS))
    expected = f"a name that ends in {either(SUFFIXES)}, or else the kind: {either(KINDS)}"
    raise OptionError("file", str(path), expected)


def usable_kind(path: str | Path, kind: str | None = None) -> Kind:
    """The same, once the library that it needs is there."""
    found = kind_of(path, kind)
    if found != "jsonl":
        optional_packages.load("pyarrow", "arrow", f"a file of kind {found}")
    return found


# ── one message as an object ───────────────────────────────────────────────────────────────


def as_object(message: _core.Message) -> dict[str, Any]:
    """The message as plain values: body in base64, absent values null.

    `key` and `due_ns` are there only when the message has them.
    """
    item: dict[str, Any] = {
        "offset": message.offset,
        "number": message.number,
        "timestamp_ns": message.timestamp_ns,
        "id": message.id,
        "tag": message.tag,
        "headers": message.headers or None,
        "body": base64.b64encode(message.body).decode("ascii"),
    }
    if message.key is not None:
        item["key"] = message.key
    if message.due_ns is not None:
        item["due_ns"] = message.due_ns
    return item


def as_line(message: _core.Message) -> bytes:
    """The object as one line of JSON."""
    return json.dumps(as_object(message), ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def from_object(item: object, where: str = "the object") -> _core.Message:
    """The message that `as_object` made plain; offset and number are the queue's to give."""
    if not isinstance(item, dict) or not isinstance(item.get("body"), str):
        raise UnsupportedError(f"{where}: not an object with a `body` in base64")
    try:
        body = base64.b64decode(item["body"], validate=True)
        return _core.Message(
            body, tag=item.get("tag"), id=item.get("id"), key=item.get("key"),
            headers=item.get("headers"), timestamp_ns=item.get("timestamp_ns"),
            due_ns=item.get("due_ns"),
        )  # fmt: skip
    except (binascii.Error, TypeError, OverflowError) as error:
        raise UnsupportedError(f"{where}: {error}") from error


# ── out ────────────────────────────────────────────────────────────────────────────────────


def export(
    queue: Queue | str | os.PathLike[str],
    target: str | os.PathLike[str] | IO[bytes],
    *,
    kind: str | None = None,
    start: positions.Where = "earliest",
    end: positions.Where | None = None,
    tags: str = "",
    tolerant: bool = False,
    on_progress: OnProgress | None = None,
) -> Exchanged:
    """Writes a range of a queue to a file or a binary stream; changes nothing in the queue.

    `kind` is `jsonl`, `parquet` or `arrow`; unless said, the file's suffix tells.
    """
    wanted = usable_kind("" if _is_stream(target) else str(target), kind)
    with ExitStack() as stack:
        queue = stack.enter_context(opened(queue, read_only=True))
        last = queue.offsets().tail
        if end is not None:
            last = positions.resolve(queue.store, end, name="end")
        first = positions.resolve(queue.store, start, name="start")
        scan = remaining(queue.store, first, last, tags=tags, tolerant=tolerant, columns=COLUMNS)
        stream = stack.enter_context(_writable(target))
        if wanted == "jsonl":
            done = _export_lines(scan, stream, last, on_progress)
        else:
            done = _export_table(scan, stream, wanted, last, on_progress)
        done.damage = scan.damage
    return done


def _export_lines(
    scan: Iterable[_core.Message], stream: IO[bytes], last: int, on_progress: OnProgress | None
) -> Exchanged:
    done = Exchanged()
    messages = iter(scan)
    while batch := list(islice(messages, BATCH_MESSAGES)):
        stream.write(b"".join(map(as_line, batch)))
        done.messages += len(batch)
        done.bytes += sum(map(len, batch))
        _tell(on_progress, done, (batch[-1].offset or 0) + 1, last)
    _tell(on_progress, done, last, last)
    return done


def _export_table(
    scan: Scan, stream: IO[bytes], kind: Kind, last: int, on_progress: OnProgress | None
) -> Exchanged:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    done = Exchanged()
    reader = pa.RecordBatchReader.from_stream(scan)
    if kind == "parquet":
        writer = pq.ParquetWriter(stream, reader.schema, compression="zstd")
    else:
        writer = pa.ipc.new_stream(stream, reader.schema)
    with writer:
        for batch in reader:
            writer.write_batch(batch)
            done.messages += batch.num_rows
            done.bytes += pc.sum(pc.binary_length(batch.column("body"))).as_py() or 0
            _tell(on_progress, done, batch.column("offset")[-1].as_py() + 1, last)
    _tell(on_progress, done, last, last)
    return done


# ── in ─────────────────────────────────────────────────────────────────────────────────────


def import_(
    source: str | os.PathLike[str] | IO[bytes],
    queue: Queue | str | os.PathLike[str],
    *,
    kind: str | None = None,
    drop: Collection[str] = (),
    on_progress: OnProgress | None = None,
    format: str | None = None,
    layout: str | None = None,
    create: bool = True,
    **options: Unpack[QueueKeywords],
) -> Exchanged:
    """Puts what a file or a binary stream holds, in order. A queue that is not there is made, with
    these options, once it is known that it can hold what comes.

    Offsets and numbers are the queue's to give. What the queue has no place for is refused, with a
    count per field, before anything is put; `drop` names fields (`convert.FIELDS`) that may be left
    out where they do not fit. A stream that can't be read twice is checked as it comes.
    """
    wanted = usable_kind("" if _is_stream(source) else str(source), kind)
    names = checked_drop(drop)
    how: dict[str, Any] = {"format": format, "layout": layout, "create": create, **options}
    with readable(source) as stream:
        with asked(queue, **how) as model:
            losses = Losses(model, names, "message", place_of(queue))
            batches = _checked(stream, wanted, losses)
        with opened(queue, **how) as target:
            losses = Losses(target, names, "message", place_of(queue))
            return _put_all(target, batches, losses, on_progress)


def _checked(stream: IO[bytes], kind: Kind, losses: Losses) -> Iterator[list[_core.Message]]:
    """What the stream holds, after a look whether it fits: at all of it, or at the beginning where
    a stream can't be read twice."""
    if not stream.seekable():
        batches = _batches(stream, kind)
        head = list(islice(batches, 1))
        _fit(head, losses)
        return chain(head, batches)
    start = stream.tell()
    _fit(_batches(stream, kind), losses)
    stream.seek(start)
    return _batches(stream, kind)


def _fit(batches: Iterable[list[_core.Message]], losses: Losses) -> None:
    for _ in _fitting(batches, losses):
        pass
    losses.refuse()


def _put_all(
    queue: Queue,
    batches: Iterable[list[_core.Message]],
    losses: Losses,
    on_progress: OnProgress | None,
) -> Exchanged:
    done = Exchanged()
    for batch in _fitting(batches, losses):
        losses.refuse()
        going = [message for message in batch if message is not None]
        queue.put_many(going)
        done.messages += len(going)
        done.left_out += len(batch) - len(going)
        done.bytes += sum(map(len, going))
        _tell(on_progress, done, 0, 0)
    done.lost = dict(losses.counts)
    return done


def _fitting(
    batches: Iterable[list[_core.Message]], losses: Losses
) -> Iterator[list[_core.Message | None]]:
    """The messages as they fit into the queue; none for one that is left out."""
    number = 0
    for batch in batches:
        yield [kept(message, losses.of(message, at)) for at, message in enumerate(batch, number)]
        number += len(batch)


def _batches(stream: IO[bytes], kind: Kind) -> Iterator[list[_core.Message]]:
    return _lines(stream) if kind == "jsonl" else _rows(stream, kind)


def _lines(stream: IO[bytes]) -> Iterator[list[_core.Message]]:
    batch: list[_core.Message] = []
    name = getattr(stream, "name", "the stream")
    for number, line in enumerate(iter(lambda: stream.readline(MAX_LINE_BYTES), b""), 1):
        if not line.strip():
            continue
        try:
            item = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UnsupportedError(f"{name}: line {number} is not JSON: {error}") from error
        batch.append(from_object(item, f"{name}: line {number}"))
        if len(batch) == BATCH_MESSAGES:
            yield batch
            batch = []
    if batch:
        yield batch


def _rows(stream: IO[bytes], kind: Kind) -> Iterator[list[_core.Message]]:
    for table in _tables(stream, kind):
        names = table.schema.names
        if "body" not in names:
            raise UnsupportedError(f"the {kind} file has no column body; it has {', '.join(names)}")
        rows = _plain_times(table).to_pylist()
        for at in range(0, len(rows), BATCH_MESSAGES):
            yield [_from_row(row) for row in rows[at : at + BATCH_MESSAGES]]


def _plain_times(table: pa.RecordBatch) -> pa.RecordBatch:
    """With times as numbers: Python's own times end at microseconds."""
    import pyarrow as pa

    for name in ("timestamp", "due"):
        at = table.schema.get_field_index(name)
        if at >= 0 and pa.types.is_timestamp(table.schema.field(at).type):
            times = table.column(at)
            exact = times.cast(pa.timestamp("ns", times.type.tz)).cast(pa.int64())
            table = table.set_column(at, name, exact)
    return table


def _tables(stream: IO[bytes], kind: Kind) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if kind == "parquet":
            yield from pq.ParquetFile(stream).iter_batches(batch_size=BATCH_MESSAGES)
        else:
            yield from pa.ipc.open_stream(stream)
    except pa.ArrowInvalid as error:
        raise FormatError(
            getattr(stream, "name", "stream"), str(error), f"give a whole {kind} file"
        ) from error


def _from_row(row: dict[str, Any]) -> _core.Message:
    time = row.get("timestamp_ns", row.get("timestamp"))
    body = row["body"] if row["body"] is not None else b""
    if isinstance(body, str):
        body = body.encode()
    headers = row.get("headers")
    try:
        return _core.Message(
            body, tag=row.get("tag"), id=row.get("id"), key=row.get("key"),
            headers=dict(headers) if headers else None, timestamp_ns=time,
            due_ns=row.get("due_ns", row.get("due")),
        )  # fmt: skip
    except (TypeError, ValueError, OverflowError) as error:
        raise UnsupportedError(f"a row of the table: {error}") from error


# ── streams ────────────────────────────────────────────────────────────────────────────────


def _is_stream(target: object) -> bool:
    return hasattr(target, "write") or hasattr(target, "read")


@contextmanager
def _writable(target: str | os.PathLike[str] | IO[bytes]) -> Iterator[IO[bytes]]:
    """A file is written beside its place and takes it when it is whole and on the disk."""
    if not isinstance(target, str | os.PathLike):
        yield target
        return
    path = Path(target).resolve()  # A link is not replaced, but the file that it leads to.
    if path.exists() and not path.is_file():  # It is a pipe or a device.
        with path.open("wb") as stream:
            yield stream
        return
    if not path.parent.is_dir():
        raise NotAFolderError(path.parent, "no such folder; make it first")
    beside = path.with_name(f".{os.getpid():x}-{os.urandom(4).hex()}.tmp")
    try:
        try:
            stream = beside.open("xb")
        except OSError as error:  # About the file that was asked for, not the one beside it.
            raise OSError(error.errno, error.strerror, str(path)) from None
        with stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        if path.exists():
            beside.chmod(path.stat().st_mode & 0o777)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


@contextmanager
def readable(source: str | os.PathLike[str] | IO[bytes]) -> Iterator[IO[bytes]]:
    """The file, open; a stream as it is."""
    if isinstance(source, str | os.PathLike):
        with Path(source).open("rb") as stream:
            yield stream
    else:
        yield source


def _tell(on_progress: OnProgress | None, done: Exchanged, offset: int, end: int) -> None:
    if on_progress is not None:
        on_progress(Progress("copy", done.messages, done.bytes, offset, end))
