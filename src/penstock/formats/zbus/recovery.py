"""Where a zbus queue ends, what a crash can have done to that, and how it is set right.

The index says where every block ends; frames are the truth. On opening, the last block is walked
up to its end word: what is no frame there is dropped and reported, the count follows from the last
frame, bytes behind the end stay where they are until they are written over. A block that was
counted and never entered is taken back, a block whose file is gone is reported, never made anew.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Protocol

from penstock import _core
from penstock.disk import files
from penstock.formats.contract import Host
from penstock.formats.past import Past, frames_end
from penstock.formats.values import Damage, End, SegmentInfo
from penstock.formats.zbus import readers
from penstock.formats.zbus.index import NS_PER_MS, Block, Index, block_path
from penstock.formats.zbus.sniffing import Found
from penstock.formats.zbus.structs import ZbusLayout
from penstock.records import replace
from penstock.sidecar import control, prepared, quarantine

CHUNK = 1 << 20


class Files(Protocol):
    """What recovery asks of a zbus queue: its place, its layout, its index and its blocks."""

    store: Host
    path: Path
    sidecar: Path
    clock: _core.Clock
    found: Found
    table: ZbusLayout
    index_path: Path

    def index(self) -> Index: ...
    def has_checksums(self, base: int) -> bool: ...
    def number_of(self, block: Block) -> int | None: ...
    def open_segment(
        self, info: SegmentInfo, *, writable: bool, sided: bool = True
    ) -> _core.Segment: ...
    def forget_passed_sides(self, past: Past) -> None: ...


def born(found: Index) -> tuple[Block, ...]:
    """The blocks without those at the end that were counted before their entry was written. There
    is always a first one, though it may not have begun yet."""
    blocks = found.blocks or (Block(found.start, 0, 0, 0, 0, found.path.parent),)
    while len(blocks) > 1 and blocks[-1].is_unborn:
        blocks = blocks[:-1]
    return blocks


def fingerprint(found: Index) -> str:
    """Tells a queue that we did not make from another one at the same path."""
    created = found.header.get("created_ms") or (found.blocks[0].created_ms if found.blocks else 0)
    return f"zbus-{found.layout.name}-{created:x}"


# ── finding the end ────────────────────────────────────────────────────────────────────────


def is_foreign(format: Files, words: control.Words) -> bool:
    """Whether a zbus program has written since we stored `words`. Beginning a block we may have got
    as far as its entry."""
    blocks = born(format.index())
    last = blocks[-1]
    if words.is_clean:
        return (last.base, last.tail) != (words.segment_base, words.tail)
    if last.base != words.segment_base and last.end:
        return True
    return last.tail not in words.published


def find_end(format: Files, past: Past) -> End:
    """What the index says, as far as frames bear it out. Changes nothing."""
    found, known = format.index(), past.words
    blocks = born(found)
    is_shown = _is_shown(past, blocks[-1])
    if is_shown and known is not None:
        blocks = (*blocks[:-1], replace(blocks[-1], end=known.tail - blocks[-1].base))
    dropped = [
        Damage(found.path, block.slot_at, 28, "an entry of zeros", "a block")
        for block in found.blocks[len(blocks) :]
    ]
    if past.is_stopped:
        whole = _whole_blocks(format, blocks, past.durable)
        if len(whole) < len(blocks):
            text = "a block behind one that is not whole"
            lost = blocks[len(whole) :]
            dropped += [Damage(block.path, 0, block.end, text, "nothing") for block in lost]
            blocks = whole
    last, head = blocks[-1], blocks[0].base
    path, said = last.path, last.tail
    size = files.size_of(path)
    is_left = past.is_closed and not past.is_foreign and not dropped
    if known is not None and is_left and size >= last.end:
        return replace(_end_of(format, blocks, said, known.next_number), durable=known.durable)
    if last.end and not path.exists():
        dropped.append(Damage(path, 0, last.end, "no file", f"a block of {last.end} bytes"))
        number = found.message_count + format.found.first_number
        head_number = _head_number(format, blocks, number)
        return End(said, number, said, head, head_number, min(past.durable, said), tuple(dropped))
    tail, number = said, found.message_count + format.found.first_number
    if last.end:
        tail, counted, fault = _walk(format, last, size, past)
        number = number if counted is None else counted
        if fault is not None:
            dropped.append(replace(fault, path=path, length=said - tail))
    if tail == last.base:
        number = _number_before(format, blocks[:-1], number)
    count = number - format.found.first_number
    if count != found.message_count and not is_shown:
        at = format.table.index.offset_of("message_count")
        text = f"{count}, by the last frame"
        dropped.append(Damage(found.path, at, 8, f"message count {found.message_count}", text))
    stray = _stray(path, last.end, size)
    if stray:
        dropped.append(Damage(path, last.end, stray, "stray bytes after the end", "nothing"))
    end = _end_of(format, blocks, tail, number)
    return replace(end, durable=min(past.durable, tail), dropped=tuple(dropped))


def _walk(
    format: Files, last: Block, size: int, past: Past
) -> tuple[int, int | None, Damage | None]:
    """Tail, next number and the fault that ended it before the index said."""
    segment = format.open_segment(last.info(None), writable=False, sided=not past.is_foreign)
    limit = last.base + min(last.end, size)
    if past.is_killed:
        reached = frames_end(segment, last.base, last.tail, limit)
        if reached.is_as_said:
            return reached.end, reached.next_number, None
    durable = past.durable
    start = durable if last.base < durable <= limit else last.base
    # What was synced may be damaged, but it is not where the queue ends.
    before = _core.walk(segment, last.base, start, past_damage=True)
    covered = past.is_stopped and format.has_checksums(last.base)
    is_new = past.words is None
    seen = _core.walk(segment, start, limit, past_damage=is_new, covered=covered)
    number = seen.next_number if seen.next_number is not None else before.next_number
    if seen.end == last.tail:
        return seen.end, number, None
    at, found, expected, _ = seen.faults[-1] if seen.stop else (seen.end - last.base, "", "", 0)
    if size < last.end and not found:
        found, expected = f"the end of the file at {size}", f"{last.end} bytes, as the index says"
    return seen.end, number, Damage(segment.path, at, 0, found or "no frame", expected or "a frame")


def _is_shown(past: Past, last: Block) -> bool:
    """Whether readers were shown more than the index says: at `always` its words come after the
    sync, and a process that is killed before that has lost nothing."""
    words = past.words
    if words is None or not past.is_killed or past.is_foreign:
        return False
    return words.segment_base == last.base and words.tail > last.tail


def _whole_blocks(format: Files, blocks: tuple[Block, ...], durable: int) -> tuple[Block, ...]:
    """The blocks up to the first that is not whole above `durable`: the queue ends there."""
    ends = [*(block.base for block in blocks[1:]), blocks[-1].tail]
    for at, (block, end) in enumerate(zip(blocks, ends, strict=True)):
        start = max(durable, block.base)
        if start >= end:
            continue
        if not block.path.exists():
            if at > 0 and start == block.base:
                return blocks[:at]  # Not even its name was synced.
            continue
        if block is blocks[-1]:
            break  # The walk that finds the end goes through it.
        segment = format.open_segment(block.info(end), writable=False)
        if _core.walk(segment, start, end, covered=format.has_checksums(block.base)).end < end:
            return blocks[: at + 1]
    return blocks


def _number_before(format: Files, blocks: tuple[Block, ...], fallback: int) -> int:
    """The number after the last frame of `blocks`. One that is damaged throughout does not tell,
    and those before it do not know how many it had."""
    if not blocks:
        return fallback
    last = blocks[-1]
    segment = format.open_segment(last.info(last.tail), writable=False)
    seen = _core.walk(segment, last.base, last.tail, past_damage=True)
    return fallback if seen.next_number is None else seen.next_number


def _head_number(format: Files, blocks: tuple[Block, ...], fallback: int) -> int:
    numbers = map(format.number_of, blocks)
    return next((number for number in numbers if number is not None), fallback)


def _end_of(format: Files, blocks: tuple[Block, ...], tail: int, number: int) -> End:
    head_number = _head_number(format, blocks, number)
    return End(tail, number, blocks[-1].base, blocks[0].base, head_number, tail)


def _stray(path: Path, end: int, size: int) -> int:
    """Bytes from `end` to the last one that is not zero: a write that was never published."""
    if size <= end:
        return 0
    stray = 0
    with files.reading(path) as stream:
        stream.seek(end)
        at = 0
        while chunk := stream.read(CHUNK):
            used = len(chunk.rstrip(b"\0"))
            stray = at + used if used else stray
            at += len(chunk)
    return stray


# ── setting it right ───────────────────────────────────────────────────────────────────────


def recover(format: Files, end: End, past: Past) -> End:
    """Makes index and files agree with `end`; writes only what differs."""
    found = format.index()
    blocks = tuple(block for block in born(found) if block.base <= end.segment_base)
    last = blocks[-1]
    if last.is_unborn and not last.number:
        files.make_folder(format.path / "data")
        last = _begin_block(format, found, last.number, last.base)
    elif len(blocks) != len(found.blocks):
        found.write_range(found.start, len(blocks))
        for block in born(found)[len(blocks) :]:
            quarantine.move(format.sidecar, block.path, format.clock.wall_now_ns())
    format.forget_passed_sides(past)
    path = block_path(format.path, end.segment_base)
    if not path.exists():
        files.make_folder(path.parent)  # A zbus program makes it after the first entry.
        _core.create_file(path, 0, synced=True)
        _core.sync_folder(path.parent)
    if end.segment_base != last.base:
        last = _begin_block(format, found, last.number + 1, end.segment_base)
    if last.tail != end.tail:
        found.write_end(last, end.tail - last.base)
    count = end.next_number - format.found.first_number
    if found.message_count != count:
        found.write("message_count", count)
    if past.is_stopped:
        place = last.number, end.tail - last.base
        readers.set_back(format.path, format.table, place, end.tail)
    if past.is_closed and end.durable == end.tail:
        return end
    if past.is_poisoned:
        for block in blocks:
            if block is blocks[-1] or block.tail > end.durable:
                prepared.copy_anew(format.sidecar, block.path)
        prepared.copy_anew(format.sidecar, format.index_path)
    for block, following in itertools.pairwise(blocks):
        if not block.path.exists():
            continue
        length = following.base - block.base
        if block.path.stat().st_size > length:
            _core.resize_file(block.path, length)
        if following.base > end.durable:
            format.store.open_whole(block.info(following.base), writable=False).sync()
    _core.sync_folder(path.parent)
    segment = format.open_segment(last.info(None), writable=True)
    segment.recover_sides(end.tail, end.durable)
    segment.sync()
    _core.sync_file(format.index_path)
    return replace(end, durable=end.tail)


def _begin_block(format: Files, found: Index, number: int, base: int) -> Block:
    now_ms = format.clock.wall_now_ns() // NS_PER_MS
    block = Block(number, now_ms, base, 0, now_ms, format.path)
    found.write_block(block)
    found.write_range(found.start, number - found.start + 1)
    return block
