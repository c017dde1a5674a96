"""What tasks of a sink leave for its commit: rows as Arrow files, each with its check.

Nothing is synced here. A file that a power cut takes, or cuts short, is one that no commit has
used: its check tells, the commit fails, and Spark runs the tasks again. What was committed is in
the queue, and synced there. So a file that is soon removed never goes to the disk at all.

A task that runs twice leaves two files; only the one whose message arrives is committed, the
others are swept away by the next commit or abort. When the queue is encrypted so are they.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock import _core
from penstock.errors import CorruptError, StorageError
from penstock.sidecar import sinks
from penstock.spark import shipped
from penstock.spark.versions import WriterCommitMessage


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """The rows that one task has left, and where."""

    path: str
    partition: int
    attempt: int
    rows: int
    bytes: int
    check: int
    """CRC-32C of the file."""


def write(
    folder: str, batches: Iterable[pa.RecordBatch], schema: pa.Schema, key: bytes | None
) -> Staged:
    """Writes rows to a new file, which has its name when it is whole."""
    partition, attempt = _task()
    name = f"{partition:06d}-{attempt}-{secrets.token_hex(4)}.arrow"
    path = f"{folder}/{name}"
    if key is None and not shipped.is_url(path):
        rows, size, check = _write_file(Path(path), batches, schema)
        return Staged(path, partition, attempt, rows, size, check)
    sink = pa.BufferOutputStream()
    rows = _write_stream(sink, batches, schema)
    data = sink.getvalue().to_pybytes()
    if key is not None:
        data = _core.encrypt_bytes(key, data, name.encode())
    _store(path, data)
    return Staged(path, partition, attempt, rows, len(data), _check(pa.py_buffer(data)))


def _write_stream(sink: Any, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> int:
    rows = 0
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows


def _write_file(
    path: Path, batches: Iterable[pa.RecordBatch], schema: pa.Schema
) -> tuple[int, int, int]:
    """Straight into the file: through memory, rows would be copied three times more."""
    unfinished = sinks.begin_rows(path)
    with pa.OSFile(str(unfinished), "wb") as sink:
        rows = _write_stream(sink, batches, schema)
    with pa.memory_map(str(unfinished)) as file:
        data = file.read_buffer()
        size, check = data.size, _check(data)
    sinks.place_rows(unfinished, path)
    return rows, size, check


def read(staged: Staged, key: bytes | None) -> pa.Table:
    """The rows of a file, checked. They stay in the file's pages as long as they are used."""
    data = _load(staged.path)
    check = _check(data)
    if (data.size, check) != (staged.bytes, staged.check):
        found = f"{data.size} bytes that check as {check:08x}"
        raise CorruptError(staged.path, 0, found, f"{staged.bytes}, {staged.check:08x}")
    if key is not None:
        name = staged.path.rsplit("/", 1)[-1].encode()
        data = pa.py_buffer(_core.decrypt_bytes(key, data.to_pybytes(), name))
    return pa.ipc.open_stream(data).read_all()


def _check(data: pa.Buffer) -> int:
    """CRC-32C, by the core: it takes a tenth of the time of `zlib`'s CRC-32."""
    return _core.crc32c_array(pa.Array.from_buffers(pa.uint8(), data.size, [None, data]))


def sweep(folder: str) -> None:
    """Removes everything that tasks left in the folder."""
    if shipped.is_url(folder):
        system, path = shipped.file_system(folder)
        if system.exists(path):
            system.rm(path, recursive=True)
        return
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return
    for entry in entries:
        if entry.name.endswith((".arrow", ".tmp")):
            sinks.drop_rows(Path(entry.path))


def drop(folder: str) -> None:
    """Removes the folder of a job that is over."""
    if not shipped.is_url(folder):
        sinks.drop_folder(Path(folder))


def forget(messages: Iterable[WriterCommitMessage | None]) -> None:
    """Removes the files of tasks whose rows will not be committed."""
    for one in staged_of(messages):
        if not one.path:
            continue
        if shipped.is_url(one.path):
            system, path = shipped.file_system(one.path)
            if system.exists(path):
                system.rm_file(path)
        else:
            sinks.drop_rows(Path(one.path))


def staged_of(messages: Iterable[WriterCommitMessage | None]) -> Iterator[Staged]:
    """The messages that are ours, by partition."""
    found = [one for one in messages if isinstance(one, Staged)]
    yield from sorted(found, key=lambda one: one.partition)


def _store(path: str, data: bytes) -> None:
    if shipped.is_url(path):
        system, inner = shipped.file_system(path)
        system.makedirs(inner.rsplit("/", 1)[0], exist_ok=True)
        system.pipe_file(inner, data)
        return
    sinks.write_rows(Path(path), data)


def _load(path: str) -> pa.Buffer:
    if shipped.is_url(path):
        system, inner = shipped.file_system(path)
        return pa.py_buffer(system.cat_file(inner))
    try:
        with pa.memory_map(path) as file:
            return file.read_buffer()
    except FileNotFoundError:
        advice = "on a cluster, stagingDir must be a place that driver and executors share"
        raise StorageError(path, f"a task's rows are not here; {advice}") from None


def _task() -> tuple[int, int]:
    from pyspark import TaskContext

    context: Any = TaskContext.get()
    return (0, 0) if context is None else (context.partitionId(), context.attemptNumber())
