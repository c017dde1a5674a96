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
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from penstock import _core
from penstock.disk import control, files, sides
from penstock.errors import ClosedError, NoQueueError, StorageError, UnsupportedError, typed
from penstock.formats import cursors, known_damage, past, verifying
from penstock.formats.open_segments import OpenSegments
from penstock.formats.own_groups import OwnGroups
from penstock.formats.past import Past
from penstock.formats.segment_list import SegmentList
from penstock.formats.store_segments import StoreSegments
from penstock.formats.values import Capabilities as Capabilities
from penstock.formats.values import Damage as Damage
from penstock.formats.values import End as End
from penstock.formats.values import NewSegment as NewSegment
from penstock.formats.values import SegmentInfo as SegmentInfo
from penstock.formats.values import Verdict as Verdict
from penstock.logs import logger
from penstock.options import Durability, QueueOptions

CALLED_BACK = (
    "roll", "make_room", "follow", "writable_segment", "segment_at", "segment_of",
    "unsynced_segments", "open_tolerantly",
)  # fmt: skip


class Store(StoreSegments, OwnGroups, ABC):
    """An open queue as its format sees it."""

    path: Path
    sidecar: Path
    layout: str
    options: QueueOptions
    clock: _core.Clock
    was_first: bool
    set_aside: tuple[known_damage.SetAside, ...]

    format: ClassVar[str]
    layouts: ClassVar[tuple[str, ...]]
    """The variants of the format that can be read."""
    capabilities: ClassVar[Capabilities]
    inner_folders: ClassVar[tuple[str, ...]] = ()
    """Folders of the format itself inside the queue's."""
    own_options: ClassVar[Mapping[str, str]] = {}
    """Options that the format's own files keep, by their name there; none: the file's size."""

    def __init_subclass__(cls) -> None:
        """What the native core calls back, in the middle of a put or a get, raises our errors."""
        typed(cls, *CALLED_BACK)

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
        self._end_as_of: object = None
        """What was seen of the files when the end was looked for."""
        self._opened = OpenSegments()
        self._known = SegmentList()
        self._has_trimmed = False
        self._turn = threading.RLock()
        """Held by the thread that rolls, or takes over what another process changed."""
        self._look_around()
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

    def describe(self, info: SegmentInfo) -> SegmentInfo:
        """With what header and summary tell, where the format has them."""
        return info

    def side_files(self) -> dict[str, Any]:
        """Arguments for `_core.Segment`: where what the format has no place for is kept."""
        kinds = self._side_kinds()
        return sides.folders(self.sidecar, kinds, live=self.is_live, covers=self.options.checksums)

    def _side_kinds(self) -> dict[str, bool]:
        has = self.capabilities
        return {"extras": not (has.keys and has.delays), "integrity": not has.checksums}

    def is_foreign(self, words: control.Words) -> bool:
        """Whether the format's own files say what no process of ours can have left that stored
        `words` last: then a program that is not ours has written since."""
        return False

    @abstractmethod
    def find_end(self, past: Past) -> End:
        """Computes the end from the files; everything below `past.durable` is expected to be
        there. Changes nothing."""

    @abstractmethod
    def recover(self, end: End, past: Past) -> End:
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
        raise UnsupportedError(f"format {self.format} has no place for {name!r}")

    def follow(self) -> None:
        """Another program may have appended: where the format allows that, the tail moves on."""

    def resize(self, size: int) -> None:
        """Changes the size of a queue whose format has a fixed one."""
        raise UnsupportedError(f"format {self.format} has no fixed size; max_bytes limits a queue")

    def prepare_ahead(self) -> None:
        """In the background, when the tail has come some way into a segment."""

    def tend(self) -> None:
        """Background work of the format: sealing segments."""

    def after_trim(self, kept: SegmentInfo) -> None:
        """The head has moved to `kept`: formats that store it do so here, before files go."""

    def verify_extra(self, verdict: Verdict) -> None:
        """What a format checks beyond its frames."""

    def rebuild_header(self, info: SegmentInfo) -> bool:
        """Writes a damaged header anew from what else is known; whether that was possible."""
        return False

    def bring_back(self, damaged: set[Path]) -> int:
        """Saves messages of damaged segments that no offset names; how many. Alone, for repair."""
        return 0

    def as_stored(
        self, message: _core.Message, original: _core.Message, source: Store
    ) -> _core.Message:
        """`message`, which is to be put here, with what `original` tells beyond it in the queue
        `source`: formats that can hold its bytes as they are add them."""
        return message

    def is_same(self, wanted: bytes, found: bytes) -> bool:
        """Whether a body or a header came back as it was put; formats that take them apart compare
        values."""
        return wanted == found

    @property
    def is_sealing(self) -> bool:
        """Whether offsets of a dead appender must not be used again (encryption)."""
        return False

    @property
    def can_unseal(self) -> bool:
        """Whether bodies can be read: the key is there, or none is needed."""
        return True

    def need_key(self) -> None:
        """Before frames are read or judged: `KeyNeededError` where that takes a key that was not
        given. Sizes and groups can be looked at without."""

    # ── opening and closing ────────────────────────────────────────────────────────────────

    def _look_around(self) -> None:
        """Whether the folder is what we would have made: before anything in it is believed."""
        own = [self.path / name for name in self.inner_folders]
        files.refuse_links(self.sidecar, self.sidecar / "groups", *own)
        if self.options.trust_others:
            return
        try:
            files.refuse_strangers(self.path, self.sidecar)
        except StorageError as error:
            if self.is_live:
                raise
            logger("formats").warning("%s", error)  # Reading takes nothing that is done from it.

    def _open_live(self) -> None:
        files.refuse_network_file_system(self.path)
        files.make_folder(self.sidecar, like=self.path)
        _core.Shared.open(self.sidecar, self._open_alone)

    def _open_alone(self, shared: _core.Shared) -> None:
        """Under the opening lock. Who finds nobody else alive recovers; whoever else has the queue
        open is of this kernel, whatever its boot id says: then all words are of now."""
        self.shared, self.was_first = shared, shared.is_first
        if self.was_first:
            self._open_first(shared, self.clock.boot_id())
        segment = self._open_last(shared.segment_base)
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
        before = past.of(self)
        groups = (self.sidecar / "groups").glob("*")
        files.drop_temporaries(self.path, self.sidecar, *groups)
        end = self.find_end(before)
        self.dropped = (*before.faults, *end.dropped)
        if before.words is not None and not before.is_stopped and not before.is_foreign:
            # After a power cut an older head may be back, and what was trimmed not.
            self.dropped = (*self.dropped, *self.missing_segments(before.words.head))
        end = self.recover(end, before)
        if not before.is_closed:
            self._known = SegmentList()  # Files may have been cut, moved or made.
        shared.reset(
            boot=boot, tail=end.tail, next_number=end.next_number, segment_base=end.segment_base,
            head=end.head, head_number=end.head_number, durable=end.durable,
        )  # fmt: skip
        # Or the old end would be taken for the true one after a power cut.
        _core.sync_file(self.sidecar / "control")
        if before.words is None:
            _core.sync_folder(self.sidecar)
        is_shorter = before.words is not None and end.tail < before.words.tail
        if is_shorter or before.is_foreign or not before.is_closed:
            cursors.set_back(self, end.tail)
        cursors.follow(self, before, end.tail)

    def close(self) -> None:
        """Syncs, and leaves the queue clean if nobody else has it open."""
        shared, writer = self.shared, self.writer
        self.writer = None
        if shared is None:
            return
        try:
            if writer is not None:
                writer.close()
            with self._turn:
                pass  # Or a thread that rolls would still close the old segment.
            shared.close(lambda: self._close_alone(shared, writer))
        finally:
            self.shared = None  # With it goes the life of an opener that was interrupted above.
            self._opened.clear()

    def _close_alone(self, shared: _core.Shared, writer: _core.Writer | None) -> None:
        """Under the opening lock."""
        if shared.is_poisoned:
            return
        if not self.sidecar.exists():
            raise NoQueueError(self.path)  # Someone has deleted it meanwhile.
        if writer is not None:
            writer.sync()
        if shared.is_alone():
            self.leave(shared)
            shared.set_clean(True)
            shared.sync_file(self.sidecar / "control")

    def drop(self) -> None:
        """Lets go at once, as a kill would: the next opener recovers what is there."""
        shared, self.shared, self.writer = self.shared, None, None
        if shared is not None:
            shared.close()

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
        if self._end is None or self._end_as_of != w:
            before = past.of(self)
            self._end, self._end_as_of = self.find_end(before), w
            self.dropped = (*before.faults, *self._end.dropped)
        return self._end

    # ── rolling and trimming ───────────────────────────────────────────────────────────────

    def roll(self, base: int, needed: int) -> None:
        """Begins a new segment unless another process just did."""
        end = self._switch(base, needed)
        old = self._opened.get(base)
        if old is not None and old.end is None:
            info = self.segments().at(base) if end is None else None
            end = info.end if info is not None else end
            if end is not None:
                old.set_end(end)

    def _switch(self, base: int, needed: int) -> int | None:
        """Begins the segment after `base`, unless someone else does; where the old one ends, if
        that is where the new one begins."""
        shared, writer = self.need_shared(), self.need_writer()
        with self._turn:  # A prepared file is one thread's alone until it has its name.
            while shared.segment_base == base:
                tail, number = shared.tail, shared.next_number
                try:
                    prepared, new = self.prepare_segment(tail, number, needed)
                except FileNotFoundError:
                    if shared.segment_base == base:
                        raise
                    break  # Others have filled the last segment, and trimmed it, since.
                done = shared.segment_base == base and writer.switch(
                    old_base=base, tail=tail, number=number, path=new.path, prepared=prepared,
                    base=new.base, first=new.first, closing=new.closing,
                )  # fmt: skip
                if done:
                    self.began(new, base, tail, number, needed)
                    return tail if new.base == tail else None
                _core.unlink_file(prepared)
        return None

    def began(self, new: NewSegment, old_base: int, tail: int, number: int, needed: int) -> None:
        """`new` has its name: what is known is brought up to date before other threads roll."""
        known = self._known
        is_known = known.as_of == known.last_base == old_base
        end, head = tail if self.capabilities.gaps else new.base, self.need_shared().head
        self._known = known.followed_by(new, end, head) if is_known else SegmentList()

    def make_room(self, needed: int) -> None:
        """The queue is full: the engine decides."""
        if self.on_full is None:
            raise UnsupportedError(f"the queue is full: {needed} bytes do not fit into max_bytes")
        self.on_full(needed)

    def used_bytes(self) -> int:
        """What `max_bytes` limits: bytes of frames between head and tail."""
        end = self.end()
        return self.bytes_between(end.head, end.tail)

    def verify(self) -> Verdict:
        """Walks everything below the tail with its checksums. Changes nothing."""
        return verifying.verify(self)

    def trim(self, before: int) -> list[SegmentInfo]:
        """Unlinks segments that end at or before `before`; never the last one."""
        # What others unlinked, or died before they did, only a listing tells: one per opening.
        fresh, self._has_trimmed = not self._has_trimmed, True
        is_first, shared = fresh, self.need_shared()
        while True:
            infos = self.segments(fresh=fresh)
            due = infos.below(before)
            if not due:
                return []
            kept = self.describe(infos[len(due)])
            if kept.path.exists() or not self.is_trimmed(kept):
                break
            fresh = True  # Another process has trimmed further, and nothing tells its number.
        self.after_trim(kept)
        shared.set_head(kept.first, kept.first_number or 0)
        gone = [info for info in due if _core.unlink_file(info.path)]
        for info in due:
            self._opened.forget(info.base)
            sides.drop(self.sidecar, self._side_kinds(), info.base)
        if is_first:
            sides.trim(self.sidecar, kept.first)
        with self._turn:
            self._known = self._known.without(due)
        return gone


typed(Store, *CALLED_BACK)
typed(StoreSegments, *CALLED_BACK)
