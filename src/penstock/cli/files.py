"""`export`, `import`, `convert`: queues to files, files to queues, one format to another."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import IO, Annotated

import typer

from penstock.cli import show
from penstock.cli.opening import DryRun, Json, QueueAt, Tags, command
from penstock.cli.read import From, Until
from penstock.engine import convert as converts
from penstock.engine import exchange
from penstock.engine.convert import OnProgress, Progress
from penstock.options import key_from

Drop = Annotated[
    list[str] | None,
    typer.Option(help=f"Leave this out where it does not fit: {', '.join(converts.FIELDS)}."),
]
FileKind = Annotated[
    str | None, typer.Option("--to", help="jsonl, parquet or arrow; else by the file's suffix.")
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
    file: Annotated[str, typer.Argument(help="Write here; `-`: stdout.")],
    to: FileKind = None,
    start: From = "earliest",
    end: Until = None,
    tags: Tags = "",
    tolerant: Annotated[bool, typer.Option(help="Pass over damage and report it.")] = True,
) -> int:
    """Write messages to a file that other tools read; changes nothing in the queue."""
    target: str | IO[bytes] = sys.stdout.buffer if file == "-" else file
    kind = to or ("jsonl" if file == "-" else None)
    with at.reading() as queue, show.progress(f"exporting {at.path}") as advance:
        done = exchange.export(
            queue, target, kind=kind, start=start, end=None if end == "now" else end, tags=tags,
            tolerant=tolerant, on_progress=_shown(advance),
        )  # fmt: skip
    show.note(f"{done.messages} messages, {show.size(done.bytes)} of bodies")
    return 1 if show.damage(done.damage) else 0


def import_file(
    file: Annotated[str, typer.Argument(help="Read this; `-`: stdin.")],
    at: QueueAt,
    kind: Annotated[
        str | None, typer.Option("--from", help="jsonl, parquet or arrow; else by the suffix.")
    ] = None,
    drop: Drop = None,
    create: Annotated[bool, typer.Option(help="Make the queue when there is none.")] = True,
) -> None:
    """Put what a file holds into a queue, in order. Offsets and numbers are the queue's own."""
    source: str | IO[bytes] = sys.stdin.buffer if file == "-" else file
    wanted = exchange.usable_kind(file, kind or ("jsonl" if file == "-" else None))
    with show.progress(f"importing {file}") as advance:
        done = exchange.import_(
            source, at.path, kind=wanted, drop=drop or (), on_progress=_shown(advance),
            create=create, **at.opening,
        )  # fmt: skip
    show.note(f"{done.messages} messages, {show.size(done.bytes)} of bodies")
    if done.lost:
        lost = ", ".join(f"{count} lost {name}" for name, count in done.lost.items())
        show.note(f"{lost}; {done.left_out} left out")


def convert(
    at: QueueAt,
    target: Annotated[Path, typer.Argument(help="The new queue, or one to add to.")],
    to: Annotated[str | None, typer.Option("--to", help="Format of the new queue.")] = None,
    to_layout: Annotated[str | None, typer.Option(help="Its layout.")] = None,
    to_key_file: Annotated[str | None, typer.Option(help="File with its key.")] = None,
    start: From = "earliest",
    end: Until = None,
    tags: Tags = "",
    drop: Drop = None,
    tolerant: Annotated[bool, typer.Option(help="Pass over damage and report it.")] = False,
    verify: Annotated[bool, typer.Option(help="Read both again and compare.")] = True,
    groups: Annotated[
        bool | None,
        typer.Option(help="Copy where groups stand; by default unless that would delete messages."),
    ] = None,
    dry_run: DryRun = False,
    json: Json = None,
) -> int:
    """Copy every message of a queue to one of another format.

    What the target can't hold is refused, with a count, before anything is written; --drop says
    what may be left out. The copy is read again and compared. Groups go on where they stood.
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
        lost = ", ".join(f"{count} lost {name}" for name, count in report.lost.items())
        show.line(f"{report.messages} messages copied, {report.verified} compared")
        show.line(f"{lost or 'nothing was lost'}; {report.left_out} left out")
        show.line(f"{report.renumbered} have another number, {report.rounded} a rounded time")
        for group, offset in report.groups.cursors.items():
            again = report.groups.again.get(group, 0)
            note = f"; {again} acked messages come again" if again else ""
            show.line(f"group {group} goes on at offset {offset}{note}")
        for group, why in report.groups.left.items():
            show.line(f"group {group} is not carried over: {why}")
    return 1 if show.damage(report.damage) else 0


def _shown(advance: show.Advance) -> OnProgress:
    def tell(at: Progress) -> None:
        advance(at.offset, at.end, f"{at.phase}: {at.messages} messages")

    return tell
