"""Finding queues and looking at them without touching them.

`path` may be one queue, several, a glob, or the URL of a shipped queue. What is planned here are
facts (names, offsets, identities); tasks open the queues again where they run.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from pathlib import Path

from penstock import _core
from penstock.engine import facts, positions, verifying
from penstock.errors import NoQueueError, OptionError
from penstock.formats import registry
from penstock.formats.store import Store
from penstock.spark import shipped
from penstock.spark.loss import lost, sentence, warn_of_torn, warn_of_unsynced
from penstock.spark.opening import need_key, open_store
from penstock.spark.options import SourceOptions, timestamp_ns
from penstock.spark.spans import Span


class LocalQueue:
    """A queue folder (or file), as it is at the moment."""

    name: str
    where: str
    store: Store
    identity: str
    head: int
    end: int

    def __init__(self, name: str, path: str, options: SourceOptions) -> None:
        self.name, self.where = name, path
        self._made = _made(path)
        self.store = open_store(path, options)
        self.identity = self.store.identity
        self.look()
        self._fails, self._is_told = options.fail_on_data_loss, False
        self._counts = options.counts_unread

    def look(self) -> None:
        """Takes over where the queue begins and ends now."""
        self.head, self.end = self.store.durable_range()

    def is_there(self) -> bool:
        """Whether the path still names what was opened. The folder's own time of change tells a
        queue made anew from the old one, also where the file system uses its inode again."""
        return _made(self.where) == self._made

    def spans(self, start: int, end: int) -> list[Span]:
        """The range, one span per segment."""
        return list(self._spans(start, end))

    def _tell_damage(self, start: int) -> None:
        """Says once what is wrong from `start` on beside the frames; the rest tasks find.

        What is not synced yet is told where nobody will sync it soon, and where an open queue
        would look empty.
        """
        tail = self.store.end().tail
        is_open = _core.Shared.is_open(self.store.sidecar)
        if self.end < tail and (not is_open or self.end <= self.head):
            warn_of_unsynced(self.name, self.end, tail, is_open=is_open)
        around = verifying.around(self.store, start if start > self.head else None)
        for torn in around.torn:
            warn_of_torn(self.name, torn)
        for one in around.corrupt:
            lost(f"queue {self.name}: {sentence(one)}", fails=self._fails)
        self._is_told = True

    def _spans(self, start: int, end: int) -> Iterator[Span]:
        if not self._is_told:
            self._tell_damage(start)
        if start < end:
            need_key(self.store, self.name)
        for info, first, last in self.store.ranges(start, end):
            known = facts.describe(self.store, info) if info.end is not None else info
            read_from = first
            if first == start and first != info.first:
                limit = info.end if info.end is not None else self.end
                segment, _ = self.store.open_tolerantly(info)
                if segment is not None:
                    read_from = _core.frame_start(segment, first, limit)
            yield Span(
                self.name, self.where, self.identity, info.base, read_from, first, last,
                info.path.name, format=self.store.format.name,
                first_ns=known.first_ns, last_ns=known.last_ns,
                messages=facts.written(self.store, info, first, last) if self._counts else None,
            )  # fmt: skip

    def cuts(self, span: Span, every: int) -> list[int]:
        """Where a span may be cut; nowhere if its bytes only exist decoded in memory, or if its
        header is damaged."""
        info = self.store.segments().at(span.base)
        segment, damage = (None, None) if info is None else self.store.open_tolerantly(info)
        if segment is None or damage is not None:
            return []
        if segment.copy_range(span.start, span.start) is segment:
            return []
        return _core.frame_cuts(segment, span.read_from, span.end, every)

    def limited(self, start: int, end: int, rows: int, most_bytes: int) -> tuple[int, int]:
        """The offset behind at most that many rows and bytes (but one frame), and the rows. A
        segment that can't be opened as it should counts as one frame: what is wrong with it is for
        a task to tell."""
        at, seen, left = start, 0, most_bytes
        for info, first, last in self.store.ranges(start, end):
            if at > start and (seen >= rows or left <= 0):
                break
            segment, damage = self.store.open_tolerantly(info)
            after, found = last, 0
            if segment is not None and damage is None:
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

    def left(self, offset: int) -> dict[str, float | None]:
        """What waits from `offset` on: messages (where the format numbers them), bytes, and for
        how many seconds the oldest has waited."""
        if offset >= self.end:
            return {"messages": 0, "bytes": 0, "seconds": 0.0}
        size = self.store.bytes_between(offset, self.end)
        found = _core.Scan(self.store, offset, self.end, tolerant=True).take(1)
        if not found:
            return {"messages": None, "bytes": size, "seconds": None}
        first, count = found[0], None
        if first.number is not None and self.store.capabilities.numbers:
            count = self.store.end().next_number - first.number
        waited_s = None  # Not every format keeps times.
        if first.timestamp_ns is not None:
            waited_s = max(0, self.store.clock.wall_now_ns() - first.timestamp_ns) / 1e9
        return {"messages": count, "bytes": size, "seconds": waited_s}

    def resolve(self, where: str, option: str) -> int:
        """The offset that a user's text names, not behind what is durable."""
        return min(positions.resolve(self.store, where, name=option), self.end)

    def by_time(self, name: str, text: str) -> int:
        """The offset of the first message at or after a time."""
        return min(positions.by_time(self.store, timestamp_ns(name, text)), self.end)

    def pending(self, group: str) -> int:
        """Where the format's own cursor is."""
        own = self.store.format.groups.bookmarks()
        if group in own:
            return own[group]
        if not group and len(own) == 1:
            return next(iter(own.values()))
        known = ", ".join(own) or "none"
        raise OptionError(
            "view", "pending", f"a group that the format itself keeps; it has {known}"
        )


Source = LocalQueue | shipped.ShippedQueue


def _made(path: str) -> tuple[int, int, int] | None:
    try:
        stat = os.stat(path)  # noqa: PTH116  (asked for every micro-batch)
    except FileNotFoundError:
        return None
    return stat.st_dev, stat.st_ino, stat.st_ctime_ns


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
    elif glob.has_magic(path) and not os.path.lexists(path):  # `/data/a[1]/orders` may be there.
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
