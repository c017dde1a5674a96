"""The command `penstock`. One file per family of commands; `show` draws.

`import penstock` imports nothing from here, so the libraries of the command line are needed by the
command line alone.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

NEEDS = ("typer", "rich")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit code."""
    try:
        from penstock.cli.app import run
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] not in NEEDS:
            raise
        print(
            f"penstock: the command line needs {error.name}, which is not installed: "
            f"pip install 'penstock[cli]'. The library works without it.",
            file=sys.stderr,
        )
        return 2
    except KeyboardInterrupt:  # Loading takes a moment, and `run` is not there yet to say so.
        return 130
    return run(arguments)
