"""A Beats disk queue, open.

One process holds the open segment and appends to it by write calls, so the file never has bytes
of no frame. Another process that wants to append closes it and begins the next one: hand-over.
Every opening of the queue begins a new segment too, as Beats itself does. An encrypted segment is
therefore never appended to by two, and never after a crash: no keystream is used twice.

What every group has acked is deleted by whole segments; the default group's cursor is also in
`state.dat`, where Beats keeps its own.
"""

from __future__ import annotations

import base64
import secrets
import threading
import weakref
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from penstock import _core
from penstock.disk import files
from penstock.errors import FormatError, NoQueueError, OptionError, UnsupportedError
from penstock.formats import past
from penstock.formats.beats import (
    checks,
    closing,
    noted,
    power_cut,
    rescue,
    segments,
    state,
    structs,
)
from penstock.formats.beats.groups import BeatsGroups
from penstock.formats.beats.queue_files import MAX_SEGMENT_BYTES, BeatsFiles
from penstock.formats.beats.segments import Header
from penstock.formats.beats.structs import KINDS, POSITION_BITS, Kind
from penstock.formats.contract import Format
from penstock.formats.past import Past
from penstock.formats.values import (
    Capabilities,
    Consumed,
    Damage,
    Encryption,
    End,
    NewSegment,
    SegmentInfo,
    Verdict,
)
from penstock.options import DEFAULT_GROUP, QueueOptions
from penstock.records import asdict, replace
from penstock.sidecar import control, notes, plain_copies, prepared


class BeatsFormat(BeatsFiles):
    """The disk queue of Elastic Beats."""

    name: ClassVar[str] = "beats"
    layouts: ClassVar[tuple[str, ...]] = tuple(KINDS)
    created: ClassVar[tuple[str, ...]] = structs.CREATED
    encryption: ClassVar[Encryption | None] = Encryption(
        structs.KEY_BYTES, tuple(n for n, k in KINDS.items() if k.is_encrypted)
    )
    refused: ClassVar[Mapping[str, str]] = {
        "compression": "compresses by its layout: 2-released-lz4",
        "checksums": "has a checksum in every frame",
    }
    hands_over: ClassVar[bool] = True
    capabilities: ClassVar[Capabilities] = Capabilities(
        tags=False, numbers=False, checksums=True, deletes_consumed=True, gaps=True,
        json_bodies=True,
    )  # fmt: skip

    groups: BeatsGroups

    @classmethod
    def sniff(cls, path: Path) -> str | None:
        """A file `<id>.seg` of a known version."""
        return segments.sniff(path) if path.is_dir() else None

    @classmethod
    def make(
        cls, path: Path, sidecar: Path, layout: str, options: QueueOptions, clock: _core.Clock
    ) -> None:
        """One segment without frames; `state.dat` comes with the first ack."""
        if segments.find(path):
            return
        notes.write(sidecar, notes.BEATS, {"id": secrets.token_hex(16), "layout": layout})
        prepared.place(begin_file(sidecar, KINDS[layout], synced=True), path / "0.seg")
        _core.sync_folder(path.parent)

    def load(self) -> None:
        """Reads the newest header, and every one if nothing else tells that the key fits."""
        self.groups = BeatsGroups(weakref.proxy(self))
        self._making_room = set[int]()
        while (newest := next(self.readable(newest_first=True), None)) is None:
            if segments.bare_layout(self.path):
                break  # A Beat was here and has queued nothing.
            if segments.sniff(self.path) is None:  # Else others have deleted what was listed.
                raise FormatError(self.path, "no readable segment", "check the path")
        checks.check_key(self)
        if newest is not None and self.layout == segments.sniff(self.path):
            self.layout: str = self._layout_by(newest)
        self.kind = KINDS[structs.GOES_ON_AS.get(self.layout, self.layout)]
        self.is_encrypted: bool = self.kind.is_encrypted
        self.need_key()
        if not self.is_encrypted and self.options.tamper_evident:
            raise OptionError("tamper_evident", True, "an encrypted queue of format beats")
        if not self.is_live:
            self.cut_end = power_cut.find(self, past.of(self))

    def _layout_by(self, newest: Header) -> str:
        """That of the newest segment. What a power cut left without a header are zeros, which look
        like layout 0: an encrypted queue would go on in plain text."""
        name = newest.kind.name
        if name != "0" or not past.of(self).is_stopped:
            return name
        known = self.noted().get("layout")
        others = (header.kind.name for header in self.readable(newest_first=True))
        return known if known in KINDS else next((one for one in others if one != "0"), name)

    def judge(
        self, info: SegmentInfo, segment: _core.Segment, last: int, seen: _core.Walked,
        verdict: Verdict,
    ) -> None:  # fmt: skip
        """Its frames, and that its header counts them, its stream is whole, its tags are theirs."""
        with suppress(FileNotFoundError):  # Read and freed meanwhile.
            checks.judge(self, info, segment, last, seen, verdict)

    def describe(self, info: SegmentInfo) -> SegmentInfo:
        """With the number of frames, where the header has it."""
        try:
            header = self.header_of(info.base >> POSITION_BITS)
            count = None if header is None else self.count_of(header)
        except FileNotFoundError:
            return info  # Another process has just deleted it; the next read raises.
        return replace(info, messages=count) if count else info

    def meta(self) -> dict[str, Any]:
        found = state.read(self.state_path)
        kinds = {header.number: header.kind.name for header in self.readable()}
        return {"state": None if found is None else asdict(found), "layouts": kinds}

    # ── the end ────────────────────────────────────────────────────────────────────────────

    def seen_end(self) -> int:
        """When a segment was last made or deleted."""
        return self.path.stat().st_mtime_ns

    def believed(self, seen: object) -> control.Words | None:
        """The shared words of a queue that a process has open; else the files say where it ends."""
        return self.live_words()

    def end_now(self) -> End | None:
        """Where the files end, while they are set right."""
        return self._find_end() if self.is_recovering else None

    def find_end(self, past: Past) -> End:
        """Where the last file ends. What a crash cut short stands before that, and is reported."""
        if self.store.shared is not None:  # A reader has looked when it opened the queue.
            self.is_recovering, self.past = True, past
            self.cut_end = power_cut.find(self, past)
        end = self._find_end()
        return replace(end, head=max(end.head, self._head_before(past, end.tail)))

    def _head_before(self, past: Past, tail: int) -> int:
        """The head when we left the queue: what every group had acked stays done, also where its
        segment stays, for what lies behind it or for its number. 0 where that can't be known."""
        words = past.words
        if words is None or past.is_stopped:
            return 0  # After a power cut acks may have gone that the head had followed.
        number, head = words.head >> POSITION_BITS, words.head
        if not segments.path_of(self.path, number).exists():
            return min(head, tail)  # It had no events: all that is there was acked.
        return head if head in self.frame_offsets(number, asked=head) else 0

    def _find_end(self) -> End:
        first = next(self.infos(None), None)
        last = next(self.infos(None, newest_first=True), None)
        if first is None or last is None:
            if segments.bare_layout(self.path) is None:
                raise NoQueueError(self.path)
            found = state.read(self.state_path)
            base = self.kind.base(found.segment if found is not None else 0)
            told = checks.unreadable(self, 0, briefly=True)
            return End(base, 0, base, base, 0, base, tuple(damage for damage, _ in told))
        assert last.end is not None
        # After a power cut such files are no part of the queue, and are told of as that.
        if self.cut_end is not None:
            dropped = self.cut_end.dropped
        else:
            dropped = [damage for damage, _ in checks.unreadable(self, 0, briefly=True)]
        return End(last.end, 0, last.base, first.first, 0, last.end, tuple(dropped))

    def base_limit(self, tail: int) -> int:
        """A roll moves the base to the next id, and then the tail."""
        return ((tail >> POSITION_BITS) + 2 << POSITION_BITS) - 1

    def missing_segments(self, head: int | None) -> list[Damage]:
        """By their ids, and by what we noted when we closed the queue."""
        lost = noted.missing(self, self.groups, past.of(self))
        return [one for one in lost if int(one.path.stem) >= (head or 0) >> POSITION_BITS]

    def unreadable_segments(self, start: int) -> list[tuple[Damage, bool]]:
        """Files whose header says nothing: readers pass over them."""
        return checks.unreadable(self, start, briefly=False)

    def torn_end(self, info: SegmentInfo, segment: _core.Segment) -> list[Damage]:
        """A frame that runs past the end of its file; segments are closed by counting them."""
        return checks.torn_end(self, info, segment)

    def recover(self, end: End, past: Past) -> End:
        """Closes what a crash left open, follows a Beat, and begins a new segment."""
        state.refuse_running(self.state_path)
        before = max(self._newest_used(), min(segments.find(self.path), default=0) - 1)
        if past.is_killed and past.words is not None and past.words.tail > past.words.segment_base:
            before = max(before, past.words.segment_base >> POSITION_BITS)  # Its file may be gone.
        if past.is_poisoned:
            power_cut.write_anew(self, past.durable)
        if self.cut_end is not None:
            power_cut.cut_off(self, self.cut_end)
            self.cut_end = None
        if past.is_stopped:
            # Names that the power cut took: nothing in them was promised to be durable.
            there = [number for number, _ in segments.listed(self.path)]
            inside = range(there[0], there[-1]) if there else range(0)
            noted.note_gaps(self, sorted({*inside} - {*there}))
        closing.drop_unfinished(self, past)
        was = past.words.segment_base >> POSITION_BITS if past.words is not None else -1
        self.store.dropped = (*self.store.dropped, *closing.close_after_crash(self, was))
        closing.mend_streams(self)
        closing.drop_empty(self)
        noted.identify(self)
        self.store.dropped = (*self.store.dropped, *self.groups.tidy())
        number = self._next_number(before)
        fresh = begin_file(self.sidecar, self.kind, synced=True)
        if self.kind.is_stream:
            # Its plain copy, without a frame; in a roll the core makes it.
            copy = plain_copies.path_of(self.sidecar, number)
            files.make_folder(copy.parent)
            _core.replace_file(copy, bytes(self.kind.header_bytes), synced=False)
        # A segment without frames is replaced, not gone on with: its IV may have been used.
        prepared.place(fresh, self.path / f"{number}.seg")
        if self.kind.is_stream:
            closing.name_plain(self, number)
        base = self.kind.base(number)
        self.own[base] = self._limit(0)
        self.first_number = base, 0
        self.is_recovering = False
        self.store.forget_segments()  # The new one may have the id of an empty one that went.
        return End(base, 0, base, max(next(self.readable()).base, end.head), 0, base, end.dropped)

    def _newest_used(self) -> int:
        """The id of the newest segment that has, or had, anything in it; -1 if there is none."""
        return next(reversed(self.segment_numbers()), -1)

    def _next_number(self, before: int) -> int:
        """The id after all that were ever used, also of segments that were set aside: no offset is
        given twice. Beats number so, too."""
        number = max(before, self._newest_used()) + 1
        found = state.read(self.state_path)
        is_ahead = found is not None and found.segment >= number
        if found is not None and is_ahead and self.groups.fault(DEFAULT_GROUP) is None:
            number = found.segment + (0 if found.is_start else 1)
        # Also behind one without events: the ids between it and the new one are not missing.
        newest = max((there for there, _ in segments.listed(self.path)), default=number)
        # And not before it: it is the head where all else was read. `state.dat` may be older.
        number = max(number, newest)
        if newest + 1 < number:
            noted.note_gaps(self, list(range(newest + 1, number)))
        return number

    def publisher(self) -> _core.Publish:
        """Frames are whole when they are written; streams get a block per batch."""
        mac_key = self.options.key if self.options.tamper_evident else None
        if not self.kind.is_stream:
            return _core.beats_publish(mac_key=mac_key)
        copies = plain_copies.folder_of(self.sidecar)
        return _core.beats_publish((self.path, copies, self.kind.header_bytes), mac_key=mac_key)

    # ── appending ──────────────────────────────────────────────────────────────────────────

    def before_roll(self, base: int, needed: int) -> None:
        """Waits until the queue may have another segment."""
        if self.options.max_bytes and not self._is_making_room():
            self._make_room(needed)

    def began(self, new: NewSegment, old_base: int, tail: int, number: int, needed: int) -> None:
        self.own[new.base] = max(self.options.segment_bytes, needed + self.kind.data_at)
        self.first_number = new.base, number
        if self.kind.is_stream:
            closing.name_plain(self, new.base >> POSITION_BITS)
        closing.close_segment(self, old_base, tail)

    def listed(self, new: NewSegment, needed: int) -> None:
        """The old segment has its final size: so much is left for this one."""
        self.own[new.base] = self._limit(needed)

    def prepare_segment(self, tail: int, number: int, needed: int) -> tuple[Path, NewSegment]:
        """A file with a header, and in encrypted layouts an IV that was never used."""
        if needed + self.kind.data_at > MAX_SEGMENT_BYTES:
            raise UnsupportedError(f"{needed} bytes do not fit into any segment")
        following = (self.store.need_shared().segment_base >> POSITION_BITS) + 1
        fresh = begin_file(self.sidecar, self.kind, synced=False)
        base = self.kind.base(following)
        count = closing.frame_count(self, tail, number)
        return fresh, NewSegment(self.path / f"{following}.seg", base, base, header=count)

    def _limit(self, needed: int) -> int:
        """How many bytes a new segment may get, its header included."""
        limit = self.options.segment_bytes
        if self.options.max_bytes:
            limit = min(limit, self.options.max_bytes - self._used(self.store.end()))
        return max(limit, needed + self.kind.data_at)

    def _used(self, end: End) -> int:
        infos, head = self.store.segments(), end.head
        # What is done with may be there still, or be gone: these are asked.
        return sum(files.size_of(info.path) for info in infos.below(head)) + infos.bytes_above(head)

    def used_bytes(self, end: End) -> int:
        """What `max_bytes` limits: the files, and the header of another one."""
        return self._used(end) + self.kind.data_at

    def _is_making_room(self) -> bool:
        return threading.get_ident() in self._making_room

    def _make_room(self, needed: int) -> None:
        """Waits until the queue may have another segment with `needed` bytes in it."""
        while self.used_bytes(self.store.end()) + needed > self.options.max_bytes:
            self._making_room.add(threading.get_ident())
            try:
                self.store.make_room(needed)
            finally:
                self._making_room.discard(threading.get_ident())

    def free_consumed(self, consumed: Consumed) -> bool:
        """Deletes segments that every group is done with; the head is the lowest cursor."""
        shared = self.store.shared
        if shared is None or consumed.lowest is None:
            return False
        lowest = consumed.limit(consumed.lowest)
        base, tail = shared.segment_base, shared.tail
        if self._is_making_room() and lowest >= tail > base:
            # Full of what is done with: only a new segment lets go of it.
            self.store.switch(base, 0)
        gone = self.store.trim(lowest)
        if shared.head < min(lowest, shared.tail):
            shared.set_head(min(lowest, shared.tail), 0)
        return bool(gone)

    def trim_limit(self, before: int) -> int:
        """The newest segment that has events stays while the one behind it has none: a Beat that
        finds no event numbers from 0 on, and then passes over what it writes itself."""
        shared = self.store.need_shared()
        if shared.tail == shared.segment_base and not self._is_making_room():
            firsts = [info.first for info in self.store.segments() if (info.end or 0) > info.first]
            return min([before, *firsts[-1:]])
        return before

    def as_stored(
        self, message: _core.Message, original: _core.Message, source: Format
    ) -> _core.Message:
        """With the event as it is encoded: texts that are not UTF-8, NaN and byte strings have no
        place in the JSON of a body."""
        if not isinstance(source, BeatsFormat) or original.offset is None:
            return message
        header = source.header(source.path_of(original.offset))
        if not isinstance(header, Header) or header.kind.encoding != self.kind.encoding:
            return message
        payload = base64.b64encode(original.payload).decode()
        return _core.Message(
            message.body, tag=message.tag, id=message.id, key=message.key,
            headers=message.headers | {"beats.payload": payload},
            timestamp_ns=message.timestamp_ns, due_ns=message.due_ns,
        )  # fmt: skip

    def bring_back(self, damaged: set[Path]) -> int:
        """Frames behind a broken block of a compressed stream go into a segment of their own."""
        return sum(rescue.bring_back(self, path) for path in sorted(damaged))

    def leave(self, shared: _core.Shared) -> None:
        """The last one out closes the open segment and remembers what `state.dat` says."""
        closing.close_segment(self, shared.segment_base, shared.tail, shared.next_number)
        closing.drop_empty(self)
        noted.remember(self, self.groups.leave(shared.segment_base))


def begin_file(sidecar: Path, kind: Kind, *, synced: bool) -> Path:
    """Prepares a segment without frames; in encrypted layouts it has a fresh IV."""
    head = kind.new_header
    if kind.is_encrypted:
        head += secrets.token_bytes(structs.IV_BYTES)
    return prepared.make(sidecar, len(head), head=head, synced=synced)
