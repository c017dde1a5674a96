"""What the commands share: their common options, and how they open queues.

Keys come from a file (`--key-file`, also `/dev/fd/N`) or a variable (`--key-env`), never from the
command line itself, where every user of the machine could read them.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from penstock.engine.queue import Queue
from penstock.options import key_from

EXIT_CODES = (
    "Exit codes: 0 done; 1 damage was found; 2 it can't be done (the reason is on stderr); "
    "3 nothing came in time; 4 the queue is full; 130 interrupted."
)

Work = Callable[..., int | None]

QueuePath = Annotated[Path, typer.Argument(metavar="PATH", help="The queue: a folder or a file.")]
Format = Annotated[
    str | None,
    typer.Option("--format", envvar="PENSTOCK_FORMAT", help="Its format, when it can't be told."),
]
LayoutName = Annotated[
    str | None,
    typer.Option("--layout", envvar="PENSTOCK_LAYOUT", help="Its layout, when it can't be told."),
]
KeyFile = Annotated[
    str | None,
    typer.Option(
        "--key-file",
        envvar="PENSTOCK_KEY_FILE",
        help="File with the key: raw bytes or hex digits; /dev/fd/N works.",
    ),
]
KeyEnv = Annotated[
    str | None,
    typer.Option(
        "--key-env", envvar="PENSTOCK_KEY_ENV", help="Name of a variable that holds the key."
    ),
]
Json = Annotated[
    bool | None,
    typer.Option("--json/--no-json", envvar="PENSTOCK_JSON", help="JSON Lines; when piped: yes."),
]
GroupName = Annotated[
    str, typer.Option("--group", "-g", envvar="PENSTOCK_GROUP", help="Name of the group.")
]
Tags = Annotated[str, typer.Option("--tags", help="Only these tags: `eu.*;us.#`.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")]
Where = (
    "earliest, latest, an offset, offset:N:ID, number:N, a time like 2026-11-01T12:00, "
    "or an age like 3d"
)


def reading(
    path: Path, format: str | None, layout: str | None, key_file: str | None, key_env: str | None
) -> Queue:
    """Opens a queue without changing anything."""
    key = key_from(file=key_file, env=key_env)
    return Queue(path, format=format, layout=layout, read_only=True, key=key)


def writing(
    path: Path,
    format: str | None,
    layout: str | None,
    key_file: str | None,
    key_env: str | None,
    *,
    create: bool = False,
    **options: Any,
) -> Queue:
    """Opens a queue for use; only some commands make a new one."""
    key = key_from(file=key_file, env=key_env)
    return Queue(path, format=format, layout=layout, create=create, key=key, **options)


def command(app: typer.Typer, name: str, *examples: str) -> Callable[[Work], None]:
    """Registers a command with its examples and the exit codes under its help."""
    shown = [f"[dim]$[/dim] {escape(example)}" for example in examples]
    epilog = "\n\n".join(["Examples:", *shown, EXIT_CODES])

    def add(work: Work) -> None:
        @functools.wraps(work)
        def run(*args: object, **options: object) -> None:
            try:
                code = work(*args, **options)
                sys.stdout.flush()
            except BrokenPipeError:
                # Whoever read our output has enough: what is still buffered goes nowhere.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                return
            if code:
                raise typer.Exit(code)

        paragraphs = inspect.getdoc(work) or ""
        text = "\n\n".join(" ".join(part.split()) for part in paragraphs.split("\n\n"))
        app.command(name, help=escape(text), epilog=epilog)(run)

    return add
