"""The files of a `penstock` queue: headers, segments, rolling, sealing."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property

from penstock import _core
from penstock.disk import files
from penstock.errors import CorruptError, FormatError, KeyNeededError, UnsupportedError
from penstock.formats.contract import Format
from penstock.formats.penstock import segments, structs
from penstock.formats.penstock.index import Index
from penstock.formats.penstock.segments import Header
from penstock.formats.penstock.structs import HEADER_BYTES
from penstock.formats.values import Damage, NewSegment, SegmentInfo
from penstock.options import Durability
from penstock.places import Path
from penstock.sidecar import prepared


class PenstockFiles(Format):
    """The segments of one queue."""

    identity: str = ""
    """The id that every segment of the queue carries."""
    header: Header
    """The oldest segment's, which has the queue's id and flags."""
    closing = structs.SEALED_WORD

    _next: Header
    _begun: Header | None = None
    """The header of the segment that this process began last."""
    _sealed_below = 0
    """All segments before this one are sealed."""

    def load(self) -> None:
        """Reads the oldest good header; the key must fit it."""
        while True:
            with suppress(FileNotFoundError):  # Others trim: list what is left.
                self.header = self._oldest_header()
                break
        self.identity = self.header.queue_id.hex()
        self.is_encrypted: bool = bool(self.header.flags & structs.ENCRYPTED)
        key = self.options.key
        if self.is_live or key is not None:
            self.need_key()
        if not self.is_encrypted and key is not None:
            raise KeyNeededError(f"{self.path}: the queue is not encrypted; open it without key")
        if key is not None and not self._is_right(key):
            raise KeyNeededError(f"{self.path}: this is not the key that the queue was made with")

    def _is_right(self, key: bytes) -> bool:
        """Whether a segment proves the key, by its page or, in one that was made before pages did,
        by a frame. One is enough: what the others say then is damage. A queue that has nothing to
        prove it with takes any."""
        answers = set()
        for info in self.list_segments():
            with suppress(CorruptError, FormatError, FileNotFoundError):
                answer = self._proof(info, key)
                if answer:
                    return True
                answers.add(answer)
        return False not in answers

    def _proof(self, info: SegmentInfo, key: bytes) -> bool | None:
        page = segments.read_page(info.path)
        answer = self.header_of(info, page).is_proved(key, page)
        if answer is not None or info.size <= HEADER_BYTES:
            return answer  # Cut short in its page, it holds no frame that could prove anything.
        segment = self.open_segment(info, writable=False)
        return _core.opens_frames(segment, segments.last_possible(info))

    def _oldest_header(self) -> Header:
        error: Exception | None = None
        for info in self.store.segments(fresh=True):
            try:
                return Header.unpack(segments.read_page(info.path), info.path)
            except (CorruptError, FormatError) as found:
                error = error or found
                if isinstance(found, FormatError) and "version" in found.found:
                    raise
        raise error or FormatError(self.path, "no segment", "check the path")

    # ── segments ───────────────────────────────────────────────────────────────────────────

    def list_segments(self) -> list[SegmentInfo]:
        return segments.list_segments(self.path)

    def path_of(self, base: int) -> Path:
        return self.path / "log" / f"{base:020d}.seg"

    def header_of(self, info: SegmentInfo, page: bytes | None = None) -> Header:
        """The header of a segment of this queue."""
        header = Header.unpack(page or segments.read_page(info.path), info.path)
        if (header.flags ^ self.header.flags) & structs.ENCRYPTED:
            kinds = ("encrypted segments", "segments in plain text")
            expected, found = kinds if self.is_encrypted else kinds[::-1]
            raise CorruptError(info.path, segments.FLAGS_AT, f"one of {found}", expected)
        if header.queue_id != self.header.queue_id:
            found = f"queue id {header.queue_id.hex()}"
            raise CorruptError(info.path, 16, found, self.header.queue_id.hex())
        return header

    @cached_property
    def index(self) -> Index:
        """What full segments say about themselves."""
        return Index(self.sidecar, self.header.queue_id)

    def describe(self, info: SegmentInfo) -> SegmentInfo:
        """With what the index knows, or header and summary tell."""
        known = self.index.find(info) if info.end is not None else None
        try:
            return known or self._read_about(info)
        except FileNotFoundError:
            if not self.store.is_trimmed(info):
                raise
            return info  # The next read of it raises.

    def _read_about(self, info: SegmentInfo) -> SegmentInfo:
        page = segments.read_page(info.path)
        header = Header.unpack(page, info.path)
        return segments.with_facts(info, header.base_number, segments.read_summary(page) or {})

    def open_segment(self, info: SegmentInfo, *, writable: bool) -> _core.Segment:
        known = self._begun if writable else None
        header = known if known and known.base == info.base else self.header_of(info)
        frames = _core.penstock_frames(
            header.queue_id, header.base,
            compress=self.options.compression == "lz4",
            encrypted=bool(header.flags & structs.ENCRYPTED),
            key=self.options.key, salt=header.salt,
        )  # fmt: skip
        return _core.Segment(
            info.path, info.base, HEADER_BYTES, frames, end=info.end, writable=writable
        )

    def publisher(self) -> _core.Publish:
        """The first frame's size word."""
        return _core.publish_size_word()

    # ── without a header ───────────────────────────────────────────────────────────────────

    def _open_plain(self, info: SegmentInfo) -> _core.Segment:
        frames = _core.penstock_frames(self.header.queue_id, info.base)
        return _core.Segment(info.path, info.base, HEADER_BYTES, frames, end=info.end)

    def rescue_segment(self, info: SegmentInfo) -> _core.Segment | None:
        """Its name tells the base. Encrypted frames need more: the salt, which the header had."""
        return None if self.is_encrypted or info.size <= HEADER_BYTES else self._open_plain(info)

    def guess_header(self, info: SegmentInfo) -> Header:
        """What the header must have said, from the name and the first whole frame."""
        limit = segments.last_possible(info)
        seen = _core.walk(self._open_plain(info), info.base, limit, past_damage=True)
        return Header(
            self.header.queue_id, info.base, seen.first_number or 0, self.header.flags,
            os.urandom(16), seen.first_ns or 0, info.size,
        )  # fmt: skip

    def rebuild_header(self, info: SegmentInfo) -> bool:
        """Writes the header anew; the summary behind it stays."""
        if self.is_encrypted or info.size <= HEADER_BYTES:
            return False
        head = self.guess_header(info).pack()[: structs.HEADER.size]
        _core.write_file(info.path, 0, head, synced=True)
        return True

    # ── rolling and sealing ────────────────────────────────────────────────────────────────

    def prepare_segment(
        self, tail: int, number: int, needed: int, *, body: bytes | None = None
    ) -> tuple[Path, NewSegment]:
        """The next file: one that was zeroed in the background, or a fresh one.

        With `body` it takes the place of frames that are there already (recovery).
        """
        shared = self.store.shared
        if body is None and shared is not None and shared.segment_base == tail:
            # The last one is empty, and too small: its successor needs a name of its own.
            tail += len(structs.SEALED_WORD)
        body = body or b""
        last: SegmentInfo | None
        # A put waits for its roll, and each call of the system lets other threads go first: so it
        # asks the last segment, which is mapped, and for its size only where that is needed.
        if self.store.writer is not None and shared is not None and shared.segment_base < tail:
            last = self.store.live_segment(shared.segment_base)
            start = self.store.open_listed(last).read(0, structs.HEADER.size)
        else:
            last = next((info for info in reversed(self.list_segments()) if info.base < tail), None)
            start = b"" if last is None else files.read_start(last.path, structs.HEADER.size)
        if needed + HEADER_BYTES + 8 > 2**31 - 1:
            raise UnsupportedError(f"{needed} bytes do not fit into any segment")
        least = needed + 2 * HEADER_BYTES
        ready = None if body else prepared.take_ready(self.sidecar, lambda size: size >= least)
        if ready is not None:
            fresh, size = ready
        else:
            most, before = segments.limit_of(self.options), 0 if last is None else last.size
            fresh = prepared.fresh(self.sidecar)
            size = segments.next_size(before, max(needed, len(body)), most)
            size = segments.make_file(fresh, size, max(needed, len(body)))
        header = Header(
            self.header.queue_id, tail, number, self.header.flags, os.urandom(16),
            self.clock.wall_now_ns(), size, _check(start, tail) if start else 0,
        )  # fmt: skip
        self._next = header
        _core.write_file(fresh, 0, header.pack(self.options.key) + body)
        return fresh, NewSegment(self.path_of(tail), tail, tail, structs.SEALED_WORD)

    def began(self, new: NewSegment, old_base: int, tail: int, number: int, needed: int) -> None:
        self._begun = self._next

    def tend(self) -> None:
        shared = self.store.shared
        if shared is not None and shared.segment_base != self._sealed_below:
            base = shared.segment_base
            self.seal_quietly(self.store.segments())
            self._sealed_below = base

    def make_next(self, path: Path, last_bytes: int, *, is_quick: bool) -> None:
        size = segments.next_size(last_bytes, 0, segments.limit_of(self.options))
        is_synced = self.options.durability is Durability.ALWAYS
        zeroed = prepared.BEGINNING_BYTES if is_quick and not is_synced else size
        segments.make_file(path, size, 0, zeroed=zeroed, synced=is_synced)

    def seal_quietly(self, infos: Sequence[SegmentInfo]) -> None:
        """Gives every full segment its summary and its place in the index."""
        # Damage is not this call's business: `verify` reports it with file and byte, and what
        # another process has trimmed needs no seal. Nor does a full disk matter: summaries and the
        # index are hints, made when there is room.
        with suppress(CorruptError, FormatError, OSError):
            self._seal_full(infos)

    def _seal_full(self, infos: Sequence[SegmentInfo]) -> None:
        sealed: list[SegmentInfo] = []
        for info in itertools.islice(reversed(infos), 1, None):
            if self.store.is_trimmed(info) or self.index.find(info) is not None:
                break
            page = segments.read_page(info.path)
            if len(page) < HEADER_BYTES:
                continue  # Cut short: `verify` reports it, and it has no place for a summary.
            # A summary that does not check is being written by another process, or was never whole.
            if segments.read_summary(page) is None:
                assert info.end is not None
                segment = self.store.open_whole(info, writable=True)
                seen = _core.walk(segment, info.first, info.end, past_damage=True)
                summary = segments.pack_summary(seen, is_secret=self.is_encrypted)
                segment.store(structs.SUMMARY_AT, summary)
            sealed.append(info)
        if sealed:
            self.index.add(self._read_about(info) for info in reversed(sealed))

    def leave(self, shared: _core.Shared) -> None:
        self.seal_quietly(self.store.segments())
        self.index.tidy(self.store.segments_above(0))

    def contradictions(self, start: int = 0) -> list[Damage]:
        """Every segment's header, and that each one continues the one before it."""
        found, last = list[Damage](), b""
        for info in self.list_segments():
            if info.end is not None and info.end <= start:
                continue
            before, last = last, b""
            try:
                page = segments.read_page(info.path)
                header = self.header_of(info, page)
            except FileNotFoundError:
                if not self.store.is_trimmed(info):
                    raise
                continue
            except (CorruptError, FormatError) as error:
                at = getattr(error, "at", 0)
                found.append(Damage(info.path, at, HEADER_BYTES, str(error), "a segment header"))
                continue
            if self.options.key and header.is_proved(self.options.key, page) is False:
                text = "a key check of another key or header"
                found.append(Damage(info.path, structs.KEY_CHECK_AT, 24, text, "the queue's key"))
            expected = _check(before, info.base)
            if before and header.previous not in (0, expected):
                text = f"link {header.previous:08x} to the segment before"
                found.append(Damage(info.path, 64, 4, text, f"{expected:08x}"))
            last = page[: structs.HEADER.size]
        return found


def _check(header: bytes, end: int) -> int:
    """What the next segment's header has of a segment: its own header, and where it ends."""
    return _core.crc32c(header + end.to_bytes(8, "little"))
