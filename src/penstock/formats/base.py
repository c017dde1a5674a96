"""The contract of a format, and what all formats share.

A `Store` is an open queue as its format sees it. A format says where its segments are, how their
frames read, where the queue ends and how a new segment begins; opening, locking, rolling, finding
segments, syncing and walking are done here, once.

    read-only   nothing on disk changes; the end is computed in memory
    live        the control block in `.penstock/` is shared by all processes; the first opener
                recovers, the last closer leaves it clean
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

from penstock import _core
from penstock.disk import control, files, sides
from penstock.errors import ClosedError, CorruptError, FormatError, OffsetError, RefusedError
from penstock.formats import known_damage, verifying
from penstock.formats.open_segments import OpenSegments
from penstock.formats.own_groups import OwnGroups
from penstock.formats.segment_list import SegmentList
from penstock.formats.values import Capabilities as Capabilities
from penstock.formats.values import Damage as Damage
from penstock.formats.values import End as End
from penstock.formats.values import NewSegment as NewSegment
from penstock.formats.values import SegmentInfo as SegmentInfo
from penstock.formats.values import Verdict as Verdict
from penstock.options import Durability, QueueOptions


class Store(OwnGroups, ABC):
    """An open queue as its format sees it."""

    format: ClassVar[str]
    capabilities: ClassVar[Capabilities]

    def __init__(
        self, path: Path, layout: str, options: QueueOptions, clock: _core.Clock, *, live: bool
    ) -> None:
        """Opens the queue at `path`, which exists."""
        self.path, self.layout, self.options, self.clock = path, layout, options, clock
        self.sidecar = self.sidecar_of(path)
        self.is_live = live
        self.shared: _core.Shared | None = None
        self.writer: _core.Writer | None = None
        self.publish: _core.Publish | None = None
        self.dropped: tuple[Damage, ...] = ()
        self.was_first = False
        self.on_full: Callable[[int], None] | None = None
        self.on_verified: Callable[[int, int], None] = lambda done, total: None
        """Told by `verify` how many of how many bytes it has looked at."""
        self._end: End | None = None
        self._opened = OpenSegments()
        self._known = SegmentList()
        self._turn = threading.RLock()
        """Held by the thread that rolls, or takes over what another process changed."""
        self.load()
        self.set_aside = known_damage.load(self.sidecar, self.identity)
        if live:
            self._open_live()

    # ── what a format says ─────────────────────────────────────────────────────────────────

    @staticmethod
    def sidecar_of(path: Path) -> Path:
        """Where our own files are, which the originals never look at."""
        return path / ".penstock" if path.is_dir() else path.with_name(path.name + ".penstock")

    @classmethod
    @abstractmethod
    def sniff(cls, path: Path) -> str | None:
        """The layout, if this is a queue of the format; an error that lists what was seen when
        it is one but can't be told apart."""

    @classmethod
    @abstractmethod
    def create(cls, path: Path, layout: str, options: QueueOptions, clock: _core.Clock) -> None:
        """Makes an empty queue; `path` is missing or an empty folder. Under the opening lock."""

    @abstractmethod
    def load(self) -> None:
        """Reads headers and settings; raises on what can't be opened. Changes nothing."""

    @abstractmethod
    def list_segments(self) -> list[SegmentInfo]:
        """All segments in order, ends included as far as names and headers tell."""

    def describe(self, info: SegmentInfo) -> SegmentInfo:
        """With what header and summary tell, where the format has them."""
        return info

    @abstractmethod
    def open_segment(self, info: SegmentInfo, *, writable: bool) -> _core.Segment:
        """Opens one."""

    def side_files(self) -> dict[str, Any]:
        """Arguments for `_core.Segment`: where what the format has no place for is kept."""
        has = self.capabilities
        kinds = {"extras": not (has.keys and has.delays), "integrity": not has.checksums}
        return sides.folders(self.sidecar, kinds, live=self.is_live, covers=self.options.integrity)

    @abstractmethod
    def find_end(self, known: control.Words | None) -> End:
        """Computes the end from the files; everything below `known.durable` is expected to be
        there. Changes nothing."""

    @abstractmethod
    def recover(self, end: End, *, clean: bool) -> End:
        """Makes the files agree with `end`, before the first append. Alone, under the opening
        lock."""

    @abstractmethod
    def prepare_segment(self, tail: int, number: int, needed: int) -> tuple[Path, NewSegment]:
        """A file in the sidecar that can be renamed in as the segment that begins at `tail`."""

    @abstractmethod
    def publisher(self) -> _core.Publish:
        """How the end becomes visible in the format's own files."""

    @property
    @abstractmethod
    def identity(self) -> str:
        """Tells this queue from another one made later at the same path."""

    def free_consumed(self, queue: Any) -> bool:
        """Formats that delete what every group has acked do so here; whether anything went."""
        return False

    def meta(self) -> dict[str, Any]:
        """What the format keeps about the queue."""
        return {}

    def set_meta(self, **values: Any) -> None:
        """Changes it."""
        name = next(iter(values), "")
        raise RefusedError(f"format {self.format} has no place for {name!r}")

    def follow(self) -> None:
        """Another program may have appended: where the format allows that, the tail moves on."""

    def resize(self, size: int) -> None:
        """Changes the size of a queue whose format has a fixed one."""
        raise RefusedError(f"format {self.format} has no fixed size; max_bytes limits a queue")

    def prepare_ahead(self) -> None:
        """In the background, when the tail has come some way into a segment."""

    def tend(self) -> None:
        """Background work of the format: sealing segments."""

    def after_trim(self, kept: SegmentInfo) -> None:
        """The head has moved to `kept`: formats that store it do so here, before files go."""

    def verify_extra(self, verdict: Verdict) -> None:
        """What a format checks beyond its frames."""

    def rescue_segment(self, info: SegmentInfo) -> _core.Segment | None:
        """A segment with a damaged header, read by what else is known; none when nothing is."""
        return None

    def rebuild_header(self, info: SegmentInfo) -> bool:
        """Writes a damaged header anew from what else is known; whether that was possible."""
        return False

    def bring_back(self, damaged: set[Path]) -> int:
        """Saves messages of damaged segments that no offset names; how many. Alone, for repair."""
        return 0

    @property
    def is_sealing(self) -> bool:
        """Whether offsets of a dead appender must not be used again (encryption)."""
        return False

    @property
    def can_unseal(self) -> bool:
        """Whether bodies can be read: the key is there, or none is needed."""
        return True

    # ── opening and closing ────────────────────────────────────────────────────────────────

    def _open_live(self) -> None:
        files.refuse_network_file_system(self.path)
        files.make_folder(self.sidecar)
        boot = self.clock.boot_id()
        shared = self.shared = _core.Shared(self.sidecar, boot)
        try:
            self.was_first = shared.is_first or shared.is_new
            if self.was_first:
                self._open_first(shared, boot)
            base = shared.segment_base
            segment = self._open_writable(base)
        finally:
            shared.opened()
        options = self.options
        self.publish = self.publisher()
        self.writer = _core.Writer(
            shared, segment, self.publish, self.clock, self,
            always=options.durability is Durability.ALWAYS,
            wants_sync=options.durability is Durability.INTERVAL,
            sealing=self.is_sealing,
            max_message_bytes=options.max_message_bytes,
            max_bytes=0 if self.capabilities.gaps else options.max_bytes,
            delay_ns=int(options.delay_s * 1e9),
        )  # fmt: skip

    def _open_first(self, shared: _core.Shared, boot: int) -> None:
        words = None if shared.is_new else control.peek(self.sidecar)
        was_clean = words is not None and words.is_clean and not words.is_poisoned
        groups = (self.sidecar / "groups").glob("*")
        files.drop_temporaries(self.path, self.sidecar, *groups)
        end = self.find_end(words)
        self.dropped = end.dropped
        end = self.recover(end, clean=was_clean)
        shared.reset(
            boot=boot, tail=end.tail, next_number=end.next_number, segment_base=end.segment_base,
            head=end.head, head_number=end.head_number, durable=end.durable,
        )  # fmt: skip
        if words is None or was_clean:
            # Or the old, clean end would be taken for the true one after a power cut.
            _core.sync_file(self.sidecar / "control")
        if words is None:
            _core.sync_folder(self.sidecar)

    def close(self) -> None:
        """Syncs, and leaves the queue clean if nobody else has it open."""
        shared, writer = self.shared, self.writer
        self.shared = self.writer = None
        if shared is None:
            return
        if writer is not None:
            writer.close()
        shared.reopen()
        try:
            if writer is not None and not shared.is_poisoned:
                writer.sync()
            if shared.is_alone() and not shared.is_poisoned:
                self.leave(shared)
                shared.set_clean(True)
                _core.sync_file(self.sidecar / "control")
        finally:
            shared.close()
            shared.opened()
            self._opened.clear()

    def leave(self, shared: _core.Shared) -> None:
        """The last one out: formats that tidy up do so here."""

    def abandon(self) -> None:
        """In a forked child: the parent's opening is not ours."""
        if self.shared is not None:
            self.shared.abandon()
        self.shared = self.writer = None
        self._opened = OpenSegments()

    def need_shared(self) -> _core.Shared:
        """The shared words, or an error that says why there are none."""
        if self.shared is None:
            raise ClosedError("the queue was closed, or opened for reading only")
        return self.shared

    def need_writer(self) -> _core.Writer:
        """The writer, or an error that says why there is none."""
        if self.writer is None:
            raise ClosedError("the queue was closed, or opened for reading only")
        return self.writer

    # ── where it begins and ends ───────────────────────────────────────────────────────────

    def end(self) -> End:
        """Begin and end as they are now."""
        s = self.shared
        if s is not None:
            return End(s.tail, s.next_number, s.segment_base, s.head, s.head_number, s.durable)
        w = control.peek(self.sidecar)
        if w is not None and (w.is_clean or w.boot == self.clock.boot_id()):
            return End(w.tail, w.next_number, w.segment_base, w.head, w.head_number, w.durable)
        if self._end is None:
            self._end = self.find_end(w)
            self.dropped = self._end.dropped
        return self._end

    # ── segments ───────────────────────────────────────────────────────────────────────────

    def segments(self, *, fresh: bool = False) -> list[SegmentInfo]:
        """All segments in order; each one's end is the next one's beginning."""
        known = self._known
        if fresh or not known.infos:
            words = self.shared or control.Look(self.sidecar)
            known = self._known = SegmentList.of(self.list_segments, words)
        return known.infos

    def segments_above(self, offset: int) -> list[SegmentInfo]:
        """Those that end above `offset`, listed only if someone else has begun one."""
        end, known = self.end(), self._known
        if known.last_base != end.segment_base:
            self.segments(fresh=True)
        return self._known.above(max(offset, end.head))

    def is_trimmed(self, info: SegmentInfo) -> bool:
        """Whether the segment went because nobody needs it any more, since it was listed."""
        return info.end is not None and info.end <= self.end().head

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

    def live_segment(self, base: int) -> SegmentInfo | None:
        """The last segment, which begins at `base`."""
        return next((info for info in self.segments(fresh=True) if info.base == base), None)

    def _open_writable(self, base: int) -> _core.Segment:
        info = self.live_segment(base)
        if info is None:
            raise OffsetError(f"{self.path}: segment {base} is gone")
        return self._keep(self.open_whole(info, writable=True))

    def writable_segment(self, base: int) -> _core.Segment:
        """The segment that is appended to, after someone else began it."""
        found = self._opened.get(base)
        if found is not None and found.end is None:
            return found
        return self._open_writable(base)

    def segment_at(self, offset: int) -> _core.Segment:
        """The segment that holds `offset`, or the next one when `offset` is in none."""
        while True:
            live_base = self.end().segment_base
            try:
                return self._segment_at(offset, live_base)
            except FileNotFoundError as error:
                # The last segment may have ended, and its working copy gone, just now; or another
                # process has trimmed one that was still listed.
                before = {str(info.path) for info in self._known.infos}
                gone = before - {str(info.path) for info in self.segments(fresh=True)}
                if self.end().segment_base == live_base and str(error.filename) not in gone:
                    raise

    def _segment_at(self, offset: int, live_base: int) -> _core.Segment:
        segment = self._opened.holding(offset, live_base)
        if segment is not None:
            return segment
        known = self._known.holding(offset)
        if known is not None and known.path.exists():
            return self._open(known, live_base)
        infos = self.segments(fresh=True)
        for info in reversed(infos):
            if info.base <= offset:
                break
        else:
            if not infos:
                raise OffsetError(f"{self.path}: the queue has no segment any more")
            info = infos[0]
        if info.end is not None and offset >= info.end:
            later = [other for other in infos if other.base > info.base]
            info = later[0] if later else info
        return self._open(info, live_base)

    def _open(self, info: SegmentInfo, live_base: int) -> _core.Segment:
        found = self._opened.get(info.base)
        if info.base == live_base and self.is_live:
            return found or self._keep(self.open_whole(info, writable=True))
        if found is not None and found.end is None and info.end is not None:
            found.set_end(info.end)
        if found is not None:
            return found
        return self._keep(self.open_whole(info, writable=False))

    def unsynced_segments(self, durable: int) -> list[_core.Segment]:
        """Those that hold anything at or above `durable`, oldest first."""
        live_base = self.end().segment_base
        found = []
        for info in self.segments_above(durable):
            try:
                found.append(self._open(info, live_base))
            except FileNotFoundError:
                if not self.is_trimmed(info):
                    raise
        return found

    def roll(self, base: int, needed: int) -> None:
        """Begins a new segment unless another process just did."""
        end = self._switch(base, needed)
        old = self._opened.get(base)
        if old is not None and old.end is None:
            if end is None:
                end = next((i.end for i in self.segments(fresh=True) if i.base == base), None)
            if end is not None:
                old.set_end(end)

    def _switch(self, base: int, needed: int) -> int | None:
        """Begins the segment after `base`, unless someone else does; where the old one ends, if
        that is where the new one begins."""
        shared, writer = self.need_shared(), self.need_writer()
        with self._turn:  # A prepared file is one thread's alone until it has its name.
            while shared.segment_base == base:
                tail, number = shared.tail, shared.next_number
                prepared, new = self.prepare_segment(tail, number, needed)
                done = shared.segment_base == base and writer.switch(
                    old_base=base, tail=tail, path=new.path, prepared=prepared, base=new.base,
                    first=new.first, closing=new.closing,
                )  # fmt: skip
                if done:
                    self.began(new, base, tail, number, needed)
                    return tail if new.base == tail else None
                _core.unlink_file(prepared)
        return None

    def began(self, new: NewSegment, old_base: int, tail: int, number: int, needed: int) -> None:
        """`new` has its name: what is known is brought up to date before other threads roll."""
        known = self._known
        self._known = known.followed_by(new) if known.last_base == old_base else SegmentList()

    def make_room(self, needed: int) -> None:
        """The queue is full: the engine decides."""
        if self.on_full is None:
            raise RefusedError(f"the queue is full: {needed} bytes do not fit into max_bytes")
        self.on_full(needed)

    def used_bytes(self) -> int:
        """What `max_bytes` limits: bytes of frames between head and tail."""
        end = self.end()
        return self.bytes_between(end.head, end.tail)

    # ── walking ────────────────────────────────────────────────────────────────────────────

    def ranges(self, start: int, end: int) -> Iterator[tuple[SegmentInfo, int, int]]:
        """The parts of `[start, end)` that lie in each segment."""
        for info in self.segments(fresh=True):
            first = max(info.first, start)
            last = end if info.end is None else min(info.end, end)
            if first < last:
                yield info, first, last

    def bytes_between(self, start: int, end: int) -> int:
        """Bytes of frames in `[start, end)`."""
        return sum(last - first for _, first, last in self.ranges(start, end))

    def verify(self) -> Verdict:
        """Walks everything below the tail with its checksums. Changes nothing."""
        return verifying.verify(self)

    def trim(self, before: int) -> list[SegmentInfo]:
        """Unlinks segments that end at or before `before`; never the last one."""
        shared = self.need_shared()
        while True:
            infos = self.segments(fresh=True)
            gone = [i for i in infos[:-1] if i.end is not None and i.end <= before]
            if not gone:
                return []
            kept = self.describe(infos[len(gone)])
            if kept.path.exists() or not self.is_trimmed(kept):
                break  # Else another process has trimmed further, and nothing tells its number.
        self.after_trim(kept)
        shared.set_head(kept.first, kept.first_number or 0)
        for info in gone:
            _core.unlink_file(info.path)
            self._opened.forget(info.base)
        sides.trim(self.sidecar, kept.first)
        self._known = SegmentList()
        return gone

    def size_bytes(self) -> int:
        """Bytes of all segments as the disk counts them."""
        return sum(files.disk_bytes(info.path) for info in self.segments(fresh=True))
