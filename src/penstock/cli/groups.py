"""`groups` and `seek`: who reads a queue, how far they are, and setting them elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from penstock.cli import about, complete, opening, show
from penstock.cli.opening import DryRun, GroupName, Json, QueueAt, command
from penstock.engine import overview, positions
from penstock.engine.group import Group
from penstock.errors import GroupError
from penstock.options import AckMode

Name = Annotated[
    str,
    typer.Argument(metavar="GROUP", autocompletion=complete.groups, help="The name of the group."),
]


def register(app: typer.Typer) -> None:
    """Adds `penstock groups` and its commands."""
    groups = opening.family(app, "groups", "List, make, delete, pause and resume groups.")
    command(groups, "list", "penstock groups list orders", "penstock groups list orders --json")(
        list_groups
    )
    command(groups, "lag", "penstock groups lag orders", "penstock groups lag orders billing")(lag)
    command(
        groups,
        "create",
        "penstock groups create orders billing --tags 'eu.*;us.#'",
        "penstock groups create orders audit --start latest --max-receives 5",
    )(create)
    command(groups, "delete", "penstock groups delete orders billing")(delete)
    command(groups, "pause", "penstock groups pause orders billing")(pause)
    command(groups, "resume", "penstock groups resume orders billing")(resume)
    command(
        app,
        "seek",
        "penstock seek orders earliest --group billing",
        "penstock seek orders 2026-11-01T12:00 --group billing",
        "penstock seek orders number:1000 --dry-run",
    )(seek)


def list_groups(
    at: QueueAt,
    json: Json = None,
) -> None:
    """Show every group with its cursor, its lag and its leases; changes nothing."""
    with at.reading() as queue:
        found = [overview.group_facts(queue.store, name) for name in queue.groups()]
    if show.wants_json(json):
        for facts in found:
            show.emit(facts)
    else:
        about.draw_groups(found)


def lag(
    at: QueueAt,
    name: Annotated[str | None, typer.Argument(metavar="[GROUP]", help="Only this group.")] = None,
    json: Json = None,
) -> None:
    """Show how many messages each group has not read yet; changes nothing."""
    with at.reading() as queue:
        for one in [name] if name else queue.groups():
            facts = overview.group_facts(queue.store, one)
            if show.wants_json(json):
                show.emit({key: facts[key] for key in ("name", "lag", "lag_bytes")})
            else:
                show.line(f"{facts['lag']:>12}  {one}")


def create(
    at: QueueAt,
    name: Name,
    start: Annotated[
        str, typer.Option(help=f"Where the group begins: {opening.Where}.")
    ] = "earliest",
    tags: Annotated[
        str, typer.Option(help="Only messages with these tags, such as 'eu.*;us.#'.")
    ] = "",
    ack: Annotated[
        AckMode,
        typer.Option(
            metavar="MODE", help="lease: consumers ack each message; auto: taking one acks it."
        ),
    ] = "lease",
    visibility: Annotated[
        float,
        typer.Option(
            help="A consumer has this many seconds for a message before another one gets it."
        ),
    ] = 30.0,
    max_receives: Annotated[
        int,
        typer.Option(
            help="After this many tries a message goes to the dead letters; 0 means never."
        ),
    ] = 0,
    dead_letter: Annotated[
        str | None,
        typer.Option(help="The path of the queue for dead letters; by default PATH.dead."),
    ] = None,
) -> None:
    """Create a group; it is an error if the group exists."""
    with at.writing() as queue:
        if name in queue.groups():
            raise GroupError(
                f"{at.path}: group {name!r} is there already; `penstock set` changes it"
            )
        queue.group(
            name, start=start, tags=tags, ack=ack, visibility_s=visibility,
            max_receives=max_receives, dead_letter=dead_letter,
        )  # fmt: skip


@contextmanager
def _open_group(at: QueueAt, name: str) -> Iterator[Group]:
    with at.writing() as queue:
        yield queue.group(name, create=False)


def delete(
    at: QueueAt,
    name: Name,
    dry_run: DryRun = False,
) -> None:
    """Delete a group and its progress; the messages stay."""
    if dry_run:
        with at.reading() as queue:
            facts = overview.group_facts(queue.store, name)
        show.line(
            f"would delete group {name!r}, which has {show.plural(facts['lag'], 'message')} to read"
        )
        return
    with _open_group(at, name) as group:
        group.delete()


def pause(
    at: QueueAt,
    name: Name,
) -> None:
    """Stop handing out messages to a group, in every process, until `resume`."""
    with _open_group(at, name) as group:
        group.pause()


def resume(
    at: QueueAt,
    name: Name,
) -> None:
    """Hand messages out to a group again."""
    with _open_group(at, name) as group:
        group.resume()


def seek(
    at: QueueAt,
    where: Annotated[str, typer.Argument(metavar="WHERE", help=opening.Where + ".")],
    group: GroupName = "default",
    id: Annotated[
        str | None,
        typer.Option(
            help="The id that the message there must have; if it has another, nothing changes."
        ),
    ] = None,
    dry_run: DryRun = False,
    json: Json = None,
) -> None:
    """Set where a group goes on reading; messages that its consumers hold are forgotten."""
    if dry_run:
        with at.reading() as queue:
            offset = positions.resolve(queue.store, where, id)
            facts: dict[str, Any] = {"group": group, "offset": offset, "dry_run": True}
            facts["before"] = overview.progress(queue.store, group).next
    else:
        with _open_group(at, group) as found:
            before = found.core.next
            facts = {"group": group, "offset": found.seek(where, id=id), "before": before}
    if show.wants_json(json):
        show.emit(facts)
    else:
        verb = "would go" if dry_run else "goes"
        show.line(
            f"group {group!r} {verb} on at offset {facts['offset']}; it was at {facts['before']}"
        )
