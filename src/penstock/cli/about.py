"""`ls`, `info`: which queues there are and what they hold. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli import show
from penstock.cli.opening import Json, QueueAt, Utc, command
from penstock.engine import facts as facts_of
from penstock.engine import overview
from penstock.engine.queue import Queue
from penstock.errors import PenstockError

MAX_DEPTH = 3
SHOWN_SEGMENTS = 12


def register(app: typer.Typer) -> None:
    """Adds `penstock ls` and `penstock info`."""
    command(app, "ls", "penstock ls", "penstock ls /var/spool --json")(ls)
    command(
        app, "info", "penstock info orders", "penstock info orders --json | jq '.groups[].lag'"
    )(info)


def ls(
    folder: Annotated[Path, typer.Argument(help="The folder to look in.")] = Path(),
    json: Json = None,
) -> None:
    """List the queues in a folder, three levels deep."""
    if not folder.is_dir():
        raise typer.BadParameter(f"{folder} is no folder")
    rows = []
    for path in find(folder):
        try:
            with Queue(path, read_only=True) as queue:
                facts = _short(queue)
        except (PenstockError, OSError) as error:
            facts = {"path": str(path), "error": show.said(error)}
        if show.wants_json(json):
            show.emit(facts)
        rows.append(facts)
    if not show.wants_json(json):
        columns = ["path", "format", "layout", ">messages", ">bytes", ">groups"]
        if any("error" in row for row in rows):
            columns.append("error")
        names = [column.removeprefix(">") for column in columns]
        drawn = (row | {"path": show.place(row["path"])} for row in rows)
        show.table(columns, ([row.get(name, "") for name in names] for row in drawn))


def find(folder: Path, depth: int = MAX_DEPTH) -> Iterator[Path]:
    """Everything in `folder` that looks like a queue, in order of names; nothing in a queue."""
    from penstock.formats import registry

    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        show.note(f"not looked into: {show.said(error)}")
        return
    for entry in entries:
        if entry.name.startswith(".") or entry.is_symlink():
            continue
        if not entry.is_dir() and entry.suffix != ".bin":
            continue
        try:
            registry.sniff(entry)
        except (PenstockError, OSError):
            if entry.is_dir() and depth > 1:
                yield from find(entry, depth - 1)
            continue
        yield entry


def _short(queue: Queue) -> dict[str, Any]:
    store, end = queue.store, queue.offsets()
    return {
        "path": str(queue.path),
        "format": store.format.name,
        "layout": store.layout,
        "messages": facts_of.messages_from(store, end.head),
        "bytes": store.bytes_between(end.head, end.tail),
        "groups": len(queue.groups()),
    }


def info(
    at: QueueAt,
    utc: Utc = False,
    json: Json = None,
) -> None:
    """Show format, ends, segments and groups of a queue; changes nothing."""
    with at.reading() as queue:
        facts = overview.queue_facts(queue.store)
        if show.wants_json(json):
            show.emit(facts)
        else:
            draw(facts)


def draw(facts: dict[str, Any]) -> None:
    """Prints the facts for a person to read."""
    single = {k: v for k, v in facts.items() if k not in ("segments", "groups", "meta", "dropped")}
    single["path"] = show.place(facts["path"])
    single["bytes"] = f"{facts['bytes']} ({show.size(facts['bytes'])})"
    single["disk_bytes"] = f"{facts['disk_bytes']} ({show.size(facts['disk_bytes'])})"
    show.facts(single | {f"meta.{k}": v for k, v in facts["meta"].items()})
    segments = facts["segments"]
    shown = segments[-SHOWN_SEGMENTS:]
    title = show.plural(len(segments), "segment")
    title += f", the newest {len(shown)}" if len(shown) < len(segments) else ""
    rows = (
        (Path(s["path"]).name, s["first"], s["messages"], show.size(s["bytes"]),
         show.moment(s["first_ns"], "seconds"))
        for s in shown
    )  # fmt: skip
    show.table((">segment", ">first", ">messages", ">size", "from"), rows, title)
    draw_groups(facts["groups"])


def draw_groups(groups: list[dict[str, Any]]) -> None:
    """A table of groups."""
    names = ("name", "ack", "tags", "cursor", "lag", "leased", "ready", "delayed", "paused")
    right = {"cursor", "lag", "leased", "ready", "delayed"}
    columns = [f">{name}" if name in right else name for name in names]
    rows = ([_shown(group.get(name)) for name in names] for group in groups)
    show.table(columns, rows, show.plural(len(groups), "group"))


def _shown(value: object) -> object:
    """Yes and no instead of Python's words."""
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else value
