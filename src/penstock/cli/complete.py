"""What the shell may offer when the user presses Tab: queues, groups, formats, pipelines.

Completion must never fail and never change anything: a folder that can't be read offers nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import typer

from penstock.errors import PenstockError


def queues(incomplete: str) -> list[str]:
    """Queues beside what was typed, and the folders that may hold some."""
    typed = Path(incomplete)
    folder = typed if incomplete.endswith("/") or not incomplete else typed.parent
    return sorted(found for found in _entries(folder) if found.startswith(incomplete))


def groups(context: typer.Context, incomplete: str) -> list[str]:
    """The groups of the queue that stands earlier on the line."""
    from penstock.engine.queue import Queue

    # While an option still lacks its value, what stood before it is not taken apart yet.
    path = context.params.get("path") or next(iter(context.args), None)
    if path is None:
        return []
    try:
        with Queue(path, read_only=True) as queue:
            return [name for name in queue.groups() if name.startswith(incomplete)]
    except (PenstockError, OSError):
        return []


def formats(incomplete: str) -> list[str]:
    """The formats whose names begin so."""
    from penstock.formats import registry

    return [name for name in registry.MODULES if name.startswith(incomplete)]


def pipelines(incomplete: str) -> list[tuple[str, str]]:
    """Names of pipelines, each with what it does."""
    try:
        from penstock.spark.pipelines import NAMES
    except ImportError:
        return []
    return [(name, text) for name, text in NAMES.items() if name.startswith(incomplete)]


def _entries(folder: Path) -> Iterator[str]:
    from penstock.formats import registry

    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if not entry.is_dir() and entry.suffix != ".bin":
            continue
        try:
            registry.sniff(entry)
            yield str(entry)
        except (PenstockError, OSError):
            if entry.is_dir():
                yield f"{entry}/"
