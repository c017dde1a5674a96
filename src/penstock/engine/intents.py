"""Batches that land once, however often their commit is asked for.

A sink's commit may come again after a crash, and how far the first one got is forgotten. So
each application has, under `.penstock/sinks/`:

    <app>.json      the ledger: the number of the last batch that is in the queue, and where
    <app>.intent    the note of a batch on its way, on the disk before the batch is visible
    <app>.lock      held while a batch is committed

    frames past the tail → sync → note → publish by one word → sync → ledger → note away

A note that is found later is resolved by looking: if the frames below the tail are those that it
describes, the batch is in the queue and goes to the ledger; if not, it never was and will be
committed again. Nothing that was published is ever withdrawn.
"""

from __future__ import annotations

from contextlib import suppress

from penstock import _core
from penstock.disk import files
from penstock.errors import FormatError
from penstock.formats.store import Store
from penstock.places import Path
from penstock.records import dataclass
from penstock.sidecar import sinks
from penstock.sidecar.sinks import SinkFiles

ADVICE = "look whether the application's last batch is in the queue, then delete this file"


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
        raw = files.read_if_there(path)
        if raw is None:
            return None
        import json

        try:
            text, words = (json.loads(line) for line in raw.splitlines())
            numbers = [text["batch"], *(words[name] for name in ("first", "end", "check"))]
            if isinstance(text["app"], str) and all(_is_number(one) for one in numbers):
                return cls(text["app"], *numbers)
        except (ValueError, TypeError, KeyError, RecursionError):
            pass
        raise FormatError(path, "no note of a batch", ADVICE)  # It gets its name when it is whole.


def _is_number(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


class Ledger:
    """What one application has put into one queue, batch by batch."""

    store: Store
    files: SinkFiles

    def __init__(self, store: Store, app: str) -> None:
        """For the application `app`; nothing is written yet."""
        self.store, self.files = store, SinkFiles(store.sidecar, app)

    @property
    def last(self) -> int:
        """The number of the last batch in the queue; -1 before the first."""
        return self.files.last

    def commit(self, batch: int, table: object) -> tuple[int, int, int] | None:
        """Puts the table's rows as batch number `batch`; none if that is there already.

        The rows are visible together. Returns the first offset, the one behind the last, rows.
        """
        with self.files.held():
            self.resolve()
            if self.files.last >= batch:
                return None
            import json

            text = json.dumps({"app": self.files.app, "batch": batch})
            writer = self.store.need_writer()
            landed = writer.append_atomic(table, note=self.files.note, text=text) or (-1, -1, 0)
            self.files.record(batch, landed[0], landed[1])
            return landed

    def resolve(self) -> None:
        """Finds out whether a batch landed whose note a dead process left, and drops the note.
        Under the lock."""
        note = Note.load(self.files.note)
        if note is not None and note.batch > self.last and is_published(self.store, note):
            self.files.record(note.batch, note.first, note.end)
        self.files.drop_note()

    def drop(self) -> None:
        """Deletes what is known of the application, which will not come again."""
        self.files.drop()


def is_published(store: Store, note: Note) -> bool:
    """Whether the frames that the note describes are in the queue."""
    if note.end > store.end().tail:
        return False
    segment = store.segment_at(note.first)
    limit = segment.end if segment.end is not None else store.end().tail
    if note.end > limit or not _core.is_boundary(segment, note.first, limit):
        return False
    return _core.check_range(segment, note.first, note.end) == note.check


def open_notes(sidecar: Path) -> list[Note]:
    """Notes of batches that are not yet known to have landed. What is no note is told to the
    application whose it is, when it commits."""
    found = []
    for path in sinks.notes(sidecar):
        with suppress(FormatError):
            found.append(Note.load(path))
    return [note for note in found if note is not None]


def unresolved(store: Store) -> list[int]:
    """Where batches of live sinks begin whose note is open; those of dead ones are resolved first.

    Their frames must stay meanwhile: they alone tell whether the batch landed.
    """
    resolve_all(store)
    return [note.first for note in open_notes(store.sidecar)]


def resolve_all(store: Store) -> None:
    """Resolves what dead sinks left; those that are alive resolve their own."""
    for note in open_notes(store.sidecar):
        ledger = Ledger(store, note.app)
        with ledger.files.held(wait=False) as is_ours:
            if is_ours:
                ledger.resolve()
