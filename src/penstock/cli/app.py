"""The commands, put together; errors become a sentence and an exit code."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any

import typer

from penstock.cli import opening, show
from penstock.errors import CorruptError, Empty, Full, PenstockError

FAMILIES = (
    "put", "take", "read", "about", "top", "groups", "labels", "upkeep", "health", "inspect",
    "files", "doctor", "bench", "demo", "pipeline",
)  # fmt: skip

app = typer.Typer(
    name="penstock",
    help="A durable, brokerless message queue: a queue is a folder.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={
        "auto_envvar_prefix": "PENSTOCK",
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
    },
    epilog=opening.EXIT_CODES,
)


def _version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        print(f"penstock {version('penstock')}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """A durable, brokerless message queue: a queue is a folder."""


for family in FAMILIES:
    importlib.import_module(f"penstock.cli.{family}").register(app)


@cache
def command() -> Any:
    """What parses the line: made once, for whoever runs several commands in one process."""
    return typer.main.get_command(app)


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; answers its exit code."""
    try:
        command().main(None if arguments is None else list(arguments), prog_name="penstock")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    except (PenstockError, OSError) as error:
        show.error(str(error) or "nothing came in time")
        return code_of(error)
    return 0


def code_of(error: Exception) -> int:
    """The exit code of an error."""
    match error:
        case CorruptError():
            return 1
        case Empty():
            return 3
        case Full():
            return 4
        case _:
            return 2
