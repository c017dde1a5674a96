"""The commands, put together; errors become a sentence and an exit code."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any

import typer

from penstock.cli import opening, panels, show
from penstock.errors import (
    CorruptError,
    Empty,
    Full,
    PenstockError,
)  # fmt: skip

FAMILIES = (
    "put", "take", "read", "about", "top", "groups", "labels", "upkeep", "health", "inspect",
    "files", "doctor", "bench", "demo", "pipeline", "work", "serve",
)  # fmt: skip

INTERRUPTED = 130

app: typer.Typer = typer.Typer(
    name="penstock",
    help="A durable, brokerless message queue: a queue is a folder.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
    },
    epilog=opening.EXIT_CODES,
)


def _version(value: bool) -> None:
    if value:
        from penstock import __version__

        print(f"penstock {__version__}")
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
panels.arrange(app)


@cache
def command() -> Any:
    """The parser: made once, also where one process runs several commands."""
    return typer.main.get_command(app)


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code."""
    opening.typed_words[:] = sys.argv[1:] if arguments is None else arguments
    try:
        opening.check_streams()
        opening.check_variables()
        command().main(list(opening.typed_words), prog_name="penstock")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    except (PenstockError, OSError) as error:
        show.error(show.said(error) or "nothing came in time")
        return code_of(error)
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        _tell_defect(error)
        return 2
    return 0


def _tell_defect(error: Exception) -> None:
    """An unforeseen error: a sentence for the user, and the way to its traceback."""
    if os.environ.get("PENSTOCK_DEBUG") == "1":
        import traceback

        traceback.print_exception(error)
    show.error(
        f"{type(error).__name__}: {error}. This is a defect of penstock: please report it with the "
        f"command and what PENSTOCK_DEBUG=1 prints"
    )


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
