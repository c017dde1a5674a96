"""`.penstock/sinks/`: which batches of an application are in the queue, and which is on its way.

<app>.json      the number of the last batch that is in the queue, and where
<app>.intent    the note of a batch on its way, on the disk before the batch is visible
<app>.lock      held while a batch is committed
<app>/          rows that the tasks of a job have left for its commit
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from penstock import _core
from penstock.disk import files
from penstock.errors import FormatError
from penstock.places import Path

FOLDER = "sinks"


def folder_of(sidecar: Path) -> Path:
    """Where ledgers and notes are."""
    return sidecar / FOLDER


def file_name(app: str) -> str:
    """A name for the application's files, whatever it calls itself."""
    if files.is_name(app) and len(app) <= 64:
        return app
    import hashlib

    return "app-" + hashlib.sha256(app.encode()).hexdigest()[:32]


def notes(sidecar: Path) -> list[Path]:
    """The notes of batches that are not yet known to have landed."""
    folder = folder_of(sidecar)
    return [folder / name for name in files.names_in(folder) if name.endswith(".intent")]


class SinkFiles:
    """The files of one application."""

    ledger: Path
    note: Path

    def __init__(self, sidecar: Path, app: str) -> None:
        """For the application `app`; nothing is written yet."""
        base = folder_of(sidecar) / file_name(app)
        self.app = app
        self.ledger = base.with_name(base.name + ".json")
        self.note = base.with_name(base.name + ".intent")
        self._lock = base.with_name(base.name + ".lock")

    @property
    def last(self) -> int:
        """The number of the last batch in the queue; -1 before the first."""
        batch = (files.read_json(self.ledger) or {}).get("batch", -1)
        if (batch == -1 and self.ledger.exists()) or not isinstance(batch, int):
            advice = "delete it if no batch of its application may come again"
            raise FormatError(self.ledger, "not the number of a batch", advice)
        return batch

    def record(self, batch: int, first: int, end: int) -> None:
        """Notes that a batch is in the queue, and then drops the note that it was on its way."""
        files.write_json(self.ledger, {"app": self.app, "batch": batch, "first": first, "end": end})
        self.drop_note()

    def drop_note(self) -> None:
        """Drops the note: nothing is on its way any more."""
        _core.unlink_file(self.note)

    def drop(self) -> None:
        """Removes the files of an application that will never come again."""
        for path in (self.note, self.ledger, self._lock):
            _core.unlink_file(path)

    @contextmanager
    def held(self, *, wait: bool = True) -> Iterator[bool]:
        """The application's lock; with `wait=False` the answer may be that another has it."""
        files.make_folder(self._lock.parent)
        handle, has_it = _core.open_or_create(self._lock), False
        try:
            with suppress(BlockingIOError):
                fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
                has_it = True
            yield has_it
        finally:
            fcntl.flock(handle, fcntl.LOCK_UN)  # A child that was forked meanwhile has a copy.
            os.close(handle)


# ── rows that tasks have left ──────────────────────────────────────────────────────────────────


def write_rows(path: Path, data: bytes) -> None:
    """Leaves the rows of one task."""
    files.make_folder(path.parent)
    _core.replace_file(path, data, synced=False)


def begin_rows(path: Path) -> Path:
    """A file to write the rows of one task into, with the queue's owner and rights."""
    files.make_folder(path.parent)
    unfinished = path.with_suffix(".tmp")
    _core.create_file(unfinished, 0)
    return unfinished


def place_rows(unfinished: Path, path: Path) -> None:
    """Gives the rows of one task, which are whole now, their name."""
    _core.rename_file(unfinished, path)


def drop_rows(path: Path) -> None:
    """Removes the rows of one task."""
    _core.unlink_file(path)


def drop_folder(folder: Path) -> None:
    """Removes the folder of a job that is over, if nothing is left in it."""
    with suppress(OSError):
        folder.rmdir()
