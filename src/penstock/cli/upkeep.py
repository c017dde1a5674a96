"""`move`, `purge`, `trim`, `set`, `show`, `resize`: keeping queues in order."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli import opening, show
from penstock.cli.opening import DryRun, Json, QueueAt, command
from penstock.engine import deadletter, kept_options, overview, positions, retention
from penstock.engine import facts as facts_of
from penstock.engine.queue import Queue
from penstock.engine.table import remaining
from penstock.errors import GroupError, OptionError, UnsupportedError
from penstock.options import OLD_GROUP, OLD_QUEUE, GroupOptions, of_today


def register(app: typer.Typer) -> None:
    """Adds the commands that trim, set and resize."""
    command(
        app,
        "move",
        "penstock move orders.dead --to-origin",
        "penstock move orders.dead --to orders --limit 10",
        "penstock move orders.dead --to-origin --dry-run",
    )(move)
    command(app, "purge", "penstock purge orders --dry-run", "penstock purge orders")(purge)
    command(
        app,
        "trim",
        "penstock trim orders --age 7d --dry-run",
        "penstock trim orders --bytes 1000000000",
        "penstock trim orders --before 2026-11-01",
    )(trim)
    command(
        app,
        "set",
        "penstock set orders max_bytes=1000000000 when_full=reject",
        "penstock set orders max_bytes=",
        "penstock set orders --group billing visibility_s=60 max_receives=5",
        "penstock set topic creator=alice mask=64",
    )(set_values)
    command(app, "show", "penstock show orders", "penstock show orders --group billing --json")(
        show_values
    )
    command(app, "resize", "penstock resize queue.bin 268435456")(resize)


def move(
    at: QueueAt,
    to: Annotated[
        Path | None, typer.Option("--to", help="The queue to move the messages to.")
    ] = None,
    to_origin: Annotated[
        bool,
        typer.Option("--to-origin", help="Move each message back to the queue that it came from."),
    ] = False,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Move at most this many messages.")
    ] = None,
    dry_run: DryRun = False,
    json: Json = None,
) -> None:
    """Move dead letters back to the queues they came from, or messages to another queue.

    Each message is put there first and acked here afterwards, so a crash leaves it in both queues.
    """
    if (to is None) == (not to_origin):
        raise UnsupportedError("say where the messages go: either --to QUEUE or --to-origin")
    if dry_run:
        with at.reading() as queue:
            _say_move(queue, to, limit, json)
        return
    with ExitStack() as stack:
        queue = stack.enter_context(at.writing())
        target = stack.enter_context(Queue(to, create=False)) if to else None
        moved = queue.redrive(target, limit=limit)
    _result({"moved": moved}, f"{show.plural(moved, 'message')} moved", json)


def _say_move(queue: Queue, to: Path | None, limit: int | None, json: bool | None) -> None:
    try:
        at = overview.progress(queue.store, "redrive")
        start = at.cursor
    except GroupError:
        start = 0
    goals: dict[str, int] = {}
    for count, message in enumerate(remaining(queue.store, start), 1):
        goal = str(
            to
            or message.headers.get(
                deadletter.SOURCE, "nowhere: they do not say where they came from"
            )
        )
        goals[goal] = goals.get(goal, 0) + 1
        if count == limit:
            break
    for goal, count in goals.items():
        _result(
            {"would_move": count, "to": goal},
            f"{show.plural(count, 'message')} would go to {goal}",
            json,
        )


def purge(
    at: QueueAt,
    dry_run: DryRun = False,
    json: Json = None,
) -> None:
    """Ack every message for every group, then delete the segments that no group needs."""
    if dry_run:
        with at.reading() as queue:
            count = facts_of.messages_from(queue.store, queue.offsets().head)
        _result({"would_purge": count}, f"{show.plural(count, 'message')} would be deleted", json)
        return
    with at.writing() as queue:
        count = facts_of.messages_from(queue.store, queue.offsets().head)
        queue.purge()
    _result({"purged": count}, f"{show.plural(count, 'message')} deleted", json)


def trim(
    at: QueueAt,
    before: Annotated[
        str | None,
        typer.Option(metavar="WHERE", help=f"Delete what is before this place: {opening.Where}."),
    ] = None,
    age: Annotated[
        str | None, typer.Option(help="Delete what is older than this, such as 7d or 12h.")
    ] = None,
    max_bytes: Annotated[
        int | None,
        typer.Option(
            "--bytes",
            min=1,
            help="Delete the oldest segments until at most this many bytes are left.",
        ),
    ] = None,
    retain_unread: Annotated[
        bool, typer.Option(help="Keep segments that a group has not read yet.")
    ] = True,
    hold: Annotated[bool | None, typer.Option(hidden=True)] = None,
    dry_run: DryRun = False,
    json: Json = None,
) -> None:
    """Delete whole segments, oldest first; --dry-run says which, and what keeps the others."""
    if hold is not None:
        show.note("--hold is --retain-unread now; the old name goes with the next release")
        retain_unread = hold
    seconds = positions.seconds_of(age) if age else None
    if age and seconds is None:
        raise OptionError("--age", age, "an age like 7d, 12h or 90s")
    limits: dict[str, Any] = {
        "retention_age_s": seconds, "retention_bytes": max_bytes,
        "retain_unread": retain_unread,
    }  # fmt: skip
    with at.reading(**limits) if dry_run else at.writing(**limits) as queue:
        offset = None if before is None else positions.resolve(queue.store, before, name="before")
        plan = retention.plan(queue, offset)
        gone = list(plan.segments) if dry_run else retention.apply(queue, plan)
    facts: dict[str, Any] = {
        "dry_run": dry_run,
        "segments": [str(info.path) for info in gone],
        "bytes": sum(info.size for info in gone),
        "before": plan.before,
        "reason": plan.reason,
        "kept_because": plan.kept_because,
    }
    verb = "would be deleted" if dry_run else "deleted"
    gone_text = f"{show.plural(len(gone), 'segment')}, {show.size(facts['bytes'])}"
    text = f"{gone_text} {verb}: {plan.reason}"
    _result(facts, f"{text}\nthe rest is kept because {plan.kept_because}", json)


def set_values(
    at: QueueAt,
    values: Annotated[
        list[str],
        typer.Argument(metavar="NAME=VALUE", help="What to set, such as max_bytes=1000000."),
    ],
    group: Annotated[
        str | None,
        typer.Option("--group", "-g", help="Set options of this group instead of the queue's."),
    ] = None,
) -> None:
    """Change options of a queue or a group, or what the format keeps about the queue.

    NAME= without a value restores the default. `penstock show` lists the options.
    """
    pairs: dict[str, Any] = {
        name: parse(text) for name, text in opening.pairs("NAME=VALUE", values).items()
    }
    old = OLD_QUEUE if group is None else OLD_GROUP
    for name in pairs.keys() & old.keys():
        show.note(f"{name} is {old[name]} now; the old name goes with the next release")
    pairs = of_today(pairs, old)
    with at.writing() as queue:
        if group is not None:
            own = queue.store.format.groups.defaults(group)
            usual = GroupOptions(**{"dead_letter": f"{queue.path.name}.dead"} | own).as_dict()
            changes = {k: usual.get(k, v) if v == "" else v for k, v in pairs.items()}
            queue.group(group, create=False).configure(**changes)
            return
        options = {k: None if v == "" else v for k, v in pairs.items() if k in kept_options.NAMES}
        queue.set_options(**options)
        if rest := {name: value for name, value in pairs.items() if name not in options}:
            queue.set_meta(**rest)


def show_values(
    at: QueueAt,
    group: Annotated[
        str | None, typer.Option("--group", "-g", help="Show the options of this group.")
    ] = None,
    json: Json = None,
) -> None:
    """Show the options of a queue or a group; changes nothing.

    An option marked as default is not kept in the queue: each program may choose its own value.
    """
    with at.reading() as queue:
        if group is not None:
            overview.progress(queue.store, group)  # An error that lists the groups, if it is none.
            facts = overview.options_of(queue.store, group).as_dict()
        else:
            options = {name: getattr(queue.options, name, None) for name in kept_options.NAMES}
            facts = kept_options.plain(options) | {"codec": queue.kept_options.get("codec")}
        is_kept = set(queue.kept_options) | set(queue.store.format.own_options)
    if show.wants_json(json):
        show.emit(facts | ({} if group else {"kept": sorted(is_kept)}))
        return
    notes = {name: "" if group or name in is_kept else "  (default)" for name in facts}
    show.facts({name: f"{value}{notes[name]}" for name, value in facts.items()})


def parse(text: str) -> str | int | float | bool:
    """A value as people write it."""
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def resize(
    at: QueueAt,
    size: Annotated[
        int, typer.Argument(metavar="BYTES", min=1, help="The new size of the file in bytes.")
    ],
) -> None:
    """Change the size of a queue whose format has a fixed size (vqs)."""
    with at.writing() as queue:
        queue.sync()  # Frees what every group has acked.
        queue.store.resize(size)


def _result(facts: dict[str, Any], text: str, json: bool | None) -> None:
    if show.wants_json(json):
        show.emit(facts)
    else:
        show.line(text)
