"""`labels`: words that are stuck on a queue, where its format has a place for them (vqs)."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock.cli import opening, show
from penstock.cli.opening import Json, QueueAt, command
from penstock.engine.queue import Queue
from penstock.errors import UnsupportedError


def register(app: typer.Typer) -> None:
    """Adds `penstock labels` and its commands."""
    about = "List, set and remove the labels of a queue whose format has labels (vqs)."
    labels = opening.family(app, "labels", about)
    command(labels, "list", "penstock labels list jobs.bin")(list_labels)
    command(labels, "set", "penstock labels set jobs.bin team=images cost-center=17")(set_labels)
    command(labels, "remove", "penstock labels remove jobs.bin cost-center")(remove)


def list_labels(at: QueueAt, json: Json = None) -> None:
    """Show the labels; changes nothing."""
    with at.reading() as queue:
        labels = _labels(queue)
    if show.wants_json(json):
        show.emit(labels)
        return
    for name, value in labels.items():
        show.line(f"{show.printable(name)}={show.printable(value)}")


def set_labels(
    at: QueueAt,
    values: Annotated[list[str], typer.Argument(metavar="NAME=VALUE", help="The labels to set.")],
) -> None:
    """Set some labels; the others stay."""
    pairs = opening.pairs("NAME=VALUE", values)
    with at.writing() as queue:
        _labels(queue)
        queue.set_meta(set_labels=pairs)


def remove(
    at: QueueAt,
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="The labels to remove.")],
) -> None:
    """Remove labels; it is an error if one of them is not there."""
    with at.writing() as queue:
        _labels(queue)
        queue.set_meta(remove_labels=names)


def _labels(queue: Queue) -> dict[str, Any]:
    labels = queue.meta.get("labels")
    if labels is None:
        raise UnsupportedError(f"format {queue.store.format.name} keeps no labels; format vqs does")
    return dict(labels)
