"""The files of a zbus queue: its index, its blocks, rolling, retention, what it says of itself."""

from __future__ import annotations

import errno
import itertools
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock import _core
from penstock.disk import files
from penstock.errors import UnsupportedError
from penstock.formats.contract import Format
from penstock.formats.values import Damage, NewSegment, SegmentInfo
from penstock.formats.zbus import index, readers, sniffing, structs
from penstock.formats.zbus.index import NS_PER_MS, Block, Index, IndexHead
from penstock.formats.zbus.structs import MAX_SEGMENT_BYTES, ZbusLayout
from penstock.records import replace
from penstock.sidecar import control, notes, prepared

GROW_BYTES = 256 << 10
SETTABLE = ("mask", "creator", "ext1", "ext2", "ext3", "ext4")


class ZbusFiles(Format):
    """Index and blocks of one queue."""

    table: ZbusLayout
    """The layout, counting as the frames of this queue do."""
    index_path: Path
    _native: _core.ZbusIndex | None = None

    def index(self) -> Index:
        """The index as it is now."""
        return index.read(self.index_path, self.table)

    def _head(self) -> IndexHead:
        """The index's header as it is now."""
        return index.look(self.index_path, self.table)

    def native(self) -> _core.ZbusIndex:
        """The index as the native core maps it."""
        if self._native is None:
            entry, head = self.table.entry, self.table.index
            self._native = _core.ZbusIndex(
                self.index_path, base_at=entry.offset_of("base"), end_at=entry.offset_of("end"),
                created_at=entry.offset_of("created_ms"), updated_at=entry.offset_of("updated_ms"),
                count_at=head.offset_of("message_count"), first_number=self.table.first_number,
            )  # fmt: skip
        return self._native

    # ── segments ───────────────────────────────────────────────────────────────────────────

    def list_segments(self) -> list[SegmentInfo]:
        """As the index has them; a block ends where the next one begins."""
        bases = (block.base for block in self.index().born)
        return SegmentInfo.in_a_row((base, self.path_of(base), None) for base in bases)

    def path_of(self, base: int) -> Path:
        return index.block_path(self.path, base)

    def describe(self, info: SegmentInfo) -> SegmentInfo:
        """With numbers from the first frames, and when the block, not a message, was written."""
        head = self._head()
        block = head.find(info.base)
        if block is None:
            return info
        following = head.find(info.end) if info.end is not None else None
        first = self.number_of(block)
        after = self.number_of(following) if following is not None else None
        return replace(
            info, first_number=first, next_number=after, written_ns=block.updated_ms * NS_PER_MS,
            messages=after - first if first is not None and after is not None else None,
        )  # fmt: skip

    def number_of(self, block: Block) -> int | None:
        """The number of a block's first message, if it has one."""
        head = sniffing.first_head(block)
        return None if head is None else int(self.table.frame.unpack_field("number", head))

    def open_segment(
        self, info: SegmentInfo, *, writable: bool, sided: bool = True
    ) -> _core.Segment:
        """Maps a block. A file that is gone reads as one without a frame, and is reported so."""
        frames = _core.zbus_frames(
            info.base, absolute=self.table.is_absolute,
            crc=self.table.frame is structs.FRAME_CRC,
        )  # fmt: skip
        if not writable and not info.path.exists():
            if self._head().find(info.base) is None:
                raise FileNotFoundError(errno.ENOENT, "the block was trimmed", str(info.path))
            return _core.Segment.over(info.path, info.base, 0, frames, b"", end=info.end)
        beside = self.side_files() if sided else {}
        growing: dict[str, Any] = {
            "capacity": MAX_SEGMENT_BYTES,
            "grow_step": min(GROW_BYTES, self.options.segment_bytes),
            "soft_bytes": self.options.segment_bytes,
        }
        return _core.Segment(
            info.path, info.base, 0, frames, end=info.end, writable=writable,
            **(growing if info.end is None else {}), **beside,
        )  # fmt: skip

    def publisher(self) -> _core.Publish:
        """The last block's end, in the index."""
        return self.native().publish()

    def let_go(self) -> None:
        self._native = None

    # ── the end ────────────────────────────────────────────────────────────────────────────

    def seen_end(self) -> int:
        """When the index was last written."""
        return self.index_path.stat().st_mtime_ns

    def believed(self, seen: object) -> control.Words | None:
        """The shared words while one of us has the queue open. A zbus program may have gone on with
        it since we closed it: then its index says where it ends."""
        words = super().believed(seen)
        return None if words is not None and words.is_clean else words

    def prepare_segment(self, tail: int, number: int, needed: int) -> tuple[Path, NewSegment]:
        """An empty file; its entry in the index is made when it gets its name."""
        if needed > MAX_SEGMENT_BYTES:
            raise UnsupportedError(
                f"{needed} bytes do not fit into any zbus block: its end is a signed 32-bit number"
            )
        if self.native().block_count >= structs.SLOTS:
            raise UnsupportedError(
                f"{self.path}: the index has {structs.SLOTS} blocks and no slot for another: "
                f"trim the queue (`penstock trim`), or move to format penstock"
            )
        fresh = prepared.make(self.sidecar, 0, suffix=".zbus")
        return fresh, NewSegment(index.block_path(self.path, tail), tail, tail)

    def rolled(self, base: int) -> None:
        """Cuts a block's file to what the index says: it was longer while we appended."""
        end, path = self.native().end_of(base), self.path_of(base)
        with suppress(FileNotFoundError):  # Another process may trim it.
            if end is not None and path.stat().st_size > end:
                _core.resize_file(path, end)

    def leave(self, shared: _core.Shared) -> None:
        """Cuts the last block to what was written, and notes where its readers are."""
        self.rolled(shared.segment_base)
        for entry in files.entries(self.path / "reader"):
            if entry.is_file(follow_symlinks=False):
                _core.sync_file(Path(entry.path))  # A clean control block must find what it left.
        places = {"readers": readers.bookmarks(self.path)}
        notes.write(self.sidecar, notes.ZBUS_PLACES, places, synced=False)

    def store_head(self, kept: SegmentInfo) -> None:
        """Moves BlockStart on disk, with the count, by one write; files are deleted after that."""
        shared = self.store.need_shared()
        self.native().trim(shared, kept.base)
        shared.sync_file(self.index_path)  # Also if another process has, and is not so far yet.

    def contradictions(self, start: int = 0) -> list[Damage]:
        """The index: each block ends where the next one begins."""
        found, odd = self.index(), list[Damage]()
        for block, following in itertools.pairwise(found.born):
            if block.tail != following.base and following.base > start:
                text = f"block {block.number} ends at {block.tail}"
                expected = f"{following.base}, where the next one begins"
                odd.append(Damage(found.path, index.slot_at(block.number), 28, text, expected))
        return odd

    # ── about the queue ────────────────────────────────────────────────────────────────────

    def meta(self) -> dict[str, Any]:
        """Mask, creator and extensions, and what else the index says."""
        values = dict(self.index().header)
        if "flag" in values:
            values["mask"] = values.pop("flag")
        for name, value in values.items():
            if isinstance(value, bytes):
                values[name] = value.decode("utf-8", "replace") or None
        details = {
            "offsets": "absolute" if self.table.is_absolute else "relative",
            "first_number": self.table.first_number,
            "dialect": self.table.dialect,
        }
        return values | details

    def set_meta(self, **values: object) -> None:
        """Sets mask (a number), creator, ext1 … ext4 (texts of at most 127 bytes; none: clear)."""
        found, table = self.index(), self.table.index
        known = {field.name for field in table.fields}
        changes: dict[str, int | bytes] = {}
        for name, value in values.items():
            field = "flag" if name == "mask" and not self.table.has_mask else name
            if name not in SETTABLE or field not in known:
                raise UnsupportedError(
                    f"layout {self.table.name} of format zbus has no place for {name!r}; "
                    f"it has {', '.join(n for n in SETTABLE if n in known or n == 'mask')}"
                )
            raw = int(str(value)) if name == "mask" else str(value or "").encode()
            try:
                table.pack_field(field, raw)
            except ValueError as error:
                raise UnsupportedError(f"format zbus: {error}") from error
            changes[field] = raw
        self.store.need_shared()
        for field, raw in changes.items():
            found.write(field, raw)
