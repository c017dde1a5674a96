"""The groups of a zbus queue, as its reader files and NAK files have them."""

from __future__ import annotations

from collections.abc import Sequence

from penstock import _core
from penstock.formats.contract import OwnGroups
from penstock.formats.values import Damage
from penstock.formats.zbus import readers, structs
from penstock.formats.zbus.index import NS_PER_MS, Block
from penstock.formats.zbus.queue_files import ZbusFiles
from penstock.formats.zbus.readers import ReaderFile
from penstock.hints import Any
from penstock.options import GroupOptions
from penstock.sidecar.groups import GroupProgress

ANY_NUMBER = -(2**62)


class ZbusGroups(OwnGroups):
    """The groups that have a reader file, and those that get one."""

    def __init__(self, queue: ZbusFiles) -> None:
        self._queue, self._path, self._table = queue, queue.path, queue.table
        self._with_naks: set[str] = set()

    def bookmarks(self) -> dict[str, int]:
        found = {name: self._bookmark(name) for name in readers.names(self._path)}
        return {name: offset for name, offset in found.items() if offset is not None}

    def _bookmark(self, group: str) -> int | None:
        mark = readers.read_reader(readers.rdx_path(self._path, group))
        return None if mark is None else self._offset_of(mark)

    def _offset_of(self, mark: ReaderFile) -> int:
        """The offset that a bookmark names.

        Behind the oldest block it is the head, beyond the last one the tail; one inside a frame
        is that frame's beginning.
        """
        blocks, end = self._queue.index().born, self._queue.store.end()
        if mark.block < blocks[0].number:
            return end.head
        if mark.block > blocks[-1].number:
            return end.tail
        block, limit = _block_at(blocks, mark.block, end.tail)
        offset = block.base + max(mark.offset, 0)
        if offset >= limit:
            return limit
        if not block.path.exists():
            return block.base
        segment = self._queue.store.segment_at(block.base)
        if _core.find_frame(segment, offset, limit, number=ANY_NUMBER) == (offset, True):
            return offset
        return max(_core.walk(segment, block.base, offset, past_damage=True).end, end.head)

    def defaults(self, group: str) -> dict[str, Any]:
        """The filter of the reader file in the layout's dialect; window and timeout of the NAK.

        A group that is new has our own dialect unless its maker says otherwise.
        """
        values: dict[str, Any] = {}
        mark = readers.read_reader(readers.rdx_path(self._path, group))
        if mark is not None:
            values = {"dialect": self._table.dialect, "tags": mark.filter}
        naks = readers.read_naks(readers.nak_path(self._path, group), self._table)
        if naks is not None:
            values["max_in_flight"] = min(max(naks.window, 1), structs.NAK_WINDOW_MAX)
            values["visibility_s"] = max(naks.timeout_ms, 0) / 1000
        return values

    def leases(self, group: str) -> list[tuple[int, int]]:
        """What the NAK file says is out: handed out again, after how many times it already was."""
        naks = readers.read_naks(readers.nak_path(self._path, group), self._table)
        mark, head = self._bookmark(group), self._queue.store.end().head
        if naks is None or mark is None:
            return []
        return [(offset, tries) for offset, tries in naks.out if head <= offset < mark]

    def note(self, group: str, options: GroupOptions) -> None:
        """The reader file shows the group's filter."""
        path = readers.rdx_path(self._path, group)
        now_ms = self._queue.clock.wall_now_ns() // NS_PER_MS
        readers.make_reader(path, self._table, now_ms)
        readers.write_filter(path, self._table, options.tags)
        has_naks = self._table.nak_record is not None and options.ack == "lease"
        if has_naks and options.max_in_flight <= structs.NAK_WINDOW_MAX:
            nak, seconds = readers.nak_path(self._path, group), options.visibility_s
            readers.make_naks(nak, self._table, options.max_in_flight, seconds, now_ms)
            self._with_naks.add(group)

    def mirror(self, group: str) -> _core.Mirror | None:
        """The reader file, and the NAK file where the group has one that suffices."""
        nak, record = readers.nak_path(self._path, group), self._table.nak_record
        rdx, native = readers.rdx_path(self._path, group), self._queue.native()
        if record is None or group not in self._with_naks:
            return native.mirror(rdx)
        blocks = self._path / "data" if record is structs.NAK_RECORD_ABS else None
        return native.mirror(rdx, nak, record.size, blocks)

    def drop(self, group: str) -> None:
        for path in (readers.rdx_path(self._path, group), readers.nak_path(self._path, group)):
            _core.unlink_file(path)

    # ── after another program may have moved it ────────────────────────────────────────────

    def bookmark_of(self, group: str, progress: GroupProgress) -> int:
        """The lowest unacked offset; where the NAK file knows what is not acked, the next unread
        one."""
        return progress.next if readers.nak_path(self._path, group).exists() else progress.cursor

    def is_moved(self, group: str) -> bool:
        """Whether its reader file is not as we left it: then a zbus program has read on."""
        return group in readers.moved(self._path, self._queue.sidecar)

    def fault(self, group: str) -> Damage | None:
        """A reader file that names no block, or no message in it. A bookmark in a block that was
        trimmed is no fault, nor is one at the beginning of the block after the last."""
        path = readers.rdx_path(self._path, group)
        mark = readers.read_reader(path)
        if mark is None:
            return None
        blocks, tail = self._queue.index().born, self._queue.store.end().tail
        oldest, newest = blocks[0].number, blocks[-1].number
        if 0 <= mark.block < oldest or (mark.block, mark.offset) == (newest + 1, 0):
            return None
        where = f"block {mark.block}, byte {mark.offset}"
        if not oldest <= mark.block <= newest:
            return Damage(path, 0, 12, where, f"a block from {oldest} to {newest}")
        block, _ = _block_at(blocks, mark.block, tail)
        limit = tail if block.number == newest else block.tail
        offset = block.base + mark.offset
        if offset == limit or self._offset_of(mark) == offset:
            return None
        return Damage(path, 0, 12, f"{where}, where no message begins", "where a message begins")

    def set_bookmark(self, group: str, offset: int) -> None:
        path = readers.rdx_path(self._path, group)
        readers.write_reader(path, *self._queue.native().locate(offset))


def _block_at(blocks: Sequence[Block], number: int, tail: int) -> tuple[Block, int]:
    """The block of this number, and the offset at which the next one begins."""
    at = number - blocks[0].number
    return blocks[at], tail if at == len(blocks) - 1 else blocks[at + 1].base
