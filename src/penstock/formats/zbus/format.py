"""A zbus queue, open: where it ends, what a crash can have done to that, how it is set right.

The index says where every block ends; frames are the truth. On opening, the last block is walked
up to its end word: what is no frame there is dropped and reported, the count follows from the last
frame, bytes behind the end stay where they are until they are written over. A block that was
counted and never entered is taken back, a block whose file is gone is reported, never made anew.
"""

from __future__ import annotations

import itertools
import secrets
import weakref
from pathlib import Path
from typing import ClassVar

from penstock import _core
from penstock.disk import files
from penstock.errors import FormatError
from penstock.formats.contract import OwnGroups
from penstock.formats.past import Past, frames_end
from penstock.formats.values import Capabilities, Damage, End
from penstock.formats.zbus import index, readers, sniffing
from penstock.formats.zbus.groups import ZbusGroups
from penstock.formats.zbus.index import NS_PER_MS, Block, Index, slot_at
from penstock.formats.zbus.queue_files import ZbusFiles
from penstock.formats.zbus.structs import CREATED, TABLE, ZbusLayout
from penstock.options import QueueOptions
from penstock.records import replace
from penstock.sidecar import control, notes, prepared, quarantine

CHUNK = 1 << 20


class ZbusFormat(ZbusFiles):
    """A queue in one of zbus's layouts."""

    name: ClassVar[str] = "zbus"
    layouts: ClassVar[tuple[str, ...]] = tuple(TABLE)
    created: ClassVar[tuple[str, ...]] = CREATED
    capabilities: ClassVar[Capabilities] = Capabilities(headers=False)
    inner_folders: ClassVar[tuple[str, ...]] = ("data", "reader")

    identity: str = ""
    """A random id if we made the queue; else it says when the queue began, and in which layout."""

    @classmethod
    def sniff(cls, path: Path) -> str | None:
        """One `.idx` of the right size beside a folder `data`; then its bytes tell the layout."""
        return sniffing.sniff(path) if path.is_dir() else None

    @classmethod
    def make(
        cls, path: Path, sidecar: Path, layout: str, options: QueueOptions, clock: _core.Clock
    ) -> None:
        """The index, one empty block, no readers."""
        if index.find(path) is not None:
            return
        table = TABLE[layout]
        for folder in (path / "data", path / "reader"):
            files.make_folder(folder)
        _record(sidecar, table, secrets.token_hex(16))
        head = index.pack_new(table, clock.wall_now_ns() // NS_PER_MS)
        fresh = prepared.make(sidecar, len(head), head=head, suffix=".idx", synced=True)
        _core.sync_folder(path)
        # The index makes the folder a queue; an empty block without a file is made anew.
        prepared.place(fresh, path / f"{path.resolve().name}.idx")
        _core.create_file(index.block_path(path, 0), 0, synced=True)
        for folder in (path / "data", path.parent):
            _core.sync_folder(folder)

    def load(self) -> None:
        """Finds out the details of the layout, or takes them from our own record."""
        path = index.find(self.path)
        if path is None:
            raise FormatError(self.path, "no .idx file", "check the path")
        self.index_path = path
        known = sniffing.recorded(self.path)
        if known is None or known.name != self.layout:
            known = sniffing.examine(self.path, self.layout)
        self.table = known
        self.groups: OwnGroups = ZbusGroups(weakref.proxy(self))
        stored = notes.read(self.sidecar, notes.ZBUS) or {}
        self.identity = str(stored.get("identity") or fingerprint(self.index()))

    # ── the end ────────────────────────────────────────────────────────────────────────────

    def is_foreign(self, words: control.Words) -> bool:
        """Whether the index's last block is another one than ours, or ends where we never did.
        Beginning a block we may have got as far as its entry."""
        last = self.index().born[-1]
        if words.is_clean:
            return (last.base, last.tail) != (words.segment_base, words.tail)
        if last.base != words.segment_base and last.end:
            return True
        return last.tail not in words.published

    def find_end(self, past: Past) -> End:
        """What the index says, as far as frames bear it out. Changes nothing."""
        found, known = self.index(), past.words
        blocks = found.born
        is_shown = _is_shown(past, blocks[-1])
        if is_shown and known is not None:
            blocks = (*blocks[:-1], replace(blocks[-1], end=known.tail - blocks[-1].base))
        dropped = [
            Damage(found.path, slot_at(block.number), 28, "an entry of zeros", "a block")
            for block in found.blocks[len(blocks) :]
        ]
        if past.is_stopped:
            whole = _whole_blocks(self, blocks, past.durable)
            lost, blocks = blocks[len(whole) :], whole
            text = "a block behind one that is not whole"
            dropped += [Damage(block.path, 0, block.end, text, "nothing") for block in lost]
        last = blocks[-1]
        path, said = last.path, last.tail
        size = files.size_of(path)
        is_left = past.is_closed and not past.is_foreign and not dropped
        if known is not None and is_left and size >= last.end:
            return replace(_end_of(self, blocks, said, known.next_number), durable=known.durable)
        tail, number = said, found.message_count + self.table.first_number
        if last.end and not path.exists():
            dropped.append(Damage(path, 0, last.end, "no file", f"a block of {last.end} bytes"))
            end = replace(_end_of(self, blocks, tail, number), segment_base=tail)
            return replace(end, durable=min(past.durable, tail), dropped=tuple(dropped))
        if last.end:
            tail, counted, fault = _walk(self, last, size, past)
            number = number if counted is None else counted
            if fault is not None:
                dropped.append(replace(fault, path=path, length=said - tail))
        if tail == last.base:
            number = _number_before(self, blocks[:-1], number)
        count = number - self.table.first_number
        if count != found.message_count and not is_shown:
            at = self.table.index.offset_of("message_count")
            text = f"{count}, by the last frame"
            dropped.append(Damage(found.path, at, 8, f"message count {found.message_count}", text))
        known_end = max(last.end, past.unfinished_end(tail) - last.base)
        stray = _stray(path, known_end, size)
        if stray:
            dropped.append(Damage(path, known_end, stray, "stray bytes after the end", "nothing"))
        end = _end_of(self, blocks, tail, number)
        return replace(end, durable=min(past.durable, tail), dropped=tuple(dropped))

    def recover(self, end: End, past: Past) -> End:
        """Makes index and files agree with `end`; writes only what differs."""
        _record(self.sidecar, self.table, self.identity)
        found = self.index()
        blocks = tuple(block for block in found.born if block.base <= end.segment_base)
        last = blocks[-1]
        if last.is_unborn and not last.number:
            files.make_folder(self.path / "data")
            last = _begin_block(self, found, last.number, last.base)
        elif len(blocks) != len(found.blocks):
            found.write_range(found.start, len(blocks))
            for block in found.born[len(blocks) :]:
                quarantine.move(self.sidecar, block.path, self.clock.wall_now_ns())
        self.forget_passed_sides(past)
        path = self.path_of(end.segment_base)
        if not path.exists():
            files.make_folder(path.parent)  # A zbus program makes it after the first entry.
            _core.create_file(path, 0, synced=True)
            _core.sync_folder(path.parent)
        if end.segment_base != last.base:
            last = _begin_block(self, found, last.number + 1, end.segment_base)
        if last.tail != end.tail:
            found.write_block(replace(last, end=end.tail - last.base))
        count = end.next_number - self.table.first_number
        if found.message_count != count:
            found.write("message_count", count)
        if past.is_stopped:
            readers.set_back(self.path, self.table, (last.number, end.tail - last.base), end.tail)
        if past.is_closed and end.durable == end.tail:
            return end
        self._make_durable(blocks, end, poisoned=past.is_poisoned)
        segment = self.open_segment(last.info(None), writable=True)
        segment.zero(end.tail, past.unfinished_end(end.tail))  # Or the next kill shows it again.
        segment.recover_sides(end.tail, end.durable)
        segment.sync()
        _core.sync_file(self.index_path)
        return replace(end, durable=end.tail)

    def _make_durable(self, blocks: tuple[Block, ...], end: End, *, poisoned: bool) -> None:
        """Cuts full blocks to what the index says, and syncs those above `durable` and all names;
        after a failed sync what is in doubt is written anew before."""
        if poisoned:
            for block in blocks:
                if block is blocks[-1] or block.tail > end.durable:
                    prepared.copy_anew(self.sidecar, block.path)
            prepared.copy_anew(self.sidecar, self.index_path)
        for block, following in itertools.pairwise(blocks):
            if not block.path.exists():
                continue
            length = following.base - block.base
            if block.path.stat().st_size > length:
                _core.resize_file(block.path, length)
            if following.base > end.durable:
                self.store.open_whole(block.info(following.base), writable=False).sync()
        _core.sync_folder(self.path / "data")


def _record(sidecar: Path, table: ZbusLayout, identity: str) -> None:
    """Notes what sniffing would have to find out again."""
    value = {
        "layout": table.name, "absolute": table.is_absolute,
        "first_number": table.first_number, "dialect": table.dialect, "identity": identity,
    }  # fmt: skip
    if notes.read(sidecar, notes.ZBUS) != value:
        notes.write(sidecar, notes.ZBUS, value)


def fingerprint(found: Index) -> str:
    """Tells a queue that we did not make from another one at the same path."""
    created = found.header.get("created_ms") or (found.blocks[0].created_ms if found.blocks else 0)
    return f"zbus-{found.layout.name}-{created:x}"


def _walk(
    format: ZbusFiles, last: Block, size: int, past: Past
) -> tuple[int, int | None, Damage | None]:
    """Tail, next number and the fault that ended it before the index said."""
    segment = format.open_segment(last.info(None), writable=False, sided=not past.is_foreign)
    limit = last.base + min(last.end, size)
    if past.is_killed:
        end, number = frames_end(segment, last.base, last.tail, limit, past.last_number)
        if end == last.tail:
            return end, number, None
    durable = past.durable
    start = durable if last.base < durable <= limit else last.base
    # What was synced may be damaged, but it is not where the queue ends.
    before = _core.walk(segment, last.base, start, past_damage=True)
    covered = past.is_stopped and format.has_checksums(last.base)
    seen = _core.walk(segment, start, limit, past_damage=past.words is None, covered=covered)
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


def _whole_blocks(format: ZbusFiles, blocks: tuple[Block, ...], durable: int) -> tuple[Block, ...]:
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


def _number_before(format: ZbusFiles, blocks: tuple[Block, ...], fallback: int) -> int:
    """The number after the last frame of `blocks`. One that is damaged throughout does not tell,
    and those before it do not know how many it had."""
    if not blocks:
        return fallback
    last = blocks[-1]
    segment = format.open_segment(last.info(last.tail), writable=False)
    seen = _core.walk(segment, last.base, last.tail, past_damage=True)
    return fallback if seen.next_number is None else seen.next_number


def _end_of(format: ZbusFiles, blocks: tuple[Block, ...], tail: int, number: int) -> End:
    numbers = (found for found in map(format.number_of, blocks) if found is not None)
    return End(tail, number, blocks[-1].base, blocks[0].base, next(numbers, number), tail)


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


def _begin_block(format: ZbusFiles, found: Index, number: int, base: int) -> Block:
    now_ms = format.clock.wall_now_ns() // NS_PER_MS
    block = Block(number, now_ms, base, 0, now_ms, format.path)
    found.write_block(block)
    found.write_range(found.start, number - found.start + 1)
    return block
