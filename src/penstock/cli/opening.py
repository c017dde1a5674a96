"""What the commands share: their common options, and how they open queues.

Keys come from a file (`--key-file`, also `/dev/fd/N`) or a variable (`--key-env`), never from the
command line itself, where every user of the machine could read them.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from penstock.engine.queue import Queue
from penstock.errors import OptionError
from penstock.options import key_from

EXIT_CODES = (
    "Exit codes: 0 done; 1 damage was found; 2 it can't be done (the reason is on stderr); "
    "3 nothing came in time; 4 the queue is full; 130 interrupted."
)

Work = Callable[..., int | None]

Format = Annotated[
    str | None,
    typer.Option("--format", envvar="PENSTOCK_FORMAT", help="Its format, when it can't be told."),
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


@dataclasses.dataclass(frozen=True, slots=True)
class QueueAt:
    """A queue as the command line names it. A command that has one takes all of these options."""

    path: Annotated[Path, typer.Argument(metavar="PATH", help="The queue: a folder or a file.")]
    format: Format = None
    layout: Annotated[
        str | None,
        typer.Option(
            "--layout", envvar="PENSTOCK_LAYOUT", help="Its layout, when it can't be told."
        ),
    ] = None
    key_file: Annotated[
        str | None,
        typer.Option(
            "--key-file",
            envvar="PENSTOCK_KEY_FILE",
            help="File with the key: raw bytes or hex digits; /dev/fd/N works.",
        ),
    ] = None
    key_env: Annotated[
        str | None,
        typer.Option(
            "--key-env", envvar="PENSTOCK_KEY_ENV", help="Name of a variable that holds the key."
        ),
    ] = None

    @property
    def key(self) -> bytes | None:
        """What it is encrypted with."""
        return key_from(file=self.key_file, env=self.key_env)

    def reading(self, **options: Any) -> Queue:
        """Opens it without changing anything."""
        return self._open(read_only=True, **options)

    def writing(self, *, create: bool = False, **options: Any) -> Queue:
        """Opens it for use; only some commands make a new one."""
        return self._open(create=create, **options)

    def _open(self, **options: Any) -> Queue:
        return Queue(self.path, format=self.format, layout=self.layout, key=self.key, **options)


def pairs(option: str, texts: Iterable[str] | None) -> dict[str, str]:
    """Texts like `name=value`; none where the option was not given."""
    found = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise OptionError(option, text, "a name, =, and a value: k=v")
        found[name] = value
    return found


def family(app: typer.Typer, name: str, about: str) -> typer.Typer:
    """Commands under a common name."""
    found = typer.Typer(help=about, no_args_is_help=True, epilog=EXIT_CODES)
    app.add_typer(found, name=name)
    return found


def command(app: typer.Typer, name: str, *examples: str) -> Callable[[Work], None]:
    """Registers a command with its examples and the exit codes under its help."""
    shown = [f"[dim]$[/dim] {escape(example)}" for example in examples]
    epilog = "\n\n".join(["Examples:", *shown, EXIT_CODES])

    def add(work: Work) -> None:
        asked = _asked(work)

        @functools.wraps(work)
        def run(**options: object) -> None:
            try:
                code = work(**_given(work, options))
                sys.stdout.flush()
            except BrokenPipeError:
                # Whoever read our output has enough: what is still buffered goes nowhere.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                return
            if code:
                raise typer.Exit(code)

        run.__signature__ = asked  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in asked.parameters.values()}
        paragraphs = inspect.getdoc(work) or ""
        text = "\n\n".join(" ".join(part.split()) for part in paragraphs.split("\n\n"))
        app.command(name, help=escape(text), epilog=epilog)(run)

    return add


def _asked(work: Work) -> inspect.Signature:
    """What the command line asks for: where the queue is in its place, the rest of it last."""
    own = inspect.signature(work, eval_str=True)
    path, *rest = inspect.signature(QueueAt, eval_str=True).parameters.values()
    found = [path if one.annotation is QueueAt else one for one in own.parameters.values()]
    return own.replace(parameters=[*found, *rest] if path in found else found)


def _given(work: Work, options: dict[str, Any]) -> dict[str, Any]:
    """What the command line has, as the command takes it."""
    parts = [field.name for field in dataclasses.fields(QueueAt)]
    for one in inspect.signature(work, eval_str=True).parameters.values():
        if one.annotation is QueueAt:
            options[one.name] = QueueAt(**{part: options.pop(part) for part in parts})
    return options
