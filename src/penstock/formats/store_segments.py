"""A store's segments: which there are, and opening those that are needed.

The list of them is kept: a listing costs the more the more segments there are, and a queue may have
ten thousand. It holds as long as nobody else has begun a segment, which a shared word tells. What
others have trimmed since lies below the head, and nobody asks for it; who comes too late all the
same finds no file, and looks again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from penstock import _core
from penstock.disk import control, files
from penstock.errors import CorruptError, FormatError, OffsetError
from penstock.formats import known_damage
from penstock.formats.segment_list import HasLastBase, SegmentList
from penstock.formats.values import Capabilities, Damage, End, SegmentInfo

if TYPE_CHECKING:
    from penstock.formats.known_damage import SetAside
    from penstock.formats.open_segments import OpenSegments


class StoreSegments(ABC):
    """A store's side of segments."""

    capabilities: ClassVar[Capabilities]
    path: Path
    sidecar: Path
    is_live: bool
    shared: _core.Shared | None
    set_aside: tuple[SetAside, ...]
    _opened: OpenSegments
    _known: SegmentList

    # ── what a format says ─────────────────────────────────────────────────────────────────

    @abstractmethod
    def list_segments(self) -> list[SegmentInfo]:
        """All segments in order, ends included as far as names and headers tell."""

    @abstractmethod
    def path_of(self, base: int) -> Path:
        """The file of the segment that begins at `base`."""

    @abstractmethod
    def open_segment(self, info: SegmentInfo, *, writable: bool) -> _core.Segment:
        """Opens one."""

    @abstractmethod
    def end(self) -> End:
        """Begin and end as they are now."""

    def rescue_segment(self, info: SegmentInfo) -> _core.Segment | None:
        """A segment with a damaged header, read by what else is known; none when nothing is."""
        return None

    # ── which there are ────────────────────────────────────────────────────────────────────

    def segments(self, *, fresh: bool = False) -> SegmentList:
        """All segments in order; each one's end is the next one's beginning.

        Listed only if someone else has begun one, or with `fresh`. What others have trimmed since
        may still be in it.
        """
        known, words = self._known, self.shared or control.Look(self.sidecar)
        if fresh or not self._holds(known, words):
            known = self._known = SegmentList.of(self.list_segments, words)
        return known

    def _holds(self, known: SegmentList, words: HasLastBase) -> bool:
        """Whether a list is what a listing would find."""
        if known.last_base is None:
            return False
        last_base = self.end().segment_base  # A program that is not ours may have gone on.
        is_same = known.as_of == words.segment_base
        return is_same and (self.shared is not None or known.last_base == last_base)

    def segments_above(self, offset: int) -> Iterator[SegmentInfo]:
        """Those that end above `offset`, and above the head."""
        return self.segments().above(max(offset, self.end().head))

    def is_trimmed(self, info: SegmentInfo) -> bool:
        """Whether the segment went because nobody needs it any more, since it was listed."""
        end = self.end()
        if info.end is None:  # It was the last one then.
            return end.segment_base != info.base < end.head
        return info.end <= end.head

    def live_segment(self, base: int) -> SegmentInfo:
        """The last segment, which begins at `base`: its name tells all."""
        return SegmentInfo(self.path_of(base), base, base, None, None)

    def ranges(self, start: int, end: int) -> Iterator[tuple[SegmentInfo, int, int]]:
        """The parts of `[start, end)` that lie in each segment."""
        for info in self.segments_above(start):
            first = max(info.first, start)
            last = end if info.end is None else min(info.end, end)
            if info.first >= end:
                return
            if first < last:
                yield info, first, last

    def bytes_between(self, start: int, end: int) -> int:
        """Bytes of frames in `[start, end)`."""
        if not self.capabilities.gaps:
            now = self.end()
            return max(0, min(end, now.tail) - max(start, now.head))
        return sum(last - first for _, first, last in self.ranges(start, end))

    def size_bytes(self) -> int:
        """Bytes of all segments as the disk counts them."""
        return sum(files.disk_bytes(info.path) for info in self.segments(fresh=True))

    def missing_segments(self, head: int | None = None) -> list[Damage]:
        """What should be there and is not: segments between the head and the oldest file.

        Formats whose offsets have gaps can't tell; whose files are listed elsewhere find out there.
        """
        infos = self.segments(fresh=True)
        # Asked for after the files: others move the head before they unlink.
        head = self.end().head if head is None else head
        if self.capabilities.gaps or not infos or infos[0].first <= head:
            return []
        lost = infos[0].first - head
        return [Damage(self.path_of(head), 0, lost, "no file", f"{lost} bytes of messages", head)]

    # ── opening them ───────────────────────────────────────────────────────────────────────

    def open_whole(self, info: SegmentInfo, *, writable: bool) -> _core.Segment:
        """Opens a segment; what a repair has set aside in it is passed over by every reader."""
        if known_damage.is_lost(info, self.set_aside):
            frames = _core.penstock_frames(bytes(16), info.base)
            segment = _core.Segment.over(info.path, info.base, 0, frames, b"", end=info.end)
        else:
            segment = self.open_segment(info, writable=writable)
        known_damage.mark(segment, self.set_aside)
        return segment

    def open_tolerantly(self, info: SegmentInfo) -> tuple[_core.Segment | None, Damage | None]:
        """The segment, if there is a way to read it, and what is wrong with its header.

        Neither for one that was trimmed while we looked.
        """
        try:
            return self._open(info, self.end().segment_base), None
        except FileNotFoundError:
            if not self.is_trimmed(info):
                raise
            return None, None
        except (CorruptError, FormatError) as error:
            at = getattr(error, "at", 0)
            expected = getattr(error, "expected", "a segment header")
            damage = Damage(info.path, at, 0, getattr(error, "found", str(error)), expected)
            segment = self.rescue_segment(info)
            if segment is not None:
                known_damage.mark(segment, self.set_aside)
            return segment, damage

    def _keep(self, segment: _core.Segment) -> _core.Segment:
        return self._opened.keep(segment)

    def _open_writable(self, base: int) -> _core.Segment:
        return self._keep(self.open_whole(self.live_segment(base), writable=True))

    def _open_last(self, base: int) -> _core.Segment:
        """The segment that is appended to: the one at `base`, which others may fill and trim before
        it is open; then the one that it is by now."""
        while True:
            try:
                return self._open_writable(base)
            except FileNotFoundError:
                before, base = base, self.end().segment_base
                if base == before:
                    raise

    def writable_segment(self, base: int) -> _core.Segment:
        """The segment that is appended to, after someone else began it."""
        found = self._opened.get(base)
        return found if found is not None and found.end is None else self._open_last(base)

    def segment_at(self, offset: int) -> _core.Segment:
        """The segment that holds `offset`, or the next one when `offset` is in none."""
        while True:
            live_base = self.end().segment_base
            segment = self._opened.holding(offset, live_base)
            if segment is not None:
                return segment
            info = self._known.holding(offset) or self.reaching(offset)
            if info is None:
                raise OffsetError(f"{self.path}: the queue has no segment any more")
            try:
                return self._open(info, live_base)
            except FileNotFoundError:
                # Another process may have trimmed one that was still listed: it is listed no more.
                if self.segments(fresh=True).at(info.base) is not None:
                    raise

    def reaching(self, offset: int) -> SegmentInfo | None:
        """The first segment that ends above `offset`, else the last one."""
        return self.segments().reaching(offset)

    def _open(self, info: SegmentInfo, live_base: int) -> _core.Segment:
        found = self._opened.get(info.base)
        if info.base == live_base and self.is_live:
            return found or self._keep(self.open_whole(info, writable=True))
        if found is not None and found.end is None and info.end is not None:
            found.set_end(info.end)
        if found is not None:
            return found
        segment = self.open_whole(info, writable=False)
        # One that begins just now is kept by whoever opens it to append: all threads share it.
        is_ours = info.end is not None or info.base == live_base
        return self._keep(segment) if is_ours else segment

    def unsynced_segments(self, durable: int) -> Iterator[_core.Segment]:
        """Those that hold anything at or above `durable`, oldest first, each opened when asked."""
        live_base = self.end().segment_base
        for info in self.segments_above(durable):
            try:
                segment = self._open(info, live_base)
            except FileNotFoundError:
                if not self.is_trimmed(info):
                    raise
                continue
            yield segment
