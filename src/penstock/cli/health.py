"""`verify`, `repair`: what is damaged, and setting it aside."""

from __future__ import annotations

from typing import Any

import typer

from penstock.cli import show
from penstock.cli.opening import DryRun, Json, QueueAt, command
from penstock.engine import repair as repairs
from penstock.errors import CorruptError, OptionError, PenstockError
from penstock.formats.values import Damage
from penstock.options import QueueOptions


def register(app: typer.Typer) -> None:
    """Adds `penstock verify` and `penstock repair`."""
    command(app, "verify", "penstock verify orders", "penstock verify orders --json")(verify)
    command(app, "repair", "penstock repair orders --dry-run", "penstock repair orders --json")(
        repair
    )


def verify(
    at: QueueAt,
    json: Json = None,
) -> int:
    """Check every frame; changes nothing. Exit code 0: clean, 1: damaged, 2: unreadable.

    Torn bytes were cut short at the tail by a crash; the next process that opens the queue for
    writing drops them. Corrupt bytes are wrong anywhere else. Unchecked frames have no checksum.
    """
    try:
        with (
            at.reading() as queue,
            show.progress(f"verifying {at.path}") as queue.store.on_verified,
        ):
            verdict, known = queue.verify(), queue.store.set_aside
    except OptionError:
        raise
    except (PenstockError, OSError) as error:
        if show.wants_json(json):
            show.emit(unreadable(error))
        show.error(show.said(error))
        return 2
    if show.wants_json(json):
        show.emit(
            {
                "ok": verdict.is_ok,
                "frames": verdict.frames,
                "messages": verdict.messages,
                "torn": [damage.as_dict() for damage in verdict.torn],
                "corrupt": [damage.as_dict() for damage in verdict.corrupt],
                "unchecked": verdict.unchecked,
                "set_aside": len(known),
            }
        )
    else:
        frames = show.plural(verdict.frames, "whole frame")
        show.line(f"{frames}, {show.plural(verdict.messages, 'message')}")
        if verdict.unchecked:
            show.line(f"without a checksum: {show.plural(verdict.unchecked, 'frame')}")
        if known:
            show.line(f"set aside by a repair: {show.plural(len(known), 'fault')}")
        show.damage(verdict.torn, "torn")
        show.damage(verdict.corrupt, "corrupt")
        show.line("clean" if verdict.is_ok else "damaged; `penstock repair` sets damage aside")
    return 0 if verdict.is_ok else 1


def unreadable(error: Exception) -> dict[str, Any]:
    """The answer for a queue that can't be opened at all."""
    corrupt = []
    if isinstance(error, CorruptError):
        corrupt = [Damage(error.path, error.at, 0, error.found, error.expected).as_dict()]
    found: dict[str, Any] = {"ok": False, "frames": 0, "messages": 0, "torn": []}
    return found | {"corrupt": corrupt, "unchecked": 0, "set_aside": 0, "error": show.said(error)}


def repair(
    at: QueueAt,
    dry_run: DryRun = False,
    json: Json = None,
) -> int:
    """Set damage aside so that readers can go on; every whole message stays where it is.

    Bad bytes are copied to `.penstock/quarantine/` and noted in `.penstock/known-damage.json`.
    No other process may have the queue open. Exit code 1 means that some damage is left.
    """
    with show.progress(f"repairing {at.path}") as advance:
        report = repairs.repair(
            at.path, format=at.format, layout=at.layout, options=QueueOptions.of(key=at.key),
            dry_run=dry_run, on_verified=advance,
        )  # fmt: skip
    if show.wants_json(json):
        show.emit(report.as_dict())
        return 1 if report.left else 0
    would = "would be " if dry_run else ""
    for entry in report.set_aside:
        show.line(
            f"{entry.segment}:{entry.at}: {entry.length} bytes {would}set aside: {entry.found}"
        )
    for damage in report.rebuilt:
        show.line(f"{damage.path}: its header {would}written anew")
    for damage in report.torn:
        show.line(f"{damage.path}:{damage.at}: {damage.length} torn bytes {would}dropped")
    show.damage(report.left, "can't be repaired in place; `penstock convert` saves the rest")
    if report.is_clean:
        show.line("nothing to repair")
    return 1 if report.left else 0
