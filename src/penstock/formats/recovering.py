"""What every recovery is made of, whatever the format: files that are set aside, written anew, or
dropped because they were only prepared."""

from __future__ import annotations

import os
from pathlib import Path

from penstock import _core
from penstock.disk import files
from penstock.hints import Protocol
from penstock.logs import logger

QUARANTINE = "quarantine"
PIECE_BYTES = 1 << 20


class Recovered(Protocol):
    """A queue that is being recovered."""

    sidecar: Path
    clock: _core.Clock


def set_aside(queue: Recovered, path: Path) -> None:
    """Moves a file that is no part of the queue any more to the quarantine, where nothing reads it
    and nothing deletes it. Both names are synced: one that came back after the next power cut would
    lie below what was synced by then."""
    if not path.exists():
        return
    folder = queue.sidecar / QUARANTINE
    files.make_folder(folder)
    logger("recovery").warning("%s: set aside in %s", path, folder)
    _core.rename_file(path, folder / f"{path.name}.{queue.clock.wall_now_ns()}")
    for changed in (folder, path.parent):
        _core.sync_folder(changed)


def copy_anew(queue: Recovered, path: Path) -> None:
    """Writes a file's bytes to a new place on the disk, under its old name.

    After a failed sync the kernel may hold pages for clean that never reached the disk, and the old
    place may be a bad one: only a file that was written since, and synced, is surely there.
    """
    if not path.exists():
        return
    fresh = queue.sidecar / f"copy-{path.name}"
    _core.unlink_file(fresh)
    _core.create_file(fresh, path.stat().st_size)
    with path.open("rb") as stream:
        at = 0
        while piece := stream.read(PIECE_BYTES):
            if any(piece):
                _core.write_file(fresh, at, piece)
            at += len(piece)
    _core.sync_file(fresh)
    _core.rename_file(fresh, path)
    _core.sync_folder(path.parent)


def drop_prepared(queue: Recovered, suffix: str) -> None:
    """Removes files that were to become segments. After a power cut they need not be empty: a
    segment whose new name was lost has its old one again."""
    for entry in list(os.scandir(queue.sidecar)):
        if entry.name.endswith(suffix):
            _core.unlink_file(Path(entry.path))
