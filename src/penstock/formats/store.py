"""A queue that is open, whatever its format.

    read-only   nothing on disk changes; the end is computed in memory
    live        the control block in `.penstock/` is shared by all processes; the first opener
                recovers, the last closer leaves it clean

The store opens, locks, recovers, rolls, trims, closes and verifies. It asks the queue's `Format`
where segments are, how their frames are read and how a new one begins.

The list of segments is kept, because listing a folder of ten thousand segments is slow. A shared
word tells when another process has begun a segment, and the list is made again. Segments that
others have trimmed since stay in it: they lie below the head, where nothing is read. A reader that
comes too late finds no file, and lists again.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

from penstock import _core
from penstock.disk import files
from penstock.errors import (
    ClosedError,
    CorruptError,
    FormatError,
    NoQueueError,
    OffsetError,
    StorageError,
    UnsupportedError,
    typed,
)
from penstock.formats import cursors, known_damage, past
from penstock.formats.contract import Format
from penstock.formats.open_segments import OpenSegments
from penstock.formats.past import Past
from penstock.formats.segment_list import UNKNOWN, SegmentList
from penstock.formats.values import Capabilities, Damage, End, NewSegment, SegmentInfo
from penstock.hints import final
from penstock.logs import logger
from penstock.options import Durability, QueueOptions
from penstock.pacing import QUICK_STEP_NS
from penstock.places import Path
from penstock.sidecar import control, damage, groups, opening, prepared, side_files


@final
class Store:
    """An open queue. A format does not inherit from it; it is handed to it."""

    set_aside: tuple[damage.SetAside, ...]
    """What a repair has set aside in the queue: readers pass over it."""

    def __init__(
        self,
        format: type[Format],
        path: Path,
        layout: str,
        options: QueueOptions,
        clock: _core.Clock,
        *,
        live: bool,
    ) -> None:
        """Opens the queue at `path`, which exists."""
        self.path: Path = path
        self.clock: _core.Clock = clock
        self.layout: str = layout
        self.options: QueueOptions = options
        self.sidecar: Path = opening.sidecar_of(path)
        self.is_live = live
        self.shared: _core.Shared | None = None
        self.writer: _core.Writer | None = None
        self.publish: _core.Publish | None = None
        self.dropped: tuple[Damage, ...] = ()
        self.was_first: bool = False
        self.on_full: Callable[[int], None] | None = None
        self.on_verified: Callable[[int, int], None] = lambda done, total: None
        """`verify` calls it with the bytes that it has checked, and the bytes there are."""
        self._run = 0
        self._end: End | None = None
        self._end_as_of: object = None
        """What the files looked like when the end was found."""
        self._opened = OpenSegments()
        self._known = UNKNOWN
        self._has_trimmed = False
        self._turn = threading.RLock()
        """Held by the thread that rolls, or adopts what another process has changed."""
        self._is_switching = False
        self._begun = set[int]()
        """The segments that this process has begun: where a format hands over, only these are
        appended to."""
        self._seen_base = -1
        """A segment of another process that our writer knows of."""
        # By a weak reference: a queue that the program drops is freed at once, with its files.
        self.format: Format = format(weakref.proxy(self))
        self.capabilities: Capabilities = format.capabilities
        self._lock_path = self.sidecar / "lock"
        self._look_around()
        self.format.load()
        self.layout, self.options = self.format.layout, self.format.options
        self.set_aside = damage.load(self.sidecar, self.identity)
        if live:
            opening.open(self.path, self.sidecar, self._open_alone)

    @property
    def identity(self) -> str:
        """Tells this queue from another one made later at the same path."""
        return self.format.identity

    # ── opening ────────────────────────────────────────────────────────────────────────────

    def _look_around(self) -> None:
        """Refuses a folder that we would not have made, before anything in it is trusted."""
        own = [self.path / name for name in self.format.inner_folders]
        files.refuse_links(self.sidecar, self.sidecar / "groups", *own)
        if self.options.trust_others:
            return
        try:
            files.refuse_strangers(self.path, self.sidecar)
        except StorageError as error:
            if self.is_live:
                raise
            logger("formats").warning("%s", error)  # Reading takes nothing that is done from it.

    def _open_alone(self, shared: _core.Shared) -> None:
        """Under the opening lock. A process that finds no other one alive recovers. If there is
        another, it runs on this kernel, whatever its boot id says: then all words are of now."""
        self.shared, self.was_first = shared, shared.is_first
        self._run = self._own_run() if self.was_first else shared.boot
        self._lock = self._lock_path.stat()
        if self._lock.st_nlink > 1:  # A copy by links has all files, this one among them.
            text = "%s: its files have second names: a copy made by `cp -l` changes with the queue"
            logger("formats").warning(text, self.path)
        if self.was_first:
            self._open_first(shared)
        segment = self._open_last(shared.segment_base)
        options = self.options
        self.publish = self.format.publisher()
        self.writer = _core.Writer(
            shared, segment, self.publish, self.clock, self,
            always=options.durability is Durability.ALWAYS,
            wants_sync=options.durability is Durability.INTERVAL,
            encrypting=self.format.is_encrypted,
            max_message_bytes=options.max_message_bytes,
            max_bytes=0 if self.capabilities.gaps else options.max_bytes,
            delay_ns=int(options.delay_s * 1e9), quick_step_ns=QUICK_STEP_NS,
        )  # fmt: skip

    @property
    def run(self) -> int:
        """The number that shared words of now carry. It stands for this run of the machine, this
        mounting of the file system and these very files. Words with another number may be lost in
        part."""
        return self._run or self._run_by(control.peek(self.sidecar))

    def _run_by(self, words: control.Words | None) -> int:
        """The same for who has just looked at the words."""
        if words is not None and not self._run and _core.Shared.is_open(self.sidecar):
            return words.boot  # A process has it open, so its words are of this run.
        return self._run or self._own_run()

    def ensure_in_place(self) -> None:
        """Raises if the queue's folder was moved away while it was open: what is made, written or
        deleted by name then would be that of another queue that has the path by now."""
        if self.shared is not None and not self._lock_path.exists():
            raise NoQueueError(self.path)
        if self.shared is not None and not os.path.samestat(self._lock_path.stat(), self._lock):
            text = "the folder was replaced while it was open; close the queue and open it again"
            raise StorageError(self.path, text)

    def _own_run(self) -> int:
        return _core.Shared.run_id(self.sidecar, self.clock.boot_id())

    def _open_first(self, shared: _core.Shared) -> None:
        """Recovers the queue: decides what happened before, and has the format mend its files."""
        before = past.of(self.format)
        opening.drop_temporaries(self.path, self.sidecar)
        if not before.is_killed:
            # After a power cut they need not be empty: a segment whose new name was lost has its
            # old one again.
            prepared.drop_all(self.sidecar)
        if before.is_poisoned:
            side_files.write_anew(self.sidecar, before.durable)
            groups.write_anew(self.sidecar)
        end = self._find_end(before)
        end = self.format.recover(end, before)
        self._let_puts_be_read(end.tail)
        self._begun = {end.segment_base}
        if not before.is_closed:
            self._known = UNKNOWN  # Files may have been cut, moved or made.
        # Nobody reads below the head, and segments there are deleted. So it is at most the tail, or
        # what is put next would lie below it.
        shared.reset(
            boot=self.run, tail=end.tail, next_number=end.next_number,
            segment_base=end.segment_base, head=min(end.head, end.tail),
            head_number=end.head_number, durable=end.durable,
        )  # fmt: skip
        # Otherwise the old end would be taken for the true one after a power cut.
        opening.sync_words(self.sidecar, is_new=before.words is None)
        self._set_groups_right(before, end)

    def _let_puts_be_read(self, tail: int) -> None:
        """Lets readers see what is put above the tail: where a repair has set the end of the queue
        aside, new messages take its offsets."""
        kept = known_damage.below(self.set_aside, tail)
        if kept != self.set_aside:
            self.set_aside = kept
            damage.save(self.sidecar, self.identity, kept)
            self.forget_segments()

    def _find_end(self, before: Past) -> End:
        """Where the queue ends by its files, and what of it is gone. Changes nothing."""
        end = self.format.find_end(before)
        self.dropped = (*before.faults, *end.dropped)
        if before.words is not None and not before.is_stopped and not before.is_foreign:
            # After a power cut an older head may be back, and what was trimmed not.
            self.dropped = (*self.dropped, *self.format.missing_segments(before.words.head))
        return end

    def _set_groups_right(self, before: Past, end: End) -> None:
        is_shorter = before.words is not None and end.tail < before.words.tail
        if is_shorter or before.is_foreign or not before.is_closed:
            cursors.set_back(self.format, end.tail)
        cursors.follow(self.format, before, end.tail)

    def follow_options(self) -> None:
        """Applies the options that the format has read from its own files."""
        self.options = self.format.options
        if self.writer is not None:
            self.writer.set_limits(
                max_bytes=self.options.max_bytes, delay_ns=int(self.options.delay_s * 1e9),
                max_message_bytes=self.options.max_message_bytes,
            )  # fmt: skip

    # ── closing ────────────────────────────────────────────────────────────────────────────

    def close(self) -> None:
        """Syncs, and marks the queue as cleanly closed if no other process has it open."""
        shared, writer = self.shared, self.writer
        self.writer = None
        try:
            if writer is not None:
                writer.close()
            with self._turn:
                pass  # A thread that rolls has closed the old segment by then.
            if shared is not None and writer is not None:
                shared.close(lambda: self._close_alone(shared, writer))
        finally:
            self.shared = None  # With it goes the life of an opener that was interrupted above.
            self._run = 0
            self._let_go_of_files()

    def _let_go_of_files(self) -> None:
        """Closes every file, however long the queue object lives. Messages that were handed out
        keep the segment that holds them."""
        self.publish = None
        self._opened.clear()
        self.format.let_go()

    def _close_alone(self, shared: _core.Shared, writer: _core.Writer) -> None:
        """Under the opening lock."""
        if shared.is_poisoned:
            return
        self.ensure_in_place()
        writer.sync()
        if shared.is_alone():
            self.format.leave(shared)
            prepared.drop_all(self.sidecar)
            shared.set_clean(True)
            shared.sync_file(self.sidecar / "control")

    def tend(self) -> None:
        """Does the format's own background work."""
        if self.shared is not None:
            self.ensure_in_place()
            self.format.tend()

    def drop(self) -> None:
        """Closes everything at once, as a kill would: the next opener recovers the queue."""
        shared, self.shared, self.writer = self.shared, None, None
        if shared is not None:
            shared.close()
        self._let_go_of_files()

    def abandon(self) -> None:
        """Called in a forked child: the open files belong to the parent."""
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
        """Where the queue begins and ends now, whichever process or program moved it."""
        if self.shared is not None:
            return self.format.end_now() or End.by(self.shared)
        found = self._look()
        return found if isinstance(found, End) else End.by(found)

    def _look(self) -> End | control.Words:
        """Where a queue begins and ends that this process only reads: the shared words while they
        hold, else what the files say, looked at once per change."""
        seen = self.format.seen_end()
        words = self.format.believed(seen)
        if words is not None:
            return words
        as_of = control.peek(self.sidecar), seen
        if self._end is None or self._end_as_of != as_of:
            self._end, self._end_as_of = self._find_end(past.of(self.format)), as_of
        return self._end

    def _live_base(self) -> int:
        """Where the segment begins that is appended to now."""
        if self.shared is None:
            return self._look().segment_base
        return (self.format.end_now() or self.shared).segment_base

    def durable_range(self) -> tuple[int, int]:
        """Where the queue begins, and the end of what is on the disk for good.

        Without our control block nobody of ours writes there, and after an orderly close or in a
        later boot all that is found is on the disk; only words of this boot tell them apart.
        """
        found = self._look() if self.shared is None else self.end()
        words = control.peek(self.sidecar) if isinstance(found, End) else found
        if words is None or words.is_clean or words.boot != self._run_by(words):
            return found.head, found.tail
        return found.head, min(found.durable, found.tail)

    def used_bytes(self) -> int:
        """How many bytes of the queue `max_bytes` counts."""
        return self.format.used_bytes(self.end())

    def follow(self) -> None:
        """Adopts what another program has appended, where the format allows that."""
        self.format.refresh()

    # ── which segments there are ───────────────────────────────────────────────────────────

    def segments(self, *, fresh: bool = False) -> SegmentList:
        """All segments in order; each one's end is the next one's beginning.

        They are listed again only if another process has begun one, or with `fresh`. Segments that
        others have trimmed since may still be in the list.
        """
        known = self._known
        if fresh or known.last_base is None:
            return self._list()
        if self.shared is None:
            return self._listed(self._look())
        self.format.end_now()  # A program that is not ours may have gone on.
        base = self.shared.segment_base
        return known if known.as_of == base else self._followed(base) or self._list()

    def _listed(self, now: End | control.Words) -> SegmentList:
        """The list of a queue that this process only reads; made again unless it still holds, by
        what `_look` has just found."""
        known, base = self._known, now.segment_base
        as_of = control.segment_base(self.sidecar) if isinstance(now, End) else base
        return known if (known.as_of, known.last_base) == (as_of, base) else self._list()

    def _followed(self, base: int) -> SegmentList | None:
        """The list with the one segment that another process has begun since; `None` if there may
        be more of them. A listing takes longer the more segments there are."""
        with self._turn, suppress(FileNotFoundError, CorruptError, FormatError):
            known, last, word = self._known, self._known.last_base, self.format.closing
            if known.as_of == base:
                return known  # A thread of ours has begun it, and noted that by now.
            if word and last is not None and last == known.as_of:
                full = self.open_listed(self.live_segment(last))
                if full.read(full.position(base), len(word)) == word:
                    new = NewSegment(self.format.path_of(base), base, base)
                    self._known = known.followed_by(new, base, self.need_shared().head)
                    return self._known
        return None

    def _list(self) -> SegmentList:
        shared, look = self.shared, partial(control.segment_base, self.sidecar)
        last_base = look if shared is None else lambda: shared.segment_base
        self._known = known = SegmentList.of(self.format.list_segments, last_base)
        return known

    def segments_above(self, offset: int) -> Iterator[SegmentInfo]:
        """The segments that end above `offset` and above the head."""
        if self.shared is not None:
            return self.segments().above(max(offset, self.end().head))
        now = self._look()
        start = max(offset, now.head)
        listed = self.format.list_from(start)
        return (self._listed(now) if listed is None else SegmentList(listed)).above(start)

    def reaching(self, offset: int) -> SegmentInfo | None:
        """The first segment that ends above `offset`, else the last one."""
        if self.shared is None:
            if (info := self.format.find_segment(offset)) is not None:
                return info
            listed = self.format.list_from(offset)
            if listed is not None:
                return SegmentList(listed or self.format.list_segments()).reaching(offset)
        return self.segments().reaching(offset)

    def is_trimmed(self, info: SegmentInfo) -> bool:
        """Whether a segment was deleted since it was listed, because no group needs it any more."""
        now = self.end()
        if self.capabilities.gaps:  # By us or by a program that is not ours: the head is not told.
            return not info.path.exists() and info.base != now.segment_base
        if info.end is None:  # It was the last one when it was listed.
            return now.segment_base != info.base < now.head
        return info.end <= now.head

    def live_segment(self, base: int) -> SegmentInfo:
        """The segment that is appended to, which begins at `base`."""
        return SegmentInfo(self.format.path_of(base), base, base, None, None)

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
        """How many bytes of frames lie in `[start, end)`."""
        if not self.capabilities.gaps:
            now = self.end()
            return max(0, min(end, now.tail) - max(start, now.head))
        return sum(last - first for _, first, last in self.ranges(start, end))

    # ── opening them ───────────────────────────────────────────────────────────────────────

    def open_whole(self, info: SegmentInfo, *, writable: bool) -> _core.Segment:
        """Opens a segment; its readers skip what a repair has set aside."""
        if not self.set_aside:
            return self.format.open_segment(info, writable=writable)
        if known_damage.is_lost(info, self.set_aside):
            frames = _core.penstock_frames(bytes(16), info.base)
            segment = _core.Segment.over(info.path, info.base, 0, frames, b"", end=info.end)
        else:
            if not writable:  # The last one was named by a process that was in its place.
                self.ensure_in_place()
            segment = self.format.open_segment(info, writable=writable)
        known_damage.mark(segment, self.set_aside)
        return segment

    def open_listed(self, info: SegmentInfo) -> _core.Segment:
        """A segment of the list, opened once and kept open.

        Which one is appended to is asked after it was listed: one that was the last before has an
        end by now, and the process that began the next one may have cut its file there.
        """
        self._forget_replaced(info.base)
        found, live_base = self._opened.get(info.base), self._live_base()
        if info.base == live_base and self.is_live:
            return found or self._opened.keep(self.open_whole(info, writable=True))
        if found is not None and found.end is None and info.end is not None:
            found.set_end(info.end)
        if found is not None:
            return found
        segment = self.open_whole(info, writable=False)
        # One that begins just now is kept by the thread that opens it to append: all share it.
        is_ours = info.end is not None or info.base == live_base
        return self._opened.keep(segment) if is_ours else segment

    def open_tolerantly(self, info: SegmentInfo) -> tuple[_core.Segment | None, Damage | None]:
        """The segment, if there is a way to read it, and what is wrong with its header.

        Both are `None` for a segment that was trimmed meanwhile.
        """
        try:
            return self.open_listed(info), None
        except FileNotFoundError:
            if not self.is_trimmed(info):
                raise
            return None, None
        except (CorruptError, FormatError) as error:
            at = getattr(error, "at", 0)
            expected = getattr(error, "expected", "a segment header")
            segment = self.format.rescue_segment(info)
            if segment is not None:
                known_damage.mark(segment, self.set_aside)
            return segment, Damage(info.path, at, 0, getattr(error, "found", str(error)), expected)

    def forget_segments(self) -> None:
        """Closes all open segments; the next request lists them again."""
        with self._turn:
            self._opened.clear()
            self._known = UNKNOWN

    def forget_stale(self, base: int) -> None:
        """Closes the open segment that begins at `base` if its file was replaced."""
        if (held := self._opened.get(base)) is not None and held.is_stale:
            self._opened.forget(base)

    def _forget_replaced(self, base: int) -> None:
        """Closes a segment whose file was replaced. A dead writer may have left it without a frame,
        and the next writer puts a new file there, unless a process has the queue open to write."""
        if self.shared is None:
            self.forget_stale(base)

    def segment_at(self, offset: int) -> _core.Segment:
        """The segment that holds `offset`, or the next one when `offset` is in none."""
        self.format.refresh()
        while True:
            live_base = self._live_base()
            self._forget_replaced(live_base)
            segment = self._opened.holding(offset, live_base)
            if segment is not None:
                return segment
            info = self._known.holding(offset) or self.reaching(offset)
            if info is None:
                raise OffsetError(f"{self.path}: the queue has no segment any more")
            try:
                return self.open_listed(info)
            except FileNotFoundError:
                # Another process may have trimmed one that was still listed: it is listed no more.
                if self.segments(fresh=True).at(info.base) is not None:
                    raise

    def unsynced_segments(self, durable: int) -> Iterator[_core.Segment]:
        """The segments with anything at or above `durable`, oldest first."""
        self.format.refresh()
        for info in self.segments_above(durable):
            try:
                segment = self.open_listed(info)
            except FileNotFoundError:
                if not self.is_trimmed(info):
                    raise
                continue
            yield segment

    # ── the one that is appended to ────────────────────────────────────────────────────────

    def writable_segment(self, base: int) -> _core.Segment:
        """The segment that is appended to, after another process has begun it.

        Where one process alone may append to a segment, another's is taken over by beginning the
        next one: at the second time that a writer asks for it, when it has seen where it ends.
        """
        self.format.refresh()
        base = self.need_shared().segment_base
        if self.format.hands_over:
            with self._turn:  # A thread of ours that began it has noted so by then.
                is_ours, is_switching = base in self._begun, self._is_switching
            if not is_ours and self._seen_base == base and not is_switching:
                self.roll(base, 0)
                base = self.need_shared().segment_base
            if not is_ours:
                return self._open_last(base)
        found = self._opened.get(base)
        return found if found is not None and found.end is None else self._open_last(base)

    def _open_last(self, base: int) -> _core.Segment:
        """The segment that is appended to: the one at `base` or, where others fill and trim that
        before it is open, the one that is appended to by then."""
        while True:
            info = self.live_segment(base)
            try:
                if not self.format.hands_over or base in self._begun:
                    return self._opened.keep(self.open_whole(info, writable=True))
                self._seen_base = base
                segment = self.format.open_segment(info, writable=True)
                segment.set_end(base)  # Only its holder can append to it.
            except FileNotFoundError:
                before, base = base, self._live_base()
                if base == before:
                    raise
            else:
                return segment

    # ── rolling and trimming ───────────────────────────────────────────────────────────────

    def roll(self, base: int, needed: int) -> None:
        """Begins a new segment unless another process just did; a ring frees its oldest bytes."""
        if self.shared is not None and self.shared.segment_base == base:
            self.format.before_roll(base, needed)
        if self.capabilities.ring:
            return
        end = self.switch(base, needed)
        old = self._opened.get(base)
        if old is not None and old.end is None:
            if end is None:  # Another process has begun the new one.
                info = self.segments().at(base)
                end = info.end if info is not None else None
            if end is None and self.capabilities.gaps:
                end = base
            if end is not None:
                old.set_end(end)
        self.format.rolled(base)

    def switch(self, base: int, needed: int) -> int | None:
        """Begins the segment after `base`, and returns where the old one ends; `None` if another
        process does."""
        shared, writer = self.need_shared(), self.need_writer()
        with self._turn:  # A prepared file is one thread's alone until it has its name.
            # The writer, which another thread may just have turned elsewhere, asks for the segment
            # that is to be followed meanwhile, not for yet another one.
            self._is_switching = True
            try:
                return self._switch(shared, writer, base, needed)
            finally:
                self._is_switching = False

    def _switch(
        self, shared: _core.Shared, writer: _core.Writer, base: int, needed: int
    ) -> int | None:
        while shared.segment_base == base:
            tail, number = shared.tail, shared.next_number
            if not os.path.samestat(self._lock_path.stat(), self._lock):
                self.ensure_in_place()  # It raises; a roll does without the call.
            try:
                new_file, new = self.format.prepare_segment(tail, number, needed)
            except FileNotFoundError:
                if shared.segment_base == base:
                    raise
                break  # Others have filled the last segment, and trimmed it, since.
            done = shared.segment_base == base and writer.switch(
                old_base=base, tail=tail, number=number, path=new.path, prepared=new_file,
                base=new.base, first=new.first, closing=new.closing, header=new.header,
            )  # fmt: skip
            if done:
                self._begun.add(new.base)
                self.format.began(new, base, tail, number, needed)
                end = tail if self.capabilities.gaps else new.base
                known = self._known
                is_known = known.as_of == base == known.last_base
                self._known = known.followed_by(new, end, shared.head) if is_known else UNKNOWN
                self.format.listed(new, needed)
                return end
            prepared.drop(new_file)
        return None

    def prepare_ahead(self) -> None:
        """Makes the next segment, so that rolling and its first stores cost little: at once for a
        quick writer, else when the last one is an eighth full. Never on a disk where it would have
        to be smaller than the last one: a put may need what is left."""
        shared = self.shared
        if not self.format.makes_ahead or shared is None or prepared.has_ready(self.sidecar):
            return
        last, is_quick = self.live_segment(shared.segment_base), self.need_writer().is_quick
        size = last.size  # 0 once others have filled and trimmed it.
        is_due = is_quick or (shared.tail - last.base) * 8 >= size
        if is_due and 0 < size <= files.free_bytes(self.path) // 2:
            self.ensure_in_place()
            make = partial(self.format.make_next, last_bytes=size, is_quick=is_quick)
            prepared.keep_ready(self.sidecar, make)

    def resize(self, size: int) -> None:
        """Changes the size of a queue whose format has a fixed one."""
        self.ensure_in_place()
        self.format.resize(size)

    def make_room(self, needed: int) -> None:
        """The queue is full: lets the engine free space, wait or raise."""
        if self.on_full is None:
            raise UnsupportedError(f"the queue is full: {needed} bytes do not fit into max_bytes")
        self.on_full(needed)

    def unfit(self, why: str) -> None:
        """Raises the error for a message that the format's files can't hold, with advice."""
        raise UnsupportedError(f"{why}; {self.format.instead}")

    def trim(self, before: int) -> list[SegmentInfo]:
        """Deletes segments that end at or before `before`; never the last one."""
        self.ensure_in_place()
        # Only a listing tells what others have unlinked, or died before unlinking: one per opening.
        fresh, self._has_trimmed = not self._has_trimmed, True
        is_first, shared = fresh, self.need_shared()
        before = self.format.trim_limit(before)
        while True:
            infos = self.segments(fresh=fresh)
            due = infos.below(before)
            if not due:
                return []
            kept = self.format.describe(infos[len(due)])
            if kept.path.exists() or not self.is_trimmed(kept):
                break
            fresh = True  # Another process has trimmed further, and its number is unknown.
        shared.set_head(kept.first, kept.first_number or 0)  # The format's own is never ahead.
        self.format.store_head(kept)
        gone = [info for info in due if _core.unlink_file(info.path)]
        for info in due:
            self._opened.forget(info.base)
            self._begun.discard(info.base)
            side_files.drop(self.sidecar, self.format.side_kinds(), info.base)
        for info in gone:
            self.format.trimmed(info)
        if is_first:
            side_files.trim(self.sidecar, kept.first)
        with self._turn:
            self._known = self._known.without(due)
        return gone


# The native core calls these in the middle of a put or a get: they raise penstock's own errors.
typed(
    Store, "roll", "make_room", "follow", "writable_segment", "segment_at", "unsynced_segments",
    "open_tolerantly",
)  # fmt: skip
