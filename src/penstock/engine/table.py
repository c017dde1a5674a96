"""A range of a queue as a table: for pyarrow, Polars, DuckDB, pandas, or message by message."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from penstock import _core
from penstock.engine import optional_packages
from penstock.engine.codecs import Codec
from penstock.engine.positions import Where, resolve
from penstock.errors import CodecError, OptionError, typed
from penstock.formats import known_damage
from penstock.formats.store import Store
from penstock.formats.values import Damage
from penstock.options import check_filter


class Scan:
    """What `Queue.scan` gives: a range, read in order, as often as you like; nothing is taken.

    It speaks the Arrow C stream protocol, so `pyarrow.table(scan)`, `polars.from_arrow(scan)`,
    `duckdb.sql("from scan")` and `pandas` read it as it is; iterating gives messages. Each reading
    begins at the start again; where the range ends was decided when the scan was made.
    """

    __slots__ = (
        "_codec", "_columns", "_core", "_dialect", "_fresh", "_guide", "_recent", "_store",
        "_tags", "_tolerant", "end", "start",
    )  # fmt: skip
    start: int
    end: int

    def __init__(
        self,
        store: Store,
        start: int,
        end: int,
        tags: str = "",
        dialect: str = "modern",
        columns: Sequence[str] | None = None,
        tolerant: bool = False,
        codec: Codec | None = None,
        recent: _core.Recent | None = None,
    ) -> None:
        """Reads `[start, end)`; with `tolerant`, damage is noted and passed over. `recent` belongs
        to one opening of the queue."""
        store.format.need_key()
        if tags != "" or dialect != "modern":
            check_filter(tags, dialect)
        if isinstance(columns, str):
            raise OptionError("columns", columns, "a list of names, such as ['body']")
        self._store, self.start, self.end = store, start, end
        self._tags, self._dialect, self._tolerant = tags, dialect, tolerant
        self._columns = list(columns) if columns is not None else None
        self._codec, self._recent = codec, recent
        # Made now, so that a filter that makes no sense, or a name of no column, is refused now.
        core = self._begun()
        stream = None if columns is None else _core.arrow_stream(core, self._columns)
        self._fresh = [(core, stream)]

    def _begin(self) -> tuple[_core.Scan, object]:
        """A new reading, and its Arrow stream if there is one already; the first was made with the
        scan, and one thread gets it."""
        try:
            return self._fresh.pop()
        except IndexError:
            return self._begun(), None

    def _begun(self) -> _core.Scan:
        """A new reading, whose damage `damage` tells from now on."""
        # Not `self`: the native scan keeps its host, and a circle through it is never collected.
        store = self._store
        self._guide = _Guide(store) if self._tolerant else None
        # By place: a call by names makes a dict, which takes as long as the native scan itself.
        self._core = core = _core.Scan(
            self._guide or store, self.start, self.end, store.shared, self._tags, self._dialect,
            self._tolerant, self._recent,
        )  # fmt: skip
        return core

    def __iter__(self) -> Iterator[_core.Message]:
        """Message by message, from the start."""
        for message in self._begin()[0]:
            if self._codec is not None:
                message.use_codec(self._codec)
            yield message

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        """The Arrow C stream, in a capsule."""
        core, stream = self._begin()
        return stream or _core.arrow_stream(core, self._columns)

    def to_pandas(self) -> Any:
        """A pandas frame: times with their zone, headers as lists of pairs."""
        optional_packages.load("pandas", "", "to_pandas()")
        return optional_packages.load("pyarrow", "arrow", "to_pandas()").table(self).to_pandas()

    def to_polars(self) -> Any:
        """What is read, as a Polars frame."""
        return optional_packages.load("polars", "", "to_polars()").DataFrame(self)

    @property
    def damage(self) -> list[Damage]:
        """What the latest reading has passed over so far (`tolerant`)."""
        unread = self._guide.found if self._guide is not None else []
        faults = [
            Damage(path, at, n, found, want) for path, at, found, want, n in self._core.faults
        ]
        return known_damage.new_in([*unread, *faults], ())


def bounds(store: Store, start: Where, end: Where | None) -> tuple[int, int]:
    """Where a scan begins and ends that is asked for like this; without an end, at the tail."""
    if end is None and start == "earliest":
        shared = store.shared
        words = store.end() if shared is None else store.format.end_now() or shared
        return words.head, words.tail
    now = store.end()
    first = resolve(store, start, end=now, name="start")
    return first, now.tail if end is None else resolve(store, end, end=now, name="end")


def remaining(
    store: Store,
    start: int,
    end: int | None = None,
    *,
    tags: str = "",
    dialect: str = "modern",
    columns: Sequence[str] | None = None,
    tolerant: bool = False,
) -> Scan:
    """Reads `[start, end)`, offsets that were found before; without an end, to the tail.

    Others may delete what lies there at any moment. That is passed over: for `Queue.scan` it is an
    error, since its caller has named the place.
    """
    now = store.end()
    first, last = max(start, now.head), now.tail if end is None else end
    return Scan(store, first, last, tags, dialect, columns, tolerant)


def html_safe(text: str) -> str:
    """Text as a browser shows it: messages come from strangers."""
    from html import escape

    return escape(text)


class Head(list[_core.Message]):
    """Some messages, in a list that a notebook shows as a table."""

    def _repr_html_(self) -> str:
        names = ("offset", "timestamp", "tag", "id", "key", "body")
        heads = "".join(f"<th>{name}</th>" for name in names)
        rows = "".join(f"<tr>{_cells(message)}</tr>" for message in self)
        return f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"


def _cells(message: _core.Message) -> str:
    try:
        when = message.timestamp
    except CodecError:
        when = None  # The year is none that Python can show.
    moment = "" if when is None else when.isoformat(sep=" ", timespec="milliseconds")
    body = repr(message).partition(": ")[2].removesuffix(">")
    values = (message.offset, moment, message.tag, message.id, message.key, body)
    return "".join(f"<td>{html_safe('' if v is None else str(v))}</td>" for v in values)


class _Guide:
    """Leads a tolerant scan from segment to segment, past those that can't be read."""

    def __init__(self, store: Store) -> None:
        self._store, self.path = store, store.path
        self.found: list[Damage] = []

    def segment_at(self, offset: int) -> _core.Segment:
        """The segment that holds `offset`, or the next one that can be read.

        A damaged header is noted; where the format can, the frames behind it are read all the same.
        """
        tail = self._store.end().tail
        for info, _, _ in self._store.ranges(offset, tail):
            segment, damage = self._store.open_tolerantly(info)
            if damage is not None:
                self.found.append(damage)
            if segment is not None:
                return segment
        # Nothing more can be read: an empty segment at the tail ends the scan.
        frames = _core.penstock_frames(bytes(16), tail)
        return _core.Segment.over(self._store.path, tail, 0, frames, b"")


typed(_Guide, "segment_at")
