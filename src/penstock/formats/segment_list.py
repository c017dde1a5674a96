"""What a listing of a queue's segments has found; a roll adds to it without listing again.

A list never changes, so threads share it without a lock: a newer one takes its place. The newer one
shares what both have, so that a queue of ten thousand segments rolls as fast as one of ten.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter

from penstock.formats.values import NewSegment, SegmentInfo
from penstock.hints import overload
from penstock.records import replace

FORGOTTEN = 64
"""How many segments below the head stay in a list: the next trim looks whether they are gone."""
BASE = attrgetter("base")
LISTINGS_MAX = 4
"""How often a folder is listed while others begin segments in it."""


class _Full:
    """The full segments of a list and of those made from it; only ever appended to."""

    def __init__(self, infos: list[SegmentInfo]) -> None:
        self.infos = infos
        self._sums = [0]
        self._lock = threading.Lock()

    def bytes_before(self, stop: int) -> int:
        """The bytes of the first `stop` files: each is asked for its size once."""
        with self._lock:
            for info in self.infos[len(self._sums) - 1 : stop]:
                self._sums.append(self._sums[-1] + info.size)
            return self._sums[stop]

    def reaching(self, size: int, start: int, stop: int) -> int:
        """How many files there are up to the one with which they have `size` bytes."""
        self.bytes_before(stop)
        return bisect_left(self._sums, size, start, stop)


class SegmentList(Sequence[SegmentInfo]):
    """Segments in order; all but the last one have an end."""

    as_of: int | None

    def __init__(self, infos: Iterable[SegmentInfo] = (), as_of: int | None = None) -> None:
        """As they were listed, while the last segment was the one that begins at `as_of`."""
        self.as_of, full = as_of, list(infos)
        self._last = full.pop() if full else None
        self._full, self._start, self._stop = _Full(full), 0, len(full)

    @classmethod
    def of(cls, look: Callable[[], list[SegmentInfo]], last_base: Callable[[], int]) -> SegmentList:
        """As `look` finds them. Again when a segment has begun meanwhile: what a folder gets while
        it is listed may be left out, though what comes after it is not. `last_base` says where the
        last one begins now.

        Where others begin them faster than a long folder is listed, that would never end: then
        the list is of those that were there when the listing began, all of which it has.
        """
        for _ in range(LISTINGS_MAX):
            base = last_base()
            infos = look()
            if last_base() == base:
                return cls(infos, base)
        there = [info for info in infos if info.base <= base]
        if there:
            there[-1] = replace(there[-1], end=None)
        return cls(there, base)

    # ── as a sequence ──────────────────────────────────────────────────────────────────────

    def __len__(self) -> int:
        return self._stop - self._start + (self._last is not None)

    def __iter__(self) -> Iterator[SegmentInfo]:
        return self._from(self._start)

    @overload
    def __getitem__(self, at: int) -> SegmentInfo: ...
    @overload
    def __getitem__(self, at: slice) -> list[SegmentInfo]: ...
    def __getitem__(self, at: int | slice) -> SegmentInfo | list[SegmentInfo]:
        """By index, as in any list."""
        if isinstance(at, slice):
            return list(self)[at]
        index = range(len(self))[at] + self._start
        if index < self._stop:
            return self._full.infos[index]
        assert self._last is not None
        return self._last

    def _from(self, index: int) -> Iterator[SegmentInfo]:
        for at in range(index, self._stop):
            yield self._full.infos[at]
        if self._last is not None:
            yield self._last

    # ── by offset ──────────────────────────────────────────────────────────────────────────

    @property
    def last_base(self) -> int | None:
        """Where the last one begins."""
        return None if self._last is None else self._last.base

    def _ended(self, offset: int) -> int:
        """The index behind the full ones that end at or before `offset`."""
        return bisect_right(
            self._full.infos, offset, self._start, self._stop, key=lambda info: info.end or 0
        )

    def _begun(self, base: int) -> int:
        """The index of the first full one that begins at or after `base`."""
        return bisect_left(self._full.infos, base, self._start, self._stop, key=BASE)

    def at(self, base: int) -> SegmentInfo | None:
        """The one that begins at `base`."""
        index = self._begun(base)
        found = self._full.infos[index] if index < self._stop else self._last
        return found if found is not None and found.base == base else None

    def beginning(self, offset: int) -> SegmentInfo | None:
        """The first one that begins at or after `offset`."""
        found = next(self._from(self._begun(offset)), None)
        return found if found is not None and found.base >= offset else None

    def holding(self, offset: int) -> SegmentInfo | None:
        """The full segment that `offset` lies in: where it begins and ends never changes."""
        index = self._ended(offset)
        found = self._full.infos[index] if index < self._stop else self._last
        return found if found is not None and found.base <= offset < (found.end or 0) else None

    def reaching(self, offset: int) -> SegmentInfo | None:
        """The first one that ends above `offset`, else the last one."""
        return next(self._from(self._ended(offset)), self._last)

    def above(self, offset: int) -> Iterator[SegmentInfo]:
        """Those that end above `offset`."""
        for info in self._from(self._ended(offset)):
            if info.end is None or info.end > offset:
                yield info

    def below(self, offset: int) -> list[SegmentInfo]:
        """Those that end at or before `offset`, but for the last one."""
        return self._full.infos[self._start : self._ended(offset)]

    # ── by bytes ───────────────────────────────────────────────────────────────────────────

    def bytes_above(self, offset: int) -> int:
        """The bytes of the files of segments that end above `offset`, and of the last one."""
        full = self._full.bytes_before(self._stop) - self._full.bytes_before(self._ended(offset))
        return full + (self._last.size if self._last is not None else 0)

    def beyond(self, most: int, offset: int) -> list[SegmentInfo]:
        """The oldest above `offset` that must go for the rest to have at most `most` bytes, but for
        the last one."""
        excess, first = self.bytes_above(offset) - most, self._ended(offset)
        if excess <= 0:
            return []
        wanted = self._full.bytes_before(first) + excess
        return self._full.infos[first : self._full.reaching(wanted, first, self._stop)]

    # ── what comes after it ────────────────────────────────────────────────────────────────

    def followed_by(self, new: NewSegment, end: int, head: int = 0) -> SegmentList:
        """With one more at its end, which the thread that began it asks for; the last one is full
        now, up to `end`. Of those below the head only a few stay: others may trim the queue."""
        assert self._last is not None
        found = self._from_index(max(self._start, self._ended(head) - FORGOTTEN))
        if len(found._full.infos) != found._stop:
            found = SegmentList(found)  # Another list went on from here.
        found.as_of = new.base
        found._full.infos.append(replace(self._last, end=end))
        found._stop += 1
        found._last = SegmentInfo(new.path, new.base, new.first, None, new.size)
        return found

    def without(self, gone: Sequence[SegmentInfo]) -> SegmentList:
        """Without its oldest, which were trimmed."""
        return self._from_index(self._begun(gone[-1].base + 1))

    def _from_index(self, start: int) -> SegmentList:
        if start > FORGOTTEN and start * 2 > self._stop:
            return SegmentList(self._from(start), self.as_of)
        found = SegmentList.__new__(SegmentList)
        found.as_of = self.as_of
        found._full, found._start, found._stop = self._full, start, self._stop
        found._last = self._last
        return found


UNKNOWN = SegmentList()
"""What is known of a queue before it is listed."""
