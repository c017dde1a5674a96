"""`export`, `import`, `convert`: queues to files, files to queues, one format to another."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Annotated

import typer

from penstock.cli import show
from penstock.cli.opening import DryRun, Json, QueueAt, Tags, command, standard_input
from penstock.cli.read import From, Until
from penstock.engine import convert as converts
from penstock.engine import exchange
from penstock.engine.convert import OnProgress, Progress
from penstock.options import key_from

Drop = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FIELD",
        help=f"Leave this out if the target can't hold it: {', '.join(converts.FIELDS)}. Give the "
        "option once for each.",
    ),
]
FileKind = Annotated[
    str | None,
    typer.Option(
        "--to", help="jsonl, parquet or arrow; by default the suffix of the file decides."
    ),
]


def register(app: typer.Typer) -> None:
    """Adds the commands that move and convert queues."""
    command(
        app,
        "export",
        "penstock export orders orders.parquet",
        "penstock export orders - --to jsonl --since 1d | gzip > day.jsonl.gz",
    )(export)
    command(
        app,
        "import",
        "penstock import orders.parquet orders",
        "zcat day.jsonl.gz | penstock import - orders --from jsonl",
    )(import_file)
    command(
        app,
        "convert",
        "penstock convert /var/lib/filebeat/diskqueue rescued --to penstock --tolerant",
        "penstock convert orders topic --to zbus --to-layout crc --dry-run",
        "penstock convert orders bare --to mfq --drop tag --drop timestamp",
    )(convert)


def export(
    at: QueueAt,
    file: Annotated[str, typer.Argument(help="The file to write; `-` is stdout.")],
    to: FileKind = None,
    start: From = "earliest",
    end: Until = None,
    tags: Tags = "",
    tolerant: Annotated[bool, typer.Option(help="Skip damage and report it.")] = True,
) -> int:
    """Write messages to a file that other tools can read; changes nothing in the queue."""
    target: str | IO[bytes] = sys.stdout.buffer if file == "-" else file
    kind = to or ("jsonl" if file == "-" else None)
    with at.reading() as queue, show.progress(f"exporting {at.path}") as advance:
        done = exchange.export(
            queue, target, kind=kind, start=start, end=None if end == "now" else end, tags=tags,
            tolerant=tolerant, on_progress=_shown(advance),
        )  # fmt: skip
    show.note(f"{show.plural(done.messages, 'message')}, {show.size(done.bytes)} of bodies")
    return 1 if show.damage(done.damage) else 0


def import_file(
    file: Annotated[str, typer.Argument(help="The file to read; `-` is stdin.")],
    at: QueueAt,
    kind: Annotated[
        str | None,
        typer.Option(
            "--from", help="jsonl, parquet or arrow; by default the suffix of the file decides."
        ),
    ] = None,
    drop: Drop = None,
    create: Annotated[bool, typer.Option(help="Create the queue if there is none.")] = True,
) -> None:
    """Put the messages of a file into a queue, in order; they get new offsets and numbers."""
    source: str | IO[bytes] = standard_input() if file == "-" else file
    wanted = exchange.usable_kind(file, kind or ("jsonl" if file == "-" else None))
    with show.progress(f"importing {file}") as advance:
        done = exchange.import_(
            source, at.path, kind=wanted, drop=drop or (), on_progress=_shown(advance),
            create=create, **at.opening,
        )  # fmt: skip
    show.note(f"{show.plural(done.messages, 'message')}, {show.size(done.bytes)} of bodies")
    if done.lost:
        show.note(_lost(done.lost, done.left_out))


def convert(
    at: QueueAt,
    target: Annotated[Path, typer.Argument(help="The new queue, or an existing one to add to.")],
    to: Annotated[str | None, typer.Option("--to", help="The format of the new queue.")] = None,
    to_layout: Annotated[str | None, typer.Option(help="The layout of the new queue.")] = None,
    to_key_file: Annotated[
        str | None, typer.Option(help="A file with the key of the new queue.")
    ] = None,
    start: From = "earliest",
    end: Until = None,
    tags: Tags = "",
    drop: Drop = None,
    tolerant: Annotated[bool, typer.Option(help="Skip damage and report it.")] = False,
    verify: Annotated[bool, typer.Option(help="Read both queues again and compare them.")] = True,
    groups: Annotated[
        bool | None,
        typer.Option(
            help="Copy the groups too; by default unless that would delete messages from the copy."
        ),
    ] = None,
    dry_run: DryRun = False,
    json: Json = None,
) -> int:
    """Copy every message of a queue into a queue of another format.

    If the target can't hold something, nothing is written, and the error counts what does not fit;
    --drop says what may be left out. The copy is read again and compared. Groups go on where they
    stood.
    """
    with (
        at.reading() as source,
        show.progress(f"converting {at.path}") as advance,
    ):
        report = converts.convert(
            source, target, format=to, layout=to_layout, key=key_from(file=to_key_file),
            drop=drop or (), start=start, end=None if end == "now" else end,
            tags=tags, tolerant=tolerant, verify=verify, groups=groups, dry_run=dry_run,
            on_progress=_shown(advance),
        )  # fmt: skip
    if show.wants_json(json):
        show.emit(report.as_dict())
    else:
        copied = f"{show.plural(report.messages, 'message')} copied"
        show.line(f"{copied}, {report.verified:,} compared")
        if report.gone:
            gone = show.plural(report.gone, "message")
            show.line(f"{gone} were not compared: others deleted them in {at.path} meanwhile")
        show.line(_lost(report.lost, report.left_out))
        if report.renumbered:
            show.line(f"{show.plural(report.renumbered, 'message')} got another number")
        if report.rounded:
            show.line(f"{show.plural(report.rounded, 'message')} got a rounded time")
        for group, offset in report.groups.cursors.items():
            again = report.groups.again.get(group, 0)
            note = f"; {show.plural(again, 'acked message')} come again" if again else ""
            show.line(f"group {group} goes on at offset {offset}{note}")
        for group, why in report.groups.left.items():
            show.line(f"group {group} is not copied: {why}")
    return 1 if show.damage(report.damage) else 0


def _lost(lost: Mapping[str, int], left_out: int) -> str:
    """What messages lost on the way, field by field."""
    said = [f"{show.plural(count, 'message')} lost the {name}" for name, count in lost.items()]
    said += [f"{show.plural(left_out, 'message')} left out"] if left_out else []
    return "\n".join(said) or "nothing was lost"


def _shown(advance: show.Advance) -> OnProgress:
    def tell(at: Progress) -> None:
        advance(at.offset, at.end, f"{at.phase}: {show.plural(at.messages, 'message')}")

    return tell
