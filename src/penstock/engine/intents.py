"""Batches that land once, however often their commit is asked for.

A sink's commit may come again after a crash, and nobody remembers how far the first one got. So
each application has, under `.penstock/sinks/`:

    <app>.json      the ledger: the number of the last batch that is in the queue, and where
    <app>.intent    the note of a batch on its way, on the disk before the batch is visible
    <app>.lock      held while a batch is committed

    frames past the tail → sync → note → publish by one word → sync → ledger → note away

A note that is found later is settled by looking: if the frames below the tail are those that it
describes, the batch is in the queue and goes to the ledger; if not, it never was and will be
committed again. Nothing that was published is ever withdrawn.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock import _core
from penstock.disk import files
from penstock.formats.store import Store
from penstock.records import dataclass


@dataclass(frozen=True, slots=True)
class Note:
    """A batch on its way."""

    app: str
    batch: int
    first: int
    end: int
    check: int

    @classmethod
    def load(cls, path: Path) -> Note | None:
        """The note in a file; none when there is none."""
        try:
            import json

            text, words = (json.loads(line) for line in path.read_text().splitlines())
        except (FileNotFoundError, ValueError):
            return None
        return cls(text["app"], text["batch"], words["first"], words["end"], words["check"])


def folder_of(store: Store) -> Path:
    """Where ledgers and notes are."""
    return store.sidecar / "sinks"


def file_name(app: str) -> str:
    """A name for the application's files, whatever it calls itself."""
    if files.is_name(app) and len(app) <= 64:
        return app
    import hashlib

    return "app-" + hashlib.sha256(app.encode()).hexdigest()[:32]


class Ledger:
    """What one application has put into one queue, batch by batch."""

    store: Store
    app: str
    path: Path
    note: Path

    def __init__(self, store: Store, app: str) -> None:
        """For the application `app`; nothing is written yet."""
        self.store, self.app = store, app
        base = folder_of(store) / file_name(app)
        self.path = base.with_name(base.name + ".json")
        self.note = base.with_name(base.name + ".intent")
        self._lock = base.with_name(base.name + ".lock")

    @property
    def last(self) -> int:
        """The number of the last batch in the queue; -1 before the first."""
        found = files.read_json(self.path)
        return -1 if found is None else int(found["batch"])

    def commit(self, batch: int, table: object) -> tuple[int, int, int] | None:
        """Puts the table's rows as batch number `batch`; none if that is there already.

        The rows are visible together. Answers the first offset, the one behind the last, rows.
        """
        with self.held():
            self.settle()
            if self.last >= batch:
                return None
            import json

            text = json.dumps({"app": self.app, "batch": batch})
            writer = self.store.need_writer()
            landed = writer.append_atomic(table, note=self.note, text=text) or (-1, -1, 0)
            self._record(batch, landed[0], landed[1])
            return landed

    def settle(self) -> None:
        """Decides about a note that someone left. With the lock held."""
        note = Note.load(self.note)
        if note is not None and note.batch > self.last and is_published(self.store, note):
            self._record(note.batch, note.first, note.end)
        _core.unlink_file(self.note)

    def drop(self) -> None:
        """The application will never come again."""
        for path in (self.note, self.path, self._lock):
            _core.unlink_file(path)

    def _record(self, batch: int, first: int, end: int) -> None:
        value = {"app": self.app, "batch": batch, "first": first, "end": end}
        files.write_json(self.path, value)
        _core.unlink_file(self.note)

    @contextmanager
    def held(self, *, wait: bool = True) -> Iterator[bool]:
        """The application's lock; with `wait=False` the answer may be that another has it."""
        files.make_folder(self._lock.parent)
        handle = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True
        finally:
            os.close(handle)


def is_published(store: Store, note: Note) -> bool:
    """Whether the frames that the note describes are in the queue."""
    if note.end > store.end().tail:
        return False
    segment = store.segment_at(note.first)
    limit = segment.end if segment.end is not None else store.end().tail
    if note.end > limit or not _core.is_boundary(segment, note.first, limit):
        return False
    return _core.check_range(segment, note.first, note.end) == note.check


def open_notes(store: Store) -> list[Note]:
    """Notes that nobody has settled yet."""
    folder = folder_of(store)
    names = (name for name in files.names_in(folder) if name.endswith(".intent"))
    found = (Note.load(folder / name) for name in names)
    return [note for note in found if note is not None]


def unsettled(store: Store) -> list[int]:
    """Where batches of live sinks begin whose note is open; those of dead ones are settled first.

    Nobody may delete their frames meanwhile: they alone tell whether the batch landed.
    """
    settle_all(store)
    return [note.first for note in open_notes(store)]


def settle_all(store: Store) -> None:
    """Settles what dead sinks left; those that are alive settle their own."""
    for note in open_notes(store):
        ledger = Ledger(store, note.app)
        with ledger.held(wait=False) as is_ours:
            if is_ours:
                ledger.settle()
