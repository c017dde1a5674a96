"""`bench`: a quick figure of this machine. `make bench` measures with care."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli import show
from penstock.cli.opening import Json, command
from penstock.engine.queue import Queue
from penstock.options import DurabilityName

BATCH = 1000


def register(app: typer.Typer) -> None:
    """Adds `penstock bench`."""
    command(
        app, "bench", "penstock bench", "penstock bench --folder /var/spool --durability always"
    )(bench)


def bench(
    folder: Annotated[
        Path | None,
        typer.Option(
            help="Measure on the disk of this folder; by default on that of the temporary folder."
        ),
    ] = None,
    messages: Annotated[
        int, typer.Option("--messages", "-n", min=BATCH, help="Measure with this many messages.")
    ] = 50_000,
    size: Annotated[int, typer.Option(min=1, help="The bytes of each body.")] = 100,
    durability: Annotated[
        DurabilityName,
        typer.Option(metavar="NAME", help="What a put survives: process, interval or always."),
    ] = "interval",
    format: Annotated[str, typer.Option(help="The format to measure.")] = "penstock",
    json: Json = None,
) -> None:
    """Measure put, put_many, get and ack, and scan, in a queue that is made for it."""
    rows: list[tuple[str, str, str, str]] = []
    with tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=folder) as place:
        path = Path(place) / ("queue.bin" if format == "vqs" else "queue")
        with Queue(path, format=format, durability=durability) as queue:
            for name, work in _works(queue, messages, body_of(size)):
                begun = time.perf_counter()
                count = work()
                seconds = time.perf_counter() - begun
                rows.append(_row(name, count, seconds, size, json))
    if not show.wants_json(json):
        columns = ("what", ">messages/s", ">µs each", ">bytes/s")
        show.table(columns, rows, f"bodies of {size} bytes, durability {durability}")


def body_of(size: int) -> bytes:
    """A JSON object of about `size` bytes: some formats hold nothing else."""
    return b'{"x":"%s"}' % (b"x" * max(0, size - 8))


def _works(queue: Queue, count: int, body: bytes) -> list[tuple[str, Callable[[], int]]]:
    def put() -> int:
        for _ in range(count):
            queue.put(body)
        return count

    def put_many() -> int:
        batch = [body] * BATCH
        for _ in range(count // BATCH):
            queue.put_many(batch)
        return count // BATCH * BATCH

    def get() -> int:
        group = queue.group("lease")
        for _ in range(count):
            group.get(0).ack()
        return count

    def get_many() -> int:
        group, got = queue.group("auto", ack="auto"), 0
        while found := group.get_many(BATCH):
            got += len(found)
        return got

    def scan() -> int:
        return sum(1 for _ in queue.scan())

    return [
        ("put", put),
        (f"put_many of {BATCH}", put_many),
        ("get and ack", get),
        (f"get_many of {BATCH}, ack=auto", get_many),
        ("scan, message by message", scan),
    ]


def _row(
    name: str, count: int, seconds: float, size: int, json: bool | None
) -> tuple[str, str, str, str]:
    """One line of the table; with --json it is printed at once."""
    rate = count / seconds if seconds else 0.0
    if show.wants_json(json):
        show.emit({"what": name, "messages": count, "seconds": seconds, "per_second": rate})
    return name, f"{rate:,.0f}", f"{seconds / count * 1e6:.2f}", show.size(rate * size)
