"""What a listing of a queue's segments has found; a roll adds to it without listing again.

A list never changes, so threads share it without a lock: a newer one takes its place.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from penstock.formats.values import NewSegment, SegmentInfo


class HasLastBase(Protocol):
    """Tells where the last segment begins, as it is now."""

    @property
    def segment_base(self) -> int:
        """Its first offset."""


class SegmentList:
    """Segments in order; all but the last one have an end."""

    def __init__(self, infos: Sequence[SegmentInfo] = ()) -> None:
        """As they were listed."""
        self.infos = list(infos)
        self._bases = [info.base for info in self.infos]

    @classmethod
    def of(cls, look: Callable[[], list[SegmentInfo]], words: HasLastBase) -> SegmentList:
        """As `look` finds them. Again when a segment has begun meanwhile: what a folder gets while
        it is listed may be left out, though what comes after it is not."""
        while True:
            base = words.segment_base
            infos = look()
            if words.segment_base == base:
                return cls(infos)

    @property
    def last_base(self) -> int | None:
        """Where the last one begins."""
        return self._bases[-1] if self._bases else None

    def holding(self, offset: int) -> SegmentInfo | None:
        """The full segment that `offset` lies in: where it begins and ends never changes."""
        at = bisect_right(self._bases, offset) - 1
        if at < 0:
            return None
        info = self.infos[at]
        return info if info.end is not None and offset < info.end else None

    def above(self, offset: int) -> list[SegmentInfo]:
        """Those that end above `offset`."""
        at = max(0, bisect_right(self._bases, offset) - 1)
        return [info for info in self.infos[at:] if info.end is None or info.end > offset]

    def followed_by(self, new: NewSegment) -> SegmentList:
        """With one more at its end; the last one is full now."""
        *before, last = self.infos
        added = SegmentInfo(new.path, new.base, new.first, None, None)
        return SegmentList([*before, replace(last, end=new.base), added])
