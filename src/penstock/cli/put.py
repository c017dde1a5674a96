"""`put`: messages into a queue."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli import opening, show
from penstock.cli.opening import Json, QueueAt, command
from penstock.engine import convert as converts
from penstock.engine.queue import Queue
from penstock.formats import registry

BATCH_LINES = 1000
BATCH_BYTES = 1 << 20


def register(app: typer.Typer) -> None:
    """Adds `penstock put`."""
    command(
        app,
        "put",
        "penstock put orders 'hello' --tag eu.created",
        "penstock put orders --header trace=17 --delay 60 < order.json",
        "seq 1000 | penstock put orders --lines -",
        "penstock put queue.bin hello --format vqs",
    )(put)


def put(
    at: QueueAt,
    bodies: Annotated[
        list[str] | None, typer.Argument(metavar="[BODY]...", help="Bodies; `-` or none: stdin.")
    ] = None,
    tag: Annotated[str | None, typer.Option(help="What groups filter on: `eu.created`.")] = None,
    id: Annotated[str | None, typer.Option(help="Your own name for the message.")] = None,
    key: Annotated[str | None, typer.Option(help="One at a time, in order, per key.")] = None,
    header: Annotated[list[str] | None, typer.Option(help="`name=value`; repeat it.")] = None,
    delay: Annotated[
        float | None, typer.Option(min=0, help="Keep it back this many seconds.")
    ] = None,
    lines: Annotated[bool, typer.Option("--lines", help="Each line is a message.")] = False,
    file: Annotated[list[Path] | None, typer.Option(help="Each file is a body.")] = None,
    durability: Annotated[
        str | None,
        opening.option(
            "--durability",
            variable="PENSTOCK_DURABILITY",
            help="process, interval or always; by default the queue's own.",
        ),
    ] = None,
    create: Annotated[bool, typer.Option(help="Make the queue when there is none.")] = True,
    compression: Annotated[str | None, typer.Option(help="none or lz4 (format penstock).")] = None,
    timeout: Annotated[
        float, typer.Option(min=0, help="Wait this many seconds for room in a full queue.")
    ] = 0.0,
    json: Json = None,
) -> None:
    """Put messages: arguments, files or stdin. Prints each one's offset. Exit code 4: no room."""
    headers = opening.pairs("--header", header) or None
    common: dict[str, Any] = {"tag": tag, "delay": delay}
    found: Iterator[bytes]
    if lines:
        found = (item for source in bodies or ["-"] for item in _lines(source))
    else:
        found = _bodies(bodies or [], file or [])
        common |= {"id": id, "key": key, "headers": headers}
    how: dict[str, Any] = {
        "durability": durability, "compression": compression, "put_timeout_s": timeout,
    }  # fmt: skip
    first = next(found, None)  # Before the queue is made: a file may be missing.
    if create and first is not None and registry.is_empty(at.path):
        with converts.asked(at.path, **at.opening, **how) as model:
            model.put(first, **common)  # What is refused leaves no queue behind.
    with at.writing(create=create, **how) as queue:
        every = found if first is None else chain([first], found)
        if lines:
            _put_lines(queue, every, tag, delay, json)
            return
        for body in every:
            _tell(queue.put(body, **common), json)


def _bodies(texts: list[str], files: list[Path]) -> Iterator[bytes]:
    for text in texts or ([] if files else ["-"]):
        yield sys.stdin.buffer.read() if text == "-" else text.encode("utf-8", "surrogateescape")
    for path in files:
        yield path.read_bytes()


def _lines(source: str) -> Iterator[bytes]:
    if source == "-":
        for line in sys.stdin.buffer:
            yield line.removesuffix(b"\n")
    else:
        yield from source.encode("utf-8", "surrogateescape").splitlines()


def _put_lines(
    queue: Queue, found: Iterator[bytes], tag: str | None, delay: float | None, json: bool | None
) -> None:
    count, first = 0, None
    for batch in _batches(found, queue.options.max_bytes // 16 or BATCH_BYTES):
        offset = queue.put_many(batch, tag=tag, delay=delay)
        first = offset if first is None else first
        count += len(batch)
    if show.wants_json(json):
        show.emit({"messages": count, "offset": first})
    else:
        show.line(f"{count} messages from offset {first} on")


def _batches(found: Iterator[bytes], most_bytes: int) -> Iterator[list[bytes]]:
    """In pieces that are put at once: none is too large for a queue with a limit."""
    batch: list[bytes] = []
    size = 0
    for line in found:
        batch.append(line)
        size += len(line)
        if len(batch) == BATCH_LINES or size >= most_bytes:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _tell(offset: int, json: bool | None) -> None:
    if show.wants_json(json):
        show.emit({"offset": offset})
    else:
        show.line(str(offset))
