"""The `vqs` format: a ring in a file, its settings in the header, everything else beside it."""

from __future__ import annotations

import os
import resource
import threading
import weakref
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from penstock import _core
from penstock.disk import files
from penstock.errors import CorruptError, FormatError, StorageError
from penstock.formats import past
from penstock.formats.contract import Format
from penstock.formats.past import Past
from penstock.formats.values import Capabilities, Consumed, Damage, End, NewSegment, SegmentInfo
from penstock.formats.vqs import extent, header, resize, settings, structs
from penstock.formats.vqs.ages import Ages
from penstock.formats.vqs.extent import Extent
from penstock.formats.vqs.groups import VqsGroups
from penstock.formats.vqs.header import Header
from penstock.formats.vqs.structs import PAGE_BYTES, STAGES
from penstock.options import Durability, QueueOptions
from penstock.records import replace
from penstock.sidecar import control, notes, opening, prepared, side_files

MAX_COPY_BYTES = 1 << 30
SHOWN, SHOWN_SLOTS, USER_WORDS = 3, 4, 9
"""Words of the format's own in the control block (`VqsHeader`): which of two slots says what the
header shows as its first message, the slots, offset and number, and how many words there are."""
BASE = 0
"""The only segment begins at offset 0, whatever lap the ring is in."""


class VqsFormat(Format):
    """The ring of one VQS queue, with its header and its settings."""

    given: QueueOptions
    options: QueueOptions
    ages: Ages
    ring_bytes: int

    name: ClassVar[str] = "vqs"
    layouts: ClassVar[tuple[str, ...]] = tuple(STAGES)
    created: ClassVar[tuple[str, ...]] = tuple(n for n, s in STAGES.items() if s.is_written)
    is_file: ClassVar[frozenset[str]] = frozenset(n for n, s in STAGES.items() if not s.data)
    refused: ClassVar[Mapping[str, str]] = {
        **Format.refused,
        "segment_bytes": "has one ring of max_bytes",
        "retention_bytes": "has one ring of max_bytes",
    }
    own_options: ClassVar[Mapping[str, str]] = {
        "max_bytes": "", "max_message_bytes": "max_message_size", "delay_s": "delay_seconds",
        "retention_age_s": "retention_period",
    }  # fmt: skip
    tends_often: ClassVar[bool] = True
    capabilities: ClassVar[Capabilities] = Capabilities(
        tags=False, timestamps=False, numbers=False, deletes_consumed=True, ring=True
    )

    groups: VqsGroups
    header: Header
    vqs: _core.VqsHeader | None = None
    generation: int = -1
    """Which generation of the settings and of the file this process has read."""

    @classmethod
    def sniff(cls, path: Path) -> str | None:
        """A file that begins with the magic, or a folder with the files of a later stage."""
        return header.sniff(path)

    @classmethod
    def make(
        cls, path: Path, sidecar: Path, layout: str, options: QueueOptions, clock: _core.Clock
    ) -> None:
        """An empty ring, as large as `max_bytes` says, else 128 MiB with its header."""
        stage = STAGES[layout]
        if not stage.data_path(path).exists():
            settings.create_files(path, sidecar, stage, options)
        notes.drop(sidecar, notes.RING_MAKING)

    def load(self) -> None:
        """Reads header, settings and labels; the words are checked when the end is looked for."""
        self.stage = stage = STAGES[self.layout]
        if self.is_live and not stage.is_written:
            advice = "open it with read_only=True, or convert it to layout doc or stage4"
            raise FormatError(self.path, f"layout {stage.name} is only read", advice)
        if self.is_live and notes.exists(self.sidecar, notes.RING_MAKING):
            known = (self.path, self.sidecar, self.layout, self.options, self.clock)
            opening.visit(self.path, self.sidecar, lambda _: self.make(*known))
        self.given = self.options
        self._turn = threading.RLock()
        """Held by the thread that takes over what another process changed."""
        self.groups = VqsGroups(weakref.proxy(self))
        self.ages = Ages(self.sidecar)
        self._read_header()
        if -(-self.given.max_bytes // PAGE_BYTES) * PAGE_BYTES == self.ring_bytes:
            self.given = replace(self.given, max_bytes=0)  # The whole ring, also after a resize.
        if self.is_live and self.ring_bytes % PAGE_BYTES:
            found = f"the ring has {self.ring_bytes} bytes, no multiple of {PAGE_BYTES}"
            raise FormatError(self.path, found, "convert the queue, or open it with read_only=True")
        if control.peek(self.sidecar) is None:
            self._check_offsets()
            if self.is_live:
                self._end_of_header(None)  # Refused before anything is made beside it.

    def _read_header(self) -> None:
        raw = settings.pending(self.sidecar, self.stage, header.read_bytes(self.path, self.stage))
        self.header = header.parse(self.path, self.stage, raw)
        size = self.stage.data_path(self.path).stat().st_size
        self.ring_bytes = size - self.stage.start
        if self.ring_bytes <= 0 or size > structs.MAX_FILE_BYTES + PAGE_BYTES:
            raise CorruptError(self.data_path, size, f"a file of {size} bytes", "room for a ring")
        self.options = settings.effective(self.given, self.header, self.ring_bytes)
        self.store.follow_options()

    @property
    def data_path(self) -> Path:
        return self.stage.data_path(self.path)

    @property
    def identity(self) -> str:
        """A random id, noted when we first write to the queue; until then that of its file."""
        found = notes.read(self.sidecar, notes.IDENTITY) or {}
        if isinstance(found.get("identity"), str):
            return str(found["identity"])
        stat = self.data_path.stat()
        return f"{stat.st_dev:x}-{stat.st_ino:x}"

    # ── the segment ────────────────────────────────────────────────────────────────────────

    def list_segments(self) -> list[SegmentInfo]:
        return [SegmentInfo(self.data_path, BASE, 0, None, self.data_path.stat().st_size)]

    def path_of(self, base: int) -> Path:
        return self.data_path

    def open_segment(self, info: SegmentInfo, *, writable: bool) -> _core.Segment:
        """Maps the ring, with its start again behind its end."""
        if writable and self.store.shared is not None:
            return self._ring(0, writable=True, watched=True)
        before = past.of(self)
        is_known = before.words is not None and not before.is_stopped
        return self._ring(self.store.end().head, writable=False, watched=is_known)

    def _ring(
        self, first: int, *, writable: bool, watched: bool, sided: bool = True
    ) -> _core.Segment:
        frames = _core.vqs_frames(gzip=self.stage.is_gzip)
        ring = self.data_path.stat().st_size - self.stage.start
        if ring % PAGE_BYTES:
            return self._copied(frames, first)
        return _core.Segment(
            self.data_path, BASE, self.stage.start, frames, first=first, writable=writable,
            ring=True, side_span=structs.SIDE_SPAN,
            control=self.sidecar / "control" if watched else None,
            **(self.side_files() if sided else {}),
        )  # fmt: skip

    def _copied(self, frames: _core.Frames, first: int) -> _core.Segment:
        """A ring that can't be mapped twice, laid out straight in memory."""
        if self.ring_bytes > MAX_COPY_BYTES:
            found = f"a ring of {self.ring_bytes} bytes, no multiple of {PAGE_BYTES}"
            raise FormatError(self.path, found, "rings of this kind are read up to 1 GiB")
        raw = files.read_bytes(self.data_path)[self.stage.start :]
        turn = first % self.ring_bytes
        straight = raw[turn:] + raw[:turn]
        return _core.Segment.over(self.data_path, BASE, 0, frames, straight, at=first, first=first)

    def refresh(self) -> None:
        """Reads settings and ring again after another process has changed or replaced them."""
        self.store.forget_stale(BASE)
        shared = self.store.shared
        generation = shared.generation if shared is not None else 0
        if generation == self.generation:
            return
        with self._turn:
            self.store.forget_segments()
            self._read_header()
            # Set last: until then other threads read them too, and do not go on with the old ones.
            self.generation = generation

    def publisher(self) -> _core.Publish:
        """The four words of the header."""
        self.vqs = _core.VqsHeader(
            self.store.need_shared(), self.sidecar / notes.RING_EXTENT,
            always=self.options.durability is Durability.ALWAYS,
            meta=self.path / self.stage.meta if self.stage.meta else None,
        )  # fmt: skip
        return self.vqs.publish()

    def let_go(self) -> None:
        self.vqs = None

    def prepare_segment(self, tail: int, number: int, needed: int) -> tuple[Path, NewSegment]:
        """Raises: a ring is never followed by another."""
        raise StorageError(self.path, "a ring has one segment; resize it")

    # ── the end ────────────────────────────────────────────────────────────────────────────

    def _position(self, offset: int) -> int:
        return self.stage.start + offset % self.ring_bytes

    def _words(self, end: End | control.Words) -> dict[str, int]:
        head, number = end.head, end.head_number
        if isinstance(end, control.Words):
            head, number = self._shown_heads(end)[0]
        return {
            "capacity_left": self.ring_bytes - (end.tail - head),
            "count": end.next_number - number,
            "read_offset": self._position(head),
            "write_offset": self._position(end.tail),
        }

    def _shown_heads(self, words: control.Words) -> list[tuple[int, int]]:
        """Offset and number of the first message that the header shows by our words, and what else
        we may have stored there last: where acks are shown it is ahead of the head."""
        which, slots = words.user[SHOWN] & 1, words.user[SHOWN_SLOTS:]
        found = [(slots[at], slots[at + 1]) for at in (2 * which, 2 - 2 * which)]
        return [*(slot for slot in found if words.head <= slot[0] <= words.tail),
                (words.head, words.head_number)]  # fmt: skip

    def seen_end(self) -> dict[str, int]:
        return header.read_words(self.path, self.stage)

    def believed(self, seen: object) -> control.Words | None:
        """The shared words, unless another program has changed the header since we left it."""
        if seen != self.header.words:
            self._read_header()  # Another process has had the queue open since we looked.
        return super().believed(seen)

    def is_foreign(self, words: control.Words) -> bool:
        """Whether the header says what we never stored there."""
        found = header.read_words(self.path, self.stage)
        if words.is_clean:
            return self._words(words) != found
        if not self._is_sound(found):
            return False  # A killed process left it torn: it is made anew.
        heads = [words.next_head, *(head for head, _ in self._shown_heads(words))]
        begins = {self._position(head) for head in heads}
        ends = {self._position(end) for end in words.published}
        return found["read_offset"] not in begins or found["write_offset"] not in ends

    def _is_sound(self, words: dict[str, int]) -> bool:
        """Whether the header's words fit together: any program that is done leaves them so."""
        positions = [words[name] - self.stage.start for name in ("read_offset", "write_offset")]
        used = self.ring_bytes - words["capacity_left"]
        is_inside = all(0 <= position <= self.ring_bytes for position in positions)
        return is_inside and (positions[1] - positions[0] - used) % self.ring_bytes == 0

    def find_end(self, past: Past) -> End:
        """From the control block while it can be trusted, after a power loss from the extent.

        Without either it comes from the header, which must then agree with the records.
        """
        known, last = past.words, extent.read(self.sidecar)
        if last is not None and last.end.tail - last.end.head > self.ring_bytes:
            last = None
        if known is None:
            is_ours = last is not None and self._words(last.end) == self.header.words
            return self._end_of_extent(last) if last and is_ours else self._end_of_header(None)
        # What was noted later than the words were stored is newer: the control block is an older
        # one, though the machine was not restarted.
        is_older = last is not None and known.tail < last.end.tail and not known.is_clean
        if not past.is_stopped and not is_older:
            if past.is_foreign:
                return self._end_of_header(known)
            known = self._with_head_shown(known)
            tail, number = self._shown(known)
            return End(tail, number, BASE, known.head, known.head_number, min(known.durable, tail))
        if last is None:
            return self._end_of_header(known)
        end = self._end_of_extent(last)
        lost, most = known.tail - end.tail, end.head + self.ring_bytes
        if not 0 < lost <= most - end.tail:
            return end
        found, at = f"{lost} bytes that were not synced", self._position(end.tail)
        return replace(end, dropped=(Damage(self.data_path, at, lost, found, "whole records"),))

    def _with_head_shown(self, known: control.Words) -> control.Words:
        """The words with the head that the header shows: what is done there is done."""
        heads, at = self._shown_heads(known), self.header.words["read_offset"]
        head, number = next((h for h in heads if self._position(h[0]) == at), heads[0])
        return replace(known, head=head, head_number=number)

    def _shown(self, known: control.Words) -> tuple[int, int]:
        """Tail and next number after a kill, by the words and the header, both of them ours.

        At `always` the header comes after the sync, and a process that is killed before that has
        lost nothing; a put that was cut short after it had stored the header was whole. So the
        later one counts, if records lead to it.
        """
        found, said = self.header.words, (known.tail, known.last_number)
        if not self._is_sound(found) or self._position(known.head) != found["read_offset"]:
            return said
        end = known.head + self.ring_bytes - found["capacity_left"]
        stored = end, known.head_number + found["count"]
        if end == known.tail:
            return stored
        segment = self._ring(known.head, writable=False, watched=False)
        first, last = (end, known.tail) if end < known.tail else (known.head, end)
        is_inside = last - known.head <= self.ring_bytes
        is_led = is_inside and _core.walk(segment, first, last, past_damage=True).end == last
        return said if is_led == (last == known.tail) else stored

    def _end_of_extent(self, last: Extent) -> End:
        """What was synced, and what came after it as far as its checksums hold.

        At `always` every put that returned was synced, and more would be half a list.
        """
        end = last.end
        if last.is_exact:
            return end
        segment = self._ring(end.head, writable=False, watched=False)
        seen = _core.walk(segment, end.tail, end.head + self.ring_bytes, covered=True)
        return replace(end, tail=seen.end, next_number=end.next_number + seen.messages)

    def _check_offsets(self) -> None:
        end = self.stage.start + self.ring_bytes
        for name in ("read_offset", "write_offset"):
            value = self.header.values[name]
            if not self.stage.start <= value <= end:
                at = self.stage.header.offset_of(name)
                path = self.stage.header_path(self.path)
                found = f"{name} {value}, outside the ring"
                raise CorruptError(path, at, found, f"{self.stage.start} to {end}")

    def _end_of_header(self, known: control.Words | None) -> End:
        """What the header says, walked record by record."""
        self._check_offsets()
        ring, start, words = self.ring_bytes, self.stage.start, self.header.words
        head = (words["read_offset"] - start) % ring
        used = (words["write_offset"] - words["read_offset"]) % ring
        used = ring if used == 0 and words["count"] else used
        path, at = self.stage.header_path(self.path), self.stage.header.offset_of
        if words["capacity_left"] != ring - used:
            found = f"capacity {words['capacity_left']} does not match the offsets"
            raise CorruptError(path, at("capacity_left"), found, f"{ring - used}")
        if known is not None:  # Offsets are never used twice.
            head += -(-(max(known.tail, head) - head) // ring) * ring
        segment = self._ring(head, writable=False, watched=False, sided=False)
        seen = _core.walk(segment, head, head + used)
        if seen.end != head + used:
            byte, found, expected, _ = seen.faults[-1]
            raise CorruptError(self.data_path, byte, f"no record: {found}", expected)
        if seen.messages != words["count"]:
            found = f"count {words['count']}: the records run out"
            raise CorruptError(path, at("count"), found, f"{seen.messages}, the records there are")
        number = known.next_number if known is not None else 0
        return End(head + used, number + seen.messages, BASE, head, number, head)

    def recover(self, end: End, past: Past) -> End:
        settings.finish(self.path, self.sidecar, self.stage)
        settings.remember(self.sidecar, self.layout, self.identity)
        if past.is_poisoned:
            for path in {self.data_path, self.stage.header_path(self.path)}:
                prepared.copy_anew(self.sidecar, path)
        segment = self._ring(end.head, writable=True, watched=False)
        if not past.is_closed:
            segment.recover_sides(end.tail, end.durable)
        for index in range(USER_WORDS):
            self.store.need_shared().set_user_word(index, 0)
        words = self._words(end)
        if words != self.header.words:
            raw = b"".join(words[name].to_bytes(4, "little") for name in structs.WORDS)
            _core.write_file(self.stage.header_path(self.path), structs.WORDS_AT, raw, synced=True)
        segment.sync()
        noted = extent.read(self.sidecar)
        sequence = noted.sequence + 2 if noted is not None else 1
        is_exact = self.options.durability is Durability.ALWAYS
        size = self.ring_bytes + self.stage.start
        extent.write(self.sidecar, Extent(sequence, end, is_exact), words, size)
        return replace(end, durable=end.tail)

    def leave(self, shared: _core.Shared) -> None:
        """Syncs the header: a control block that is clean must find the header that it left."""
        _core.sync_file(self.stage.header_path(self.path))

    # ── consuming ──────────────────────────────────────────────────────────────────────────

    def free_consumed(self, consumed: Consumed) -> bool:
        """The head moves to the lowest cursor, or past what is older than the retention period."""
        shared = self.store.need_shared()
        head = consumed.limit(max(consumed.lowest or 0, self._expired(shared.tail)))
        if head <= shared.head:
            return False
        if self.options.durability is not Durability.PROCESS:
            consumed.sync()  # An ack must not be lost when what it acked is overwritten.
        return self._free(head) > 0

    def _expired(self, tail: int) -> int:
        period = self.options.retention_age_s
        if not period or self.options.retain_unread:
            return 0
        now = self.store.need_shared().steady_wall_ns(self.clock)
        expired = self.ages.expired(now, period)
        self.ages.note(now, tail, period)
        return min(expired, tail)

    def _free(self, head: int, since: int | None = None) -> int:
        if self.vqs is None:
            return 0
        is_synced = self.options.durability is not Durability.PROCESS
        freed = self.vqs.free(self.store.segment_at(head), head, is_synced, since)
        if freed:
            self.ages.forget(head)
            side_files.trim(self.sidecar, head)
        return freed

    def before_roll(self, base: int, needed: int) -> None:
        """Frees the oldest messages, read or not."""
        end = self.store.end()
        segment, head = self.store.segment_at(end.head), end.head
        wanted = min(end.tail + needed - self.options.max_bytes, end.tail)
        while needed and head < wanted:
            length = segment.read(segment.position(head), 4)
            head = min(head + 4 + int.from_bytes(length, "little"), end.tail)
        if head > end.head:
            # Unless another process has moved the head: then the lengths above may be of other
            # messages.
            self._free(head, since=end.head)

    def resize(self, size: int) -> None:
        """Gives the file another size, in whole pages, while it is in use."""
        ring, shared = resize.ring_bytes(self.stage, size), self.store.need_shared()
        while not shared.alone(lambda: self._resize(ring)):
            continue
        self.refresh()
        shared.signal()

    def _resize(self, ring: int) -> bool:
        """Makes the new file and puts it in the place of this one. False: that was replaced."""
        settings.finish(self.path, self.sidecar, self.stage)  # What a process that died had begun.
        self.refresh()
        end, stage = self.store.end(), self.stage
        resize.check(stage, end.tail - end.head, ring)
        segment = self.store.segment_at(self.store.need_shared().head)
        head = b"" if stage.meta else header.read_bytes(self.path, stage)
        fresh = prepared.make(self.sidecar, stage.start + ring, head=head, suffix=".bin")
        assert self.vqs is not None
        try:
            resize.copy_ring(segment, fresh, stage.start, ring, end)
            is_done, used = self.vqs.replace(segment, fresh, ring, end.tail)
        finally:
            prepared.drop(fresh)  # It has its place by now, or no use.
        if not is_done:
            resize.check(stage, used, ring)
        return is_done

    # ── settings ───────────────────────────────────────────────────────────────────────────

    def meta(self) -> dict[str, Any]:
        """Settings, labels, and how the ring and its pages are doing."""
        self.refresh()
        if self.store.shared is None:
            self._read_header()
        words = None if self.store.shared is None else control.peek(self.sidecar)
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return {
            **self.header.settings,
            **(self.header.words if words is None else self._words(words)),
            "labels": self.header.texts(),
            "ring_bytes": self.ring_bytes,
            "file_bytes": self.ring_bytes + self.stage.start,
            "disk_bytes": files.disk_bytes(self.data_path),
            "page_bytes": os.sysconf("SC_PAGE_SIZE"),
            "page_faults": {"minor": usage.ru_minflt, "major": usage.ru_majflt},
        }

    def set_meta(self, **values: Any) -> None:
        """Changes settings and labels in the file, for every process."""
        shared = self.store.need_shared()
        shared.alone(partial(settings.change, self.path, self.sidecar, self.stage, values))
        shared.bump_generation()
        self.refresh()
        shared.signal()

    def tend(self) -> None:
        """Takes over what another process changed, also where acks are shown."""
        self.refresh()
        self.groups.follow()
