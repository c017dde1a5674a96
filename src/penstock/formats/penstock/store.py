"""A `penstock` queue, open: segments, the end, recovery, rolling, sealing."""

from __future__ import annotations

import os
import secrets
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from penstock import _core
from penstock.disk import control, files
from penstock.errors import CorruptError, FormatError, KeyNeededError, OptionError, RefusedError
from penstock.formats.base import (
    Capabilities,
    Damage,
    End,
    NewSegment,
    SegmentInfo,
    Store,
    Verdict,
)
from penstock.formats import known_damage
from penstock.formats.penstock import layouts, segments
from penstock.formats.penstock.segments import Header, segment_path
from penstock.options import QueueOptions

HEADER_BYTES = layouts.HEADER_BYTES


class PenstockStore(Store):
    """Our own format."""

    format: ClassVar[str] = "penstock"
    capabilities: ClassVar[Capabilities] = Capabilities(keys=True, delays=True, checksums=True)

    header: Header
    """Of the oldest segment: the queue's id and flags."""

    @classmethod
    def sniff(cls, path: Path) -> str | None:
        """A folder `log` with at least one file that is named like a segment."""
        return "1" if path.is_dir() and segments.list_segments(path) else None

    @classmethod
    def create(cls, path: Path, layout: str, options: QueueOptions, clock: _core.Clock) -> None:
        """An empty queue: one small segment."""
        if layout not in ("", "1"):
            raise OptionError("layout", layout, "1 (format penstock)")
        if options.key is not None and len(options.key) != 32:
            raise OptionError("key", "…", "32 bytes for format penstock")
        sidecar = path / ".penstock"
        files.make_folder(sidecar)
        files.make_folder(path / "log")
        files.refuse_network_file_system(path)
        shared = _core.Shared(sidecar, clock.boot_id())
        try:
            if not segments.list_segments(path):
                flags = layouts.ENCRYPTED if options.key else 0
                flags |= layouts.COMPRESSED if options.compression == "lz4" else 0
                size = segments.next_size(0, 0, segments.limit_of(options))
                now = clock.wall_now_ns()
                head = Header(
                    secrets.token_bytes(16), 0, 0, flags, secrets.token_bytes(16), now, size
                )
                prepared = sidecar / f"new-{shared.owner}.seg"
                _core.unlink_file(prepared)
                _core.create_file(prepared, size, head=head.pack(), synced=True)
                _core.rename_file(prepared, segment_path(path, 0))
                for folder in (path / "log", path, path.parent):
                    _core.sync_folder(folder)
        finally:
            shared.close()
            shared.opened()

    def load(self) -> None:
        """Reads the oldest good header; the key must fit it."""
        infos = self.list_segments()
        error: Exception | None = None
        for info in infos:
            try:
                self.header = Header.unpack(segments.read_page(info.path), info.path)
                break
            except (CorruptError, FormatError) as found:
                error = error or found
                if isinstance(found, FormatError) and "version" in found.found:
                    raise
        else:
            raise error or FormatError(self.path, "no segment", "is no penstock queue")
        key = self.options.key
        if self.is_encrypted and key is not None and len(key) != 32:
            raise KeyNeededError(f"{self.path}: the key of a penstock queue has 32 bytes")
        if self.is_live and self.is_encrypted and key is None:
            raise KeyNeededError(f"{self.path}: the queue is encrypted; open it with key=")
        if not self.is_encrypted and key is not None:
            raise KeyNeededError(f"{self.path}: the queue is not encrypted; open it without key")

    @property
    def is_encrypted(self) -> bool:
        """Whether every frame is sealed with the queue's key."""
        return bool(self.header.flags & layouts.ENCRYPTED)

    @property
    def is_sealing(self) -> bool:
        """Ciphertext of a dead appender may be on the disk."""
        return self.is_encrypted

    @property
    def can_unseal(self) -> bool:
        """Without the key only sizes and checksums can be verified."""
        return not self.is_encrypted or self.options.key is not None

    @property
    def identity(self) -> str:
        """The queue id."""
        return self.header.queue_id.hex()

    # ── segments ───────────────────────────────────────────────────────────────────────────

    def list_segments(self) -> list[SegmentInfo]:
        """By name."""
        return segments.list_segments(self.path)

    def header_of(self, info: SegmentInfo) -> Header:
        """The header of a segment of this queue."""
        header = Header.unpack(segments.read_page(info.path), info.path)
        if header.queue_id != self.header.queue_id:
            found = f"queue id {header.queue_id.hex()}"
            raise CorruptError(info.path, 16, found, self.header.queue_id.hex())
        return header

    def describe(self, info: SegmentInfo) -> SegmentInfo:
        """With what header and summary tell."""
        page = segments.read_page(info.path)
        header = Header.unpack(page, info.path)
        summary = segments.read_summary(page)
        info = replace(info, first_number=header.base_number)
        if summary is None:
            return info
        return replace(
            info, messages=summary["messages"], next_number=summary["next_number"],
            first_ns=summary["first_ns"], last_ns=summary["last_ns"],
        )  # fmt: skip

    def open_segment(self, info: SegmentInfo, *, writable: bool) -> _core.Segment:
        """Maps it with the codec its header asks for."""
        header = self.header_of(info)
        frames = _core.penstock_frames(
            header.queue_id, header.base,
            compress=self.options.compression == "lz4",
            encrypted=bool(header.flags & layouts.ENCRYPTED),
            key=self.options.key, salt=header.salt,
        )  # fmt: skip
        return _core.Segment(
            info.path, info.base, HEADER_BYTES, frames, end=info.end, writable=writable
        )

    def publisher(self) -> _core.Publish:
        """The first frame's size word."""
        return _core.publish_size_word()

    # ── the end ────────────────────────────────────────────────────────────────────────────

    def find_end(self, known: control.Words | None) -> End:
        """Walks the last segment from what is known to be synced."""
        infos = self.list_segments()
        durable = known.durable if known is not None else 0
        if known is not None and known.is_clean and not known.is_poisoned:
            bases = {info.base for info in infos}
            if known.segment_base in bases and known.head in bases:
                return End(
                    known.tail, known.next_number, known.segment_base, known.head,
                    known.head_number, known.durable,
                )  # fmt: skip
        dropped: list[Damage] = []
        while len(infos) > 1 and self._is_unborn(infos[-1], durable):
            last = infos.pop()
            infos[-1] = replace(infos[-1], end=None)
            dropped.append(Damage(last.path, 0, last.size, "a segment without header", "a header"))
        last = infos[-1]
        segment, base_number = self._last_segment(replace(last, end=None))
        limit = last.base + last.size - HEADER_BYTES
        start = durable if last.base < durable <= limit else last.base
        seen = _core.walk(segment, start, limit, past_damage=known is None)
        tail = seen.end
        if seen.stop in ("bad", "cut"):
            at, found, expected, length = seen.faults[-1]
            dropped.append(Damage(last.path, at, length, found, expected))
        number = seen.next_number if seen.next_number is not None else base_number
        if seen.next_number is None and start > last.base:
            number = self._number_at(segment, last.base, start, base_number)
        head = infos[0]
        head_number = self._base_number(head)
        return End(
            tail, number, last.base, head.base, head_number, min(durable, tail), tuple(dropped)
        )

    def _last_segment(self, info: SegmentInfo) -> tuple[_core.Segment, int]:
        """To look for the end: a reader can do without the header, a writer can't."""
        try:
            return self.open_whole(info, writable=False), self.header_of(info).base_number
        except CorruptError:
            segment = None if self.is_live else self.rescue_segment(info)
            if segment is None:
                raise
            known_damage.mark(segment, self.set_aside)
            return segment, self._base_number(info)

    def _base_number(self, info: SegmentInfo) -> int:
        try:
            return self.header_of(info).base_number
        except CorruptError:
            return self.guess_header(info).base_number

    # ── without a header ───────────────────────────────────────────────────────────────────

    def _open_plain(self, info: SegmentInfo) -> _core.Segment:
        frames = _core.penstock_frames(self.header.queue_id, info.base)
        return _core.Segment(info.path, info.base, HEADER_BYTES, frames, end=info.end)

    def rescue_segment(self, info: SegmentInfo) -> _core.Segment | None:
        """The name says the base; the rest only matters for decryption, which needs the salt."""
        is_lost = self.is_encrypted or info.size <= HEADER_BYTES
        return None if is_lost else self._open_plain(info)

    def guess_header(self, info: SegmentInfo) -> Header:
        """What the header must have said, from the name and the first whole frame."""
        limit = info.end if info.end is not None else info.base + info.size - HEADER_BYTES
        seen = _core.walk(self._open_plain(info), info.base, limit, past_damage=True)
        return Header(
            self.header.queue_id, info.base, seen.first_number or 0, self.header.flags,
            secrets.token_bytes(16), seen.first_ns or 0, info.size,
        )  # fmt: skip

    def rebuild_header(self, info: SegmentInfo) -> bool:
        """Writes it anew; the summary behind it stays."""
        if self.is_encrypted or info.size <= HEADER_BYTES:
            return False
        head = self.guess_header(info).pack()[: layouts.HEADER.size]
        _core.write_file(info.path, 0, head, synced=True)
        return True

    def _is_unborn(self, info: SegmentInfo, durable: int) -> bool:
        """A name whose header never reached the disk: nothing in it was ever promised."""
        if info.base < durable:
            return False
        return segments.read_page(info.path).strip(b"\0") == b""

    def _number_at(self, segment: _core.Segment, first: int, offset: int, fallback: int) -> int:
        seen = _core.walk(segment, first, offset, past_damage=True)
        return seen.next_number if seen.next_number is not None else fallback

    def recover(self, end: End, *, clean: bool) -> End:
        """Clears what was dropped and begins a new segment where the old must not go on."""
        for info in self.list_segments():
            if info.base > end.segment_base:
                self._set_aside(info.path)
        if clean:
            return end
        self._seal_quietly()
        info = next(i for i in self.list_segments() if i.base == end.segment_base)
        segment = self.open_whole(replace(info, end=None), writable=True)
        poisoned = (self.sidecar / "control").exists() and self._was_poisoned()
        if self.is_encrypted and end.tail > end.segment_base or poisoned:
            return self._move_on(segment, end, poisoned)
        segment.scrub(end.tail)
        segment.sync()
        return replace(end, durable=end.tail)

    def _was_poisoned(self) -> bool:
        words = control.peek(self.sidecar)
        return words is not None and words.is_poisoned

    def _move_on(self, segment: _core.Segment, end: End, poisoned: bool) -> End:
        """A new segment: at the tail, or (after a failed sync) from the last synced offset on."""
        start = end.durable if poisoned else end.tail
        if poisoned and (self.is_encrypted or start <= end.segment_base):
            start = end.tail if self.is_encrypted else end.segment_base
        kept = segment.read(segment.position(start), end.tail - start)
        seen = _core.walk(segment, end.segment_base, start)
        number = seen.next_number if seen.next_number is not None else self._first_number(end)
        prepared, new = self.prepare_segment(start, number, len(kept), body=kept)
        segment.sync()
        if start != end.segment_base:
            segment.store(segment.position(start), layouts.SEALED_WORD)
            segment.sync()
        _core.sync_file(prepared)
        _core.rename_file(prepared, new.path)
        _core.sync_folder(new.path.parent)
        return replace(end, segment_base=new.base, durable=end.tail)

    def _first_number(self, end: End) -> int:
        info = next(i for i in self.list_segments() if i.base == end.segment_base)
        return self.header_of(info).base_number

    def _set_aside(self, path: Path) -> None:
        folder = self.sidecar / "quarantine"
        files.make_folder(folder)
        _core.rename_file(path, folder / f"{path.name}.{self.clock.wall_now_ns()}")

    # ── rolling and sealing ────────────────────────────────────────────────────────────────

    def prepare_segment(
        self, tail: int, number: int, needed: int, *, body: bytes = b""
    ) -> tuple[Path, NewSegment]:
        """The next file: one that was zeroed in the background, or a fresh one."""
        last = self.list_segments()[-1]
        size = segments.next_size(
            last.size, max(needed, len(body)), segments.limit_of(self.options)
        )
        if needed + HEADER_BYTES + 8 > 2**31 - 1:
            raise RefusedError(f"{needed} bytes do not fit into any segment")
        prepared = self.sidecar / f"new-{os.getpid()}-{id(self):x}.seg"
        _core.unlink_file(prepared)
        ready = self.sidecar / "next.seg"
        try:
            fits = ready.stat().st_size >= needed + 2 * HEADER_BYTES
            if fits and not body:
                size = ready.stat().st_size
                _core.rename_file(ready, prepared)
        except FileNotFoundError:
            pass
        if not prepared.exists():
            _core.create_file(prepared, size)
        salt = secrets.token_bytes(16)
        previous = self._check_of(last, tail)
        header = Header(
            self.header.queue_id, tail, number, self.header.flags, salt,
            self.clock.wall_now_ns(), size, previous,
        )  # fmt: skip
        _core.write_file(prepared, 0, header.pack() + body)
        path = segment_path(self.path, tail)
        return prepared, NewSegment(path, tail, tail, layouts.SEALED_WORD)

    def _check_of(self, info: SegmentInfo, end: int) -> int:
        page = segments.read_page(info.path)
        return _core.crc32c(page[: layouts.HEADER.size] + end.to_bytes(8, "little"))

    def tend(self) -> None:
        """Seals what is full; prepares the next segment once this one is half full."""
        shared, writer = self.shared, self.writer
        if shared is None or writer is None:
            return
        self._seal_quietly()
        used = shared.tail - shared.segment_base
        if used * 2 > self.list_segments()[-1].size:
            self.zero_ahead()

    def zero_ahead(self) -> None:
        """Prepares the next segment so that rolling costs no page faults. In the background."""
        ready = self.sidecar / "next.seg"
        if ready.exists() or self.shared is None:
            return
        last = self.list_segments()[-1]
        size = segments.next_size(last.size, 0, segments.limit_of(self.options))
        fresh = self.sidecar / f"zero-{os.getpid()}-{id(self):x}.seg"
        _core.unlink_file(fresh)
        _core.create_file(fresh, size, zeroed=True, synced=True)
        _core.rename_file(fresh, ready)

    def seal_full_segments(self) -> int:
        """Gives every full segment its summary; answers how many got one."""
        sealed = 0
        for info in reversed(self.list_segments()[:-1]):
            page = segments.read_page(info.path)
            if page[layouts.SUMMARY_AT : layouts.SUMMARY_AT + 8] == b"SEALED01":
                break
            assert info.end is not None
            segment = self.open_whole(info, writable=True)
            seen = _core.walk(segment, info.first, info.end, past_damage=True)
            segment.store(layouts.SUMMARY_AT, segments.pack_summary(seen))
            sealed += 1
        return sealed

    def _seal_quietly(self) -> None:
        try:
            self.seal_full_segments()
        except (CorruptError, FormatError):
            pass  # `verify` reports it with file and byte.

    def leave(self, shared: _core.Shared) -> None:
        """Seals what is full and drops files that were only prepared."""
        self._seal_quietly()
        for entry in list(os.scandir(self.sidecar)):
            if entry.name.endswith(".seg"):
                _core.unlink_file(Path(entry.path))

    def verify_extra(self, verdict: Verdict) -> None:
        """Every segment's header, and that each one continues the one before it."""
        before: SegmentInfo | None = None
        for info in self.list_segments():
            try:
                header = self.header_of(info)
            except (CorruptError, FormatError) as error:
                at = getattr(error, "at", 0)
                verdict.corrupt.append(
                    Damage(info.path, at, HEADER_BYTES, str(error), "a segment header")
                )
                before = None
                continue
            if before is not None and header.previous:
                expected = self._check_of(before, info.base)
                if header.previous != expected:
                    found = f"link {header.previous:08x} to the segment before"
                    verdict.corrupt.append(Damage(info.path, 64, 4, found, f"{expected:08x}"))
            before = info
