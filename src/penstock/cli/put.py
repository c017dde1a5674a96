"""`put`: messages into a queue."""

from __future__ import annotations

import os
from collections.abc import Iterator
from io import BufferedReader
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli import opening, show
from penstock.cli.opening import Json, QueueAt, command, standard_input
from penstock.engine import convert as converts
from penstock.engine.queue import Queue
from penstock.errors import OptionError
from penstock.formats import registry
from penstock.options import GIB

BATCH_LINES = 1000
BATCH_BYTES = 1 << 20
BODY_BYTES_MAX = GIB + 1
"""One byte more than any queue takes: what has no end (a device) is refused, and not read on."""

Bodies = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="BODY",
        help="Bodies, a message each. With none, or `-`, the body is read from stdin.",
    ),
]
Headers = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="A header; give the option once for each."),
]
Files = Annotated[
    list[Path] | None,
    typer.Option(metavar="FILE", help="A file to read a body from; give the option once for each."),
]
Durability = Annotated[
    str | None,
    opening.option(
        "--durability",
        variable="PENSTOCK_DURABILITY",
        help="What a put survives: process, interval or always; by default as the queue keeps.",
    ),
]


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
    bodies: Bodies = None,
    tag: Annotated[
        str | None,
        typer.Option(help="The tag that groups and scans filter on, such as eu.created."),
    ] = None,
    id: Annotated[str | None, typer.Option(help="An id of your own for the message.")] = None,
    key: Annotated[
        str | None,
        typer.Option(help="Messages with the same key are handed out one at a time, in order."),
    ] = None,
    header: Headers = None,
    delay: Annotated[
        float | None, typer.Option(min=0, help="Hand the message out only after this many seconds.")
    ] = None,
    lines: Annotated[
        bool, typer.Option("--lines", help="Make each line a message of its own.")
    ] = False,
    file: Files = None,
    durability: Durability = None,
    create: Annotated[bool, typer.Option(help="Create the queue if there is none.")] = True,
    compression: Annotated[str | None, typer.Option(help="none, or lz4 (format penstock).")] = None,
    timeout: Annotated[
        float, typer.Option(min=0, help="If the queue is full, wait this many seconds for room.")
    ] = 0.0,
    json: Json = None,
) -> None:
    """Put messages from arguments, files or stdin, and print the offset of each.

    Exit code 4 means that the queue is full.
    """
    headers = opening.pairs("--header", header) or None
    _check(file or [])
    common: dict[str, Any] = {"tag": tag, "delay": delay}
    found: Iterator[list[bytes]] = _bodies(bodies or [], file or [])
    own: dict[str, Any] = {"id": id, "key": key, "headers": headers}
    if lines:
        for name, value in own.items():
            _refuse_with_lines(name, value)
        found = _lines(bodies or [], file or [])
    else:
        common |= own
    how: dict[str, Any] = {
        "durability": durability, "compression": compression, "put_timeout_s": timeout,
    }  # fmt: skip
    first = next(found, None)  # Before the queue is made: a file may be missing.
    if create and first is not None and registry.is_empty(at.path):
        with converts.asked(at.path, **at.opening, **how) as model:
            model.put(first[0], **common)  # What is refused leaves no queue behind.
    with at.writing(create=create, **how) as queue:
        every = found if first is None else chain([first], found)
        if lines:
            _put_lines(queue, every, tag, delay, json)
            return
        for body in chain.from_iterable(every):
            _tell(queue.put(body, **common), json)


def _bodies(texts: list[str], files: list[Path]) -> Iterator[list[bytes]]:
    for text in texts or ([] if files else ["-"]):
        is_read = text == "-"
        said = b"" if is_read else text.encode("utf-8", "surrogateescape")
        yield [standard_input().read(BODY_BYTES_MAX) if is_read else said]
    for path in files:
        with path.open("rb") as stream:
            yield [stream.read(BODY_BYTES_MAX)]


def _check(files: list[Path]) -> None:
    """A file that can't be read is an error before any message is put."""
    for path in files:
        if path.is_dir() or not os.access(path, os.R_OK):
            path.open("rb").close()


def _refuse_with_lines(name: str, value: object) -> None:
    if value is not None:
        flag = "--header" if name == "headers" else f"--{name}"
        raise OptionError("--lines", "", f"no {flag} beside it: that is for a single message")


def _lines(texts: list[str], files: list[Path]) -> Iterator[list[bytes]]:
    for text in texts or ([] if files else ["-"]):
        if text == "-":
            yield from _lines_of(standard_input())
        elif whole := text.encode("utf-8", "surrogateescape").splitlines():
            yield whole
    for path in files:
        with path.open("rb") as stream:
            yield from _lines_of(stream)


def _lines_of(stream: BufferedReader) -> Iterator[list[bytes]]:
    """The lines that are there, again and again. Who pipes `tail -F` in writes one from time to
    time: it is put as it comes, and does not wait for others."""
    parts: list[bytes] = []
    size = 0
    while size < BODY_BYTES_MAX and (chunk := stream.read1(BATCH_BYTES)):
        *whole, rest = chunk.split(b"\n")
        if whole:
            yield [b"".join([*parts, whole[0]]), *whole[1:]]
            parts, size = [], 0
        parts.append(rest)
        size += len(rest)
    if size:
        yield [b"".join(parts)]


def _put_lines(
    queue: Queue,
    found: Iterator[list[bytes]],
    tag: str | None,
    delay: float | None,
    json: bool | None,
) -> None:
    count, first = 0, None
    most_bytes = queue.options.max_bytes // 16 or BATCH_BYTES
    for batch in chain.from_iterable(_batches(lines, most_bytes) for lines in found):
        offset = queue.put_many(batch, tag=tag, delay=delay)
        first = offset if first is None else first
        count += len(batch)
    if show.wants_json(json):
        show.emit({"messages": count, "offset": first})
    else:
        show.line(f"{show.plural(count, 'message')} from offset {first} on")


def _batches(found: list[bytes], most_bytes: int) -> Iterator[list[bytes]]:
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
