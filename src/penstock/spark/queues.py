"""Finding queues and looking at them without touching them.

`path` may be one queue, several, a glob, or the URL of a shipped queue. What is planned here are
facts (names, offsets, identities); tasks open the queues again where they run.
"""

from __future__ import annotations

import glob
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from penstock import _core
from penstock import clock as clocks
from penstock.disk import control
from penstock.engine import positions
from penstock.errors import KeyNeededError, NoQueueError, OptionError
from penstock.formats import registry
from penstock.formats.base import Store
from penstock.options import QueueOptions
from penstock.spark import shipped
from penstock.spark.options import SourceOptions, timestamp_ns

KEY_ADVICE = "say where its key is, on every machine, by the option keyFile or keyEnv"


@dataclass(frozen=True, slots=True)
class Piece:
    """What lies in one segment."""

    base: int
    first: int
    last: int
    read_from: int
    """Where the frame of `first` begins; the same, but for messages inside a compressed frame."""
    first_ns: int | None
    last_ns: int | None
    file: str

    @property
    def bytes(self) -> int:
        """About as many as a task reads."""
        return self.last - self.read_from


def open_store(
    path: str | Path, options: SourceOptions, opening: QueueOptions | None = None
) -> Store:
    """Opens for reading only: nothing on disk changes."""
    return registry.open_store(
        Path(path), format=options.queue_format, layout=options.queue_layout,
        options=opening or options.queue_options(), clock=clocks.native(None), create=False,
        live=False,
    )  # fmt: skip


def need_key(store: Store, name: str) -> None:
    """Refuses a queue whose key is missing: taken for damage, all of it might be passed over."""
    if not store.can_unseal:
        raise KeyNeededError(f"queue {name}: {store.path} is encrypted; {KEY_ADVICE}")


class LocalQueue:
    """A queue folder (or file), as it is at the moment."""

    is_shipped = False

    def __init__(self, name: str, path: str, options: SourceOptions) -> None:
        """Opens it for reading."""
        self.name, self.where = name, path
        self.store = open_store(path, options)
        self.identity = self.store.identity
        end = self.store.end()
        self.head, self.end = end.head, durable_end(self.store)

    def pieces(self, start: int, end: int) -> list[Piece]:
        """The range, segment by segment."""
        return list(self._pieces(start, end))

    def _pieces(self, start: int, end: int) -> Iterator[Piece]:
        if start < end:
            need_key(self.store, self.name)
        for info, first, last in self.store.ranges(start, end):
            known = self.store.describe(info) if info.end is not None else info
            read_from = first
            if first == start and first != info.first:
                limit = info.end if info.end is not None else self.end
                read_from = _core.frame_start(self.store.segment_at(first), first, limit)
            yield Piece(
                info.base, first, last, read_from, known.first_ns, known.last_ns, info.path.name
            )

    def cuts(self, piece: Piece, every: int) -> list[int]:
        """Where a piece may be cut; nowhere if its bytes only exist decoded in memory."""
        segment = self.store.segment_at(piece.first)
        if segment.copy_range(piece.first, piece.first) is segment:
            return []
        return _core.frame_cuts(segment, piece.read_from, piece.last, every)

    def limited(self, start: int, end: int, rows: int, most_bytes: int) -> tuple[int, int]:
        """The offset behind at most that many rows and bytes (but one frame), and the rows."""
        at, seen, left = start, 0, most_bytes
        for info, first, last in self.store.ranges(start, end):
            if at > start and (seen >= rows or left <= 0):
                break
            segment = self.store.segment_at(first)
            after, found = _core.skip_frames(
                segment, first, last, max(rows - seen, 1), max(left, 1)
            )
            if at > start and (seen + found > rows or after - first > left):
                break
            at, seen, left = after, seen + found, left - (after - first)
            if after < last:
                break
            at = info.end if info.end is not None and after >= info.end else after
        return min(at, end), seen

    def resolve(self, where: str) -> int:
        """The offset that a user's text names, not behind what is durable."""
        return min(positions.resolve(self.store, where), self.end)

    def by_time(self, name: str, text: str) -> int:
        """The offset of the first message at or after a time."""
        return min(positions.by_time(self.store, timestamp_ns(name, text)), self.end)

    def pending(self, group: str) -> int:
        """Where the format's own cursor is."""
        own = self.store.own_groups()
        if group in own:
            return own[group]
        if not group and len(own) == 1:
            return next(iter(own.values()))
        known = ", ".join(own) or "none"
        raise OptionError(
            "view", "pending", f"a group that the format itself keeps; it has {known}"
        )


Source = LocalQueue | shipped.ShippedQueue


def durable_end(store: Store) -> int:
    """The end of what is on the disk for good.

    Without our control block nobody of ours writes there, and after an orderly close or in a
    later boot all that is found is on the disk; only words of this boot tell them apart.
    """
    end = store.end()
    words = control.peek(store.sidecar)
    if words is None or words.is_clean or words.boot != store.clock.boot_id():
        return end.tail
    return min(end.durable, end.tail)


def open_queue(name: str, where: str, options: SourceOptions) -> Source:
    """One queue, here or shipped."""
    if shipped.is_shipped(where):
        return shipped.ShippedQueue(name, where, options)
    return LocalQueue(name, where, options)


def find(options: SourceOptions) -> dict[str, str]:
    """Queue name → where it is. A glob may find nothing yet; a plain path must be there."""
    found: dict[str, str] = {}
    for path in options.paths:
        for name, where in _matches(path):
            if name in found and found[name] != where:
                raise OptionError(
                    "path", where, f"another name than {found[name]}: both are {name!r}"
                )
            found[name] = where
    return found


def find_some(options: SourceOptions) -> dict[str, str]:
    """The same for a batch: a table of nothing would hide a wrong path."""
    found = find(options)
    if not found:
        raise NoQueueError(", ".join(options.paths))
    return found


def _matches(path: str) -> Iterator[tuple[str, str]]:
    if shipped.is_url(path) and glob.has_magic(path):
        yield from shipped.matches(path)
    elif shipped.is_url(path):
        yield path.rstrip("/").rsplit("/", 1)[-1], path
    elif glob.has_magic(path):
        fixed = Path(path).absolute()
        while glob.has_magic(str(fixed)):
            fixed = fixed.parent
        pattern = str(Path(path).absolute().relative_to(fixed))
        for where in sorted(fixed.glob(pattern)):
            if is_queue(where):
                yield str(where.relative_to(fixed)), str(where)
    else:
        where = Path(path).absolute()
        if not where.exists():
            raise NoQueueError(path)
        yield where.name, str(where)


def is_queue(path: Path) -> bool:
    """Whether a glob means this: other things may lie beside queues."""
    if path.name.startswith(".") or path.name.endswith(".penstock"):
        return False
    if shipped.is_shipped(str(path)):
        return True
    try:
        registry.sniff(path)
    except NoQueueError:
        return False
    except Exception:  # an unclear folder is reported when it is opened
        return path.is_dir() and any(path.iterdir())
    return True
