"""A `penstock` queue, open: where it ends after an unclean end, and making its files agree.

Within one boot the shared words are the truth: no page is lost when a process dies. After a
restart of the machine only what lies below `durable` is known to be there. Everything above is
walked, segment by segment, up to the first frame that is not whole: later frames and segments may
have reached the disk before it, and a queue has no holes. They are set aside, not deleted.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from penstock import _core
from penstock.disk import files
from penstock.errors import CorruptError, NoQueueError
from penstock.formats import known_damage
from penstock.formats.contract import Format
from penstock.formats.past import Past, frames_end
from penstock.formats.penstock import segments, structs
from penstock.formats.penstock.queue_files import PenstockFiles
from penstock.formats.penstock.segments import Header
from penstock.formats.values import Capabilities, Damage, Encryption, End, SegmentInfo
from penstock.hints import ClassVar
from penstock.options import QueueOptions
from penstock.places import Path
from penstock.records import dataclass, replace
from penstock.sidecar import control, prepared, quarantine


@dataclass(slots=True)
class Walk:
    """How far the frames of one segment go."""

    info: SegmentInfo
    end: int
    number: int
    fault: Damage | None = None
    has_frames: bool = False


class PenstockFormat(PenstockFiles):
    """Describes our own format, and recovers a queue of it."""

    name: ClassVar[str] = "penstock"
    instead: ClassVar[str] = "put a reference to what is large"
    layouts: ClassVar[tuple[str, ...]] = ("1",)
    created: ClassVar[tuple[str, ...]] = layouts
    encryption: ClassVar[Encryption | None] = Encryption(32)
    capabilities: ClassVar[Capabilities] = Capabilities(keys=True, delays=True, checksums=True)
    refused: ClassVar[Mapping[str, str]] = {
        "tamper_evident": Format.refused["tamper_evident"],
        "checksums": "has a checksum in every frame",
    }
    inner_folders: ClassVar[tuple[str, ...]] = ("log",)
    makes_ahead: ClassVar[bool] = True

    @classmethod
    def sniff(cls, path: Path) -> str | None:
        """A folder `log` with at least one file that is named like a segment."""
        return "1" if path.is_dir() and any(segments.entries(path)) else None

    @classmethod
    def make(
        cls, path: Path, sidecar: Path, layout: str, options: QueueOptions, clock: _core.Clock
    ) -> None:
        """Makes the folder of segments, with a small one in it."""
        files.make_folder(path / "log")
        if segments.list_segments(path):
            return
        flags = structs.ENCRYPTED if options.key else 0
        flags |= structs.COMPRESSED if options.compression == "lz4" else 0
        size = segments.next_size(0, 0, segments.limit_of(options))
        fresh = prepared.fresh(sidecar)
        size = segments.make_file(fresh, size, 0)
        head = Header(os.urandom(16), 0, 0, flags, os.urandom(16), clock.wall_now_ns(), size)
        _core.write_file(fresh, 0, head.pack(options.key), synced=True)
        prepared.place(fresh, path / "log" / f"{0:020d}.seg")
        for folder in (path, path.parent):
            _core.sync_folder(folder)

    def find_end(self, past: Past) -> End:
        """From the words as far as the frames bear them out; after a power cut from the frames
        above `durable`."""
        # After an orderly close the list is still right, unless another process has rolled since.
        infos = self.store.segments(fresh=not past.is_closed)
        if not infos:
            raise NoQueueError(self.path)  # Another process has deleted it meanwhile.
        words, head = past.words, infos[0]
        is_named = words is not None and infos.at(words.segment_base) is not None
        if words is not None and not past.is_stopped and (is_named or past.is_closed):
            end = replace(End.by(words), next_number=words.last_number)
            if infos.at(words.head) is None:  # Its file is gone.
                end = replace(end, head=head.base, head_number=base_number(self, head))
            if not is_named:
                return without_last(self, infos[-1], end)
            return end if past.is_closed else end_by_frames(self, infos, end, words.reserved_end)
        last, dropped = walk_up(self, infos, past.durable, past_damage=words is None)
        # The word that closes a full segment looks like a frame where no segment follows it.
        before_last = last.end - len(structs.SEALED_WORD)
        if past.is_killed and words is not None and before_last <= words.segment_base < words.tail:
            return without_last(self, last.info, End.by(words))
        if last.end < past.durable and not dropped:
            at, lost = last.end - last.info.base + structs.HEADER_BYTES, past.durable - last.end
            expected = f"{lost} bytes of messages, which were synced"
            dropped = [Damage(last.info.path, at, lost, "an end", expected, last.end)]
        return End(
            last.end, last.number, last.info.base, head.base, base_number(self, head),
            min(past.durable, last.end), tuple(dropped),
        )  # fmt: skip

    def recover(self, end: End, past: Past) -> End:
        """Clears what was dropped and begins a new segment where the old must not go on."""
        later = [info for info in self.store.segments() if info.base > end.segment_base]
        for info in later:
            quarantine.move(self.sidecar, info.path, self.clock.wall_now_ns())
        if later:
            self.store.segments(fresh=True)
        if self.store.segments().at(end.segment_base) is None:
            fresh, new = self.prepare_segment(end.tail, end.next_number, 0, body=b"")
            _core.sync_file(fresh)
            prepared.place(fresh, new.path)
            return replace(end, durable=end.tail)
        if past.is_closed:
            return end
        words, poisoned = past.words, past.is_poisoned
        # Only processes died since the words were stored: frames may go on in place.
        is_here = words is not None and words.segment_base == end.segment_base
        is_plain = not self.is_encrypted and not lacks_any(self, end)
        if past.is_killed and words is not None and is_here and is_plain:
            return go_on(self, end, words)
        self.index.forget()
        make_durable(self, end, poisoned=poisoned)
        self.seal_quietly(self.store.segments())
        if self.is_encrypted or poisoned:
            return move_on(self, end, poisoned=poisoned)
        segment = live_segment(self, end)
        segment.scrub(end.tail)
        segment.sync()
        return replace(end, durable=end.tail)


def without_last(format: PenstockFiles, last: SegmentInfo, said: End) -> End:
    """The last segment's file is gone, though no page was lost since the words were stored. Its
    offsets are used up all the same: what is put next comes behind them."""
    base, lost = said.segment_base, said.tail - said.segment_base
    gone = Damage(format.path_of(base), 0, lost, "no file", f"{lost} bytes of messages", base)
    return replace(said, segment_base=max(said.tail, last.base), dropped=(gone,) if lost else ())


def end_by_frames(
    format: PenstockFiles, infos: Sequence[SegmentInfo], said: End, reserved: int
) -> End:
    """Where the queue ends after a kill, by the frames of the last segment that the words name and
    of those behind it: words that are older, or damaged, never cost a frame. A put that was whole
    at `reserved`, and not counted yet, stays."""
    # One without a frame is from a roll that was cut short, and counts for nothing.
    later = [info for info in infos if info.base > said.segment_base]
    last = next((info for info in reversed(later) if walk(format, info, 0).has_frames), None)
    is_named = last is None
    if last is None:
        last = next(info for info in infos if info.base == said.segment_base)
    segment, number = last_segment(format, replace(last, end=None))
    start, expected = (said.tail, said.next_number) if is_named else (last.base, None)
    tail, after = frames_end(segment, last.base, start, segments.last_possible(last), expected)
    if is_named and tail == said.tail:
        return said
    number = number if after is None else after
    end = replace(said, tail=tail, next_number=number, segment_base=last.base)
    if is_named and tail == reserved:
        return end
    fault = Damage(
        format.sidecar / "control", control.CONTROL.offset_of("tail"), 8, f"tail {said.tail}",
        f"{end.tail}, where the frames end",
    )  # fmt: skip
    return replace(end, durable=min(said.durable, end.tail), dropped=(fault,))


def walk_up(
    format: PenstockFiles, infos: Sequence[SegmentInfo], durable: int, *, past_damage: bool
) -> tuple[Walk, list[Damage]]:
    """From the segment that holds `durable` to the first one whose frames do not reach its end."""
    first = max((i for i, info in enumerate(infos) if info.base < durable), default=0)
    if past_damage:
        first = len(infos) - 1
    last: Walk | None = None
    for at, info in enumerate(infos[first:], first):
        if last is not None and is_unborn(info, durable):
            return last, [*aside(infos[at:], "a segment without header")]
        last = walk(format, info, durable, past_damage=past_damage)
        if info.end is not None and last.end < info.end and not past_damage:
            faults = [last.fault] if last.fault is not None else []
            return last, [*faults, *aside(infos[at + 1 :], "a segment behind a gap")]
    assert last is not None
    return last, [last.fault] if last.fault is not None else []


def aside(infos: Sequence[SegmentInfo], what: str) -> list[Damage]:
    """What is said about segments that do not count."""
    return [Damage(info.path, 0, info.size, what, "the frames before it") for info in infos]


def is_unborn(info: SegmentInfo, durable: int) -> bool:
    """A name whose header never reached the disk: nothing in it was ever promised."""
    return info.base >= durable and not segments.read_page(info.path).strip(b"\0")


def walk(
    format: PenstockFiles, info: SegmentInfo, durable: int, *, past_damage: bool = False
) -> Walk:
    """The frames of one segment that count."""
    segment, number = last_segment(format, replace(info, end=None))
    limit, start = segments.last_possible(info), info.base
    if info.base < durable <= limit and _core.is_boundary(segment, durable, limit):
        start = durable
    seen = _core.walk(segment, start, limit, past_damage=past_damage)
    fault = None
    if seen.stop in ("bad", "cut"):
        at, found, expected, length = seen.faults[-1]
        fault = Damage(info.path, at, length, found, expected)
    if seen.put_end < seen.end:
        # The frames of one put are there together, or not at all.
        at, length = segment.position(seen.put_end), seen.end - seen.put_end
        fault = fault or Damage(info.path, at, length, "a part of one put", "all its frames")
    after = seen.put_number
    if after is None and start > info.base:  # No frame above tells it.
        after = _core.walk(segment, info.base, start, past_damage=True).next_number
    return Walk(info, seen.put_end, number if after is None else after, fault, seen.frames > 0)


def last_segment(format: PenstockFiles, info: SegmentInfo) -> tuple[_core.Segment, int]:
    """Opens a segment to look for the end. A reader can do without the header, a writer can't."""
    try:
        return format.store.open_whole(info, writable=False), format.header_of(info).base_number
    except CorruptError:
        segment = None if format.is_live else format.rescue_segment(info)
        if segment is None:
            raise
        known_damage.mark(segment, format.store.set_aside)
        return segment, base_number(format, info)


def base_number(format: PenstockFiles, info: SegmentInfo) -> int:
    """The number of a segment's first message: from the header, or guessed."""
    try:
        return format.header_of(info).base_number
    except CorruptError:
        return format.guess_header(info).base_number


# ── making it so ───────────────────────────────────────────────────────────────────────────────


def lacks_any(format: PenstockFiles, end: End) -> bool:
    """Whether a segment that was not synced is shorter than its name and the next one's say: one in
    between is gone, and no sync could ever reach where it ended."""
    unsynced = [info for info in format.store.segments() if (info.end or 0) > end.durable]
    return any((info.end or 0) - info.base > info.size for info in unsynced)


def go_on(format: PenstockFiles, end: End, words: control.Words) -> End:
    """After the death of a process: no page is lost, and only what an appender had announced can
    be half written. What was not synced is synced as ever, by the next sync."""
    is_roll = words.reserved_end == control.ROLLING
    reserved = end.tail + 8 if is_roll else words.reserved_end
    if reserved > end.tail:
        live_segment(format, end).zero(end.tail, reserved)
    if is_roll:  # Others may have taken it for full, and sealed it.
        live_segment(format, end).store(structs.SUMMARY_AT, bytes(structs.SUMMARY.size))
    return end


def make_durable(format: PenstockFiles, end: End, *, poisoned: bool) -> None:
    """Syncs full segments above `durable`, and all names: they may not be on the disk yet."""
    for info in format.store.segments():
        if info.end is None or info.end <= end.durable:
            continue
        if poisoned:
            prepared.copy_anew(format.sidecar, info.path)
        else:
            _core.sync_file(info.path)
    _core.sync_folder(format.path / "log")


def live_segment(format: PenstockFiles, end: End) -> _core.Segment:
    """The segment that holds the tail, to write to."""
    return format.store.open_whole(format.store.live_segment(end.segment_base), writable=True)


def move_on(format: PenstockFiles, end: End, *, poisoned: bool) -> End:
    """A new segment: at the tail, or (after a failed sync) from the last synced offset on.

    Encrypted frames are bound to their segment, so those of an encrypted queue stay where they are
    and the whole file is copied. A segment that holds nothing yet is replaced: what a dead
    appender encrypted under this salt may be on the disk.
    """
    base, start = end.segment_base, end.tail
    segment = live_segment(format, end)
    if poisoned and format.is_encrypted and end.tail > base:
        content = segment.read(0, segment.position(end.tail))
        prepared.write_anew(format.sidecar, segment.path, content)
        segment = live_segment(format, end)
    elif poisoned:
        start = max(end.durable, base)
    kept = segment.read(segment.position(start), end.tail - start)
    number = end.next_number
    if start < end.tail:
        known = _core.walk(segment, base, start, past_damage=True).next_number
        if known is None:
            known = format.header_of(format.store.live_segment(base)).base_number
        number = known
    fresh, new = format.prepare_segment(start, number, len(kept), body=kept)
    _core.sync_file(fresh)
    if start != base:
        segment.scrub(start)
        segment.store(segment.position(start), structs.SEALED_WORD)
        segment.sync()
    prepared.place(fresh, new.path)
    return replace(end, segment_base=new.base, durable=end.tail)
