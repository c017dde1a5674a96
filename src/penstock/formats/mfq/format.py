"""An `mfq` queue, open: segments by name, the end by `producer.offset`.

    at offset o   a segment named o exists and o is not this segment's base: this one has ended
                  else producer.offset > o: a frame begins here

Nothing is ever decided by the byte 0xEE: lengths may begin with it. Programs that are not ours may
produce or consume beside us: their producer moves `producer.offset` and we follow, their consumer
moves `consumer.offset` and we take that for the default group's progress.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from penstock import _core
from penstock.disk import files
from penstock.errors import CorruptError, UnsupportedError
from penstock.formats import known_damage
from penstock.formats.contract import Format, OwnGroups
from penstock.formats.mfq import segments, structs
from penstock.formats.mfq.groups import MfqGroups
from penstock.formats.mfq.segments import CONSUMER, PRODUCER, read_offset, write_offset
from penstock.formats.past import Past, frames_end
from penstock.formats.values import Capabilities, Damage, End, NewSegment, SegmentInfo
from penstock.logs import logger
from penstock.options import DEFAULT_GROUP, Durability, QueueOptions
from penstock.records import replace
from penstock.sidecar import control, notes, prepared, quarantine, side_files

# The note `unchecked.json` is there while frames above `durable` may lack a checksum and be whole
# all the same: another program appends, or a writer of ours at `always`, who syncs frames at once
# and checksums now and then.


class MfqFormat(Format):
    """A store of MappedFileQueues.Stream, open."""

    name: ClassVar[str] = "mfq"
    instead: ClassVar[str] = (
        "format penstock holds it (`penstock convert`); a larger body fits into larger segments, "
        "of up to 16777215 bytes"
    )
    layouts: ClassVar[tuple[str, ...]] = ("1",)
    created: ClassVar[tuple[str, ...]] = layouts
    refused: ClassVar[Mapping[str, str]] = {
        **Format.refused,
        "retention_age_s": "keeps no times; retention_bytes limits a queue",
    }
    own_options: ClassVar[Mapping[str, str]] = {"segment_bytes": ""}
    capabilities: ClassVar[Capabilities] = Capabilities(
        tags=False, ids=False, headers=False, timestamps=False, numbers=False, empty_bodies=False
    )
    inner_folders: ClassVar[tuple[str, ...]] = (segments.LOG, segments.OFFSETS)
    makes_ahead: ClassVar[bool] = True
    closing = structs.SEGMENT_END
    tends_often: ClassVar[bool] = True

    identity: str = ""
    """A random id if we made the queue; else a fingerprint, which we note at our first opening."""
    segment_bytes: int
    """The size of every segment: that of those there are, else the option's."""

    @classmethod
    def sniff(cls, path: Path) -> str | None:
        """The two folders of the format, or our note that they are being made."""
        is_queue = (path / segments.LOG).is_dir() and (path / segments.OFFSETS).is_dir()
        known = None if is_queue else notes.read(path / ".penstock", notes.IDENTITY)
        return "1" if is_queue or (known and known.get("format") == cls.name) else None

    @classmethod
    def make(
        cls, path: Path, sidecar: Path, layout: str, options: QueueOptions, clock: _core.Clock
    ) -> None:
        """One segment of zeros, both offsets 0."""
        if segments.list_segments(path, sidecar):
            return
        # The note comes first: by it a queue is known that was made in part.
        notes.drop(sidecar, notes.IDENTITY)
        segments.keep_identity(sidecar, secrets.token_hex(16))
        for folder in (segments.LOG, segments.OFFSETS):
            files.make_folder(path / folder)
        for name in (PRODUCER, CONSUMER):
            write_offset(path, name, 0)
        segments.make_segment(path, sidecar, 0, options.segment_bytes)
        for changed in (path / segments.OFFSETS, path, path.parent):
            _core.sync_folder(changed)

    def load(self) -> None:
        """Checks names, sizes and that the offsets can be."""
        self.segment_bytes = self.options.segment_bytes
        self.groups: OwnGroups = MfqGroups(self.path, self.store)
        before = control.peek(self.sidecar)
        infos = self.store.segments(fresh=True)
        if infos:
            self.segment_bytes = infos[0].size
        self.identity = segments.identity_of(self.path, self.sidecar)
        # In this order: a consumer that follows its producer closely is never ahead of it.
        consumer, producer = (read_offset(self.path, name) for name in (CONSUMER, PRODUCER))
        is_made = not infos or segments.is_made(self.path, PRODUCER)
        if not is_made and not segments.is_unused(infos[0]):
            raise self._wrong(PRODUCER, "nothing", "8 bytes, the next offset to write")
        if producer > 0 and not infos:
            raise self._wrong(PRODUCER, f"offset {producer}", "0: there is no segment")
        words = control.peek(self.sidecar)
        # While we have it open, offsets lag behind: that of a put is stored by its sync.
        is_ours = any(w is not None and not w.is_clean for w in (before, words))
        if infos and producer < infos[0].base and not is_ours:
            least = f"at least {infos[0].base}, the head"
            raise self._wrong(PRODUCER, f"offset {producer}", least)
        if consumer > producer and not is_ours and self._said_end() < consumer:
            most = f"at most the producer's, {producer}"
            raise self._wrong(CONSUMER, f"offset {consumer}", most)

    def _wrong(self, name: str, found: str, expected: str) -> CorruptError:
        return CorruptError(segments.offset_path(self.path, name), 0, found, expected)

    # ── segments ───────────────────────────────────────────────────────────────────────────

    def list_segments(self) -> list[SegmentInfo]:
        return segments.list_segments(self.path, self.sidecar)

    def path_of(self, base: int) -> Path:
        return segments.segment_path(self.path, base)

    def open_segment(
        self, info: SegmentInfo, *, writable: bool, sided: bool = True
    ) -> _core.Segment:
        """Maps a segment, after a look at its size."""
        segments.check_size(info)
        frames = _core.mfq_frames(info.size)
        beside = self.side_files() if sided else {}
        return _core.Segment(
            info.path, info.base, 0, frames, end=info.end, writable=writable, **beside
        )

    def publisher(self) -> _core.Publish:
        if self.options.durability is Durability.ALWAYS:
            self._note_unchecked()
        return _core.producer_offset(segments.offset_path(self.path, PRODUCER))

    def meta(self) -> dict[str, Any]:
        return {
            "segment_size": self.segment_bytes,
            "producer_offset": read_offset(self.path, PRODUCER),
            "consumer_offset": read_offset(self.path, CONSUMER),
        }

    # ── the end ────────────────────────────────────────────────────────────────────────────

    def seen_end(self) -> int:
        """Where the queue ends by the format's own two words."""
        return self._said_end()

    def believed(self, seen: object) -> control.Words | None:
        """The shared words, unless another program has moved `producer.offset` since."""
        assert isinstance(seen, int)
        words = super().believed(seen)
        if words is None or words.is_poisoned or words.tail < seen:
            return None
        return words if not words.is_clean or words.tail == seen else None

    def end_now(self) -> None:
        self.refresh()

    def refresh(self) -> None:
        """Moves the tail if another program has moved `producer.offset`."""
        shared, publish = self.store.shared, self.store.publish
        if shared is None or publish is None or (publish.foreign_end or 0) <= shared.tail:
            return
        end = publish.foreign_end or 0
        infos = [info for info in self.list_segments() if info.base <= end]
        if shared.tail >= end:
            return  # It was a put of ours; others may have trimmed since.
        if not infos or end - infos[-1].base > infos[-1].size:
            raise self._wrong(PRODUCER, f"offset {end}", "one inside the newest segment")
        if shared.follow(end, infos[-1].base):
            self._note_unchecked()

    def _note_unchecked(self) -> None:
        if not self._has_noted and not notes.exists(self.sidecar, notes.UNCHECKED):
            notes.write(self.sidecar, notes.UNCHECKED, {})
        self._has_noted = True

    _has_noted: bool = False

    def is_foreign(self, words: control.Words) -> bool:
        """Whether `producer.offset` says what we never stored there. No program sets it back:
        what lies below our own is damage."""
        if words.is_clean:
            return self._said_end() != words.tail
        producer = read_offset(self.path, PRODUCER)
        return producer not in words.published and producer > min(words.published)

    def find_end(self, past: Past) -> End:
        """Walks the last segment up to `producer.offset`: the last whole frame is the end."""
        # After an orderly close the list is still right, unless another program went on.
        producer = self._producer(past)
        is_same = self.store.shared is not None and past.is_closed and not past.is_foreign
        infos = self.store.segments(fresh=not is_same)
        if not infos:
            return End(0, 0, 0, 0, 0, 0)
        durable = min(past.durable, producer)
        held = [info for info in infos if info.base <= producer]
        if not held:
            least = f"at least {infos[0].base}, the head"
            raise self._wrong(PRODUCER, f"offset {producer}", least)
        dropped = [
            Damage(info.path, 0, info.size, "a segment behind producer.offset", "none")
            for info in infos[len(held) :]
        ]
        dropped += self._lowered_producer(past)
        # What we never synced may be missing anywhere; of others' queues we walk the last segment.
        later = [i for i in held if past.is_stopped and (i.end or producer) > durable]
        for last in later or held[-1:]:
            end = producer if last is held[-1] or last.end is None else last.end
            segment, seen = self._walk(last, end, durable, past)
            if seen.end < end:
                break
        tail = seen.end
        if tail < producer:
            found, expected = f"{producer - tail} bytes that are no frames", "whole frames"
            if seen.faults:
                found, expected = seen.faults[-1][1], seen.faults[-1][2]
            at = segment.position(tail)
            dropped.append(Damage(last.path, at, producer - tail, found, expected, tail))
        rest = (last.base, held[0].base, 0, min(durable, tail), tuple(dropped))
        return End(tail, past.last_number, *rest)

    def _walk(
        self, info: SegmentInfo, end: int, durable: int, past: Past
    ) -> tuple[_core.Segment, _core.Walked]:
        """The frames of a segment up to `end`, from what was synced on."""
        last = info.base + info.size
        start = durable if info.base <= durable <= last else info.base
        # Where another program has gone on from our last word, it has written over frames that we
        # never published: what we noted of those says nothing about its own.
        whole, sided = replace(info, end=None), not past.is_foreign
        segment = self.open_segment(whole, writable=False, sided=sided)
        known_damage.mark(segment, self.store.set_aside)
        is_checked = past.is_stopped and not notes.exists(self.sidecar, notes.UNCHECKED)
        covered = is_checked and self.has_checksums(info.base)  # One without was never synced.
        last = min(end, last)
        if past.is_killed and frames_end(segment, info.base, end, last)[0] == end:
            start = end
        return segment, _core.walk(segment, start, last, covered=covered)

    def _producer(self, past: Past) -> int:
        """The format's own end, but never less than what was synced together with it.

        Nor less than what readers were shown: at `always` the word comes after the sync, and a
        process that is killed before that has lost nothing.
        """
        producer = read_offset(self.path, PRODUCER) if past.is_stopped else self._said_end()
        if past.words is None:
            return producer
        is_ours = past.is_killed and not past.is_foreign
        return max(producer, past.words.tail if is_ours else past.durable)

    def _lowered_producer(self, past: Past) -> list[Damage]:
        """A `producer.offset` below what we stored there, though no page was lost since."""
        words, producer = past.words, read_offset(self.path, PRODUCER)
        if words is None or not past.is_killed or producer >= min(words.published):
            return []
        path, expected = segments.offset_path(self.path, PRODUCER), min(words.published)
        return [Damage(path, 0, 8, f"offset {producer}", f"at least {expected}")]

    def _said_end(self) -> int:
        """`producer.offset`, or `consumer.offset` where whole frames lead on to that.

        A consumer never looks at the producer's word: what a producer wrote that was killed before
        it stored the word is a message to it, and once it was consumed there is no way back.
        """
        # In this order: a consumer that follows its producer closely is never ahead of it.
        consumer, producer = (read_offset(self.path, name) for name in (CONSUMER, PRODUCER))
        at = producer
        for info in self.list_segments() if consumer > producer else ():
            last = info.base + info.size if info.end is None else info.end
            if info.base <= at < last:
                whole = replace(info, end=None)
                segment = self.open_segment(whole, writable=False, sided=False)
                at = _core.walk(segment, at, min(consumer, last)).end
        return at if at == consumer else producer

    def recover(self, end: End, past: Past) -> End:
        """Sets both offsets to what is there, syncs what may not be on the disk."""
        for folder in (segments.LOG, segments.OFFSETS):
            files.make_folder(self.path / folder)
        segments.keep_identity(self.sidecar, self.identity)
        is_empty = True
        for entry in sorted(os.scandir(self.path / segments.LOG), key=lambda entry: entry.name):
            base = int(entry.name)
            # What begins below the durable offset was there, whole, when it was listed.
            if base > end.segment_base or (base >= end.durable and entry.stat().st_size == 0):
                quarantine.move(self.sidecar, Path(entry.path), self.clock.wall_now_ns())
                side_files.drop(self.sidecar, self.side_kinds(), base)
            else:
                is_empty = False
        if is_empty:
            segments.make_segment(self.path, self.sidecar, end.tail, self.segment_bytes)
        self.forget_passed_sides(past)
        self._set_back(PRODUCER, end)
        self._set_back(CONSUMER, end)
        if past.is_poisoned:
            for name in (PRODUCER, CONSUMER):
                prepared.copy_anew(self.sidecar, segments.offset_path(self.path, name))
        if past.is_closed:
            # Not after a crash: before `durable` is synced, a power cut brings the old one back.
            notes.drop(self.sidecar, notes.UNCHECKED)
        if past.is_closed and past.words is not None and past.words.tail == end.tail:
            return end
        self._make_durable(end, past)
        return replace(end, durable=end.tail)

    def _make_durable(self, end: End, past: Past) -> None:
        """Syncs what may not be on the disk; after a failed sync it is written anew before."""
        words = past.words
        is_ours_alone = words is not None and words.tail >= end.tail and not past.is_foreign
        for info in self.list_segments():
            if info.end is not None and info.end <= end.durable:
                continue
            if past.is_poisoned:
                prepared.copy_anew(self.sidecar, info.path)
            checksums = side_files.path_of(self.sidecar, "integrity", info.base)
            # A file of checksums that is made here, with none in it, would say after another power
            # cut that no frame of its segment was ever synced.
            is_open = info.end is None and checksums.exists()
            segment = self.store.open_whole(info, writable=is_open)
            if is_open:
                segment.recover_sides(end.tail, end.durable if is_ours_alone else 0)
            segment.sync()
        _core.sync_file(segments.offset_path(self.path, PRODUCER))
        _core.sync_folder(self.path / segments.LOG)

    def _set_back(self, name: str, end: End) -> None:
        found, tail = read_offset(self.path, name), end.tail
        if found > tail:
            logger("mfq").warning("%s: %s set back from %d to %d, the last whole frame's end",
                        self.path, name, found, tail)  # fmt: skip
        if found > tail or not segments.is_made(self.path, name):
            write_offset(self.path, name, min(found, tail))
        elif found < tail and name == PRODUCER:
            if found < end.durable:
                logger("mfq").warning("%s: %s says %d, the queue was synced up to %d; corrected",
                            self.path, name, found, tail)  # fmt: skip
            write_offset(self.path, name, tail)

    # ── rolling and keeping ────────────────────────────────────────────────────────────────

    def before_roll(self, base: int, needed: int) -> None:
        """Refuses what no segment can hold, not even an empty one."""
        # By the base that was asked for: what another process has begun since is empty, too.
        if needed > self.segment_bytes or self.store.need_shared().tail == base:
            raise UnsupportedError(
                f"{needed} bytes do not fit into a segment of {self.segment_bytes}; "
                f"format mfq holds no message or batch that is larger than a segment, penstock does"
            )

    def prepare_segment(self, tail: int, number: int, needed: int) -> tuple[Path, NewSegment]:
        """The next file, named by the tail; 0xEE ends the old one if six bytes are left."""
        base = self.store.need_shared().segment_base
        ready = prepared.take_ready(self.sidecar, lambda size: size == self.segment_bytes)
        fresh = ready[0] if ready is not None else prepared.make(self.sidecar, self.segment_bytes)
        left = base + self.segment_bytes - tail
        closing = structs.SEGMENT_END if left >= structs.SMALLEST_FRAME_BYTES else b""
        path = segments.segment_path(self.path, tail)
        return fresh, NewSegment(path, tail, tail, closing, self.segment_bytes)

    def tend(self) -> None:
        progress = read_offset(self.path, CONSUMER)
        if self.store.shared is not None and progress != self._synced_progress:
            _core.sync_file(segments.offset_path(self.path, CONSUMER))
            self._synced_progress = progress

    def leave(self, shared: _core.Shared) -> None:
        """Syncs the group's bookmark: a clean control block must find the one that it left."""
        if segments.is_made(self.path, CONSUMER):
            _core.sync_file(segments.offset_path(self.path, CONSUMER))

    def make_next(self, path: Path, last_bytes: int, *, is_quick: bool) -> None:
        size = self.segment_bytes
        zeroed = prepared.BEGINNING_BYTES if is_quick else size
        prepared.make_fitting(path, size, size, size, zeroed=zeroed, synced=True)

    _synced_progress: int = -1

    def contradictions(self, start: int = 0) -> list[Damage]:
        """A producer's offset that is behind, and a consumer's one that is none of a message."""
        found = [fault for fault in [self.groups.fault(DEFAULT_GROUP)] if fault is not None]
        end, producer = self.store.end(), read_offset(self.path, PRODUCER)
        if producer < end.durable:
            path, text = segments.offset_path(self.path, PRODUCER), f"offset {producer}"
            expected = f"at least {end.durable}, up to which the queue was synced"
            found.append(Damage(path, 0, 8, text, expected))
        return found
