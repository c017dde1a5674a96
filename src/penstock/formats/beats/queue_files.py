"""The files of a Beats disk queue, and what this process knows of them.

Every segment is told by its own bytes, so one folder may hold all layouts. Mapped as they are,
or unpacked into memory where a segment is one compressed stream.
"""

from __future__ import annotations

import errno
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from penstock import _core
from penstock.disk import files
from penstock.errors import FormatError
from penstock.formats import known_damage
from penstock.formats.beats import segments, state
from penstock.formats.beats.segments import Header, Unreadable
from penstock.formats.beats.structs import MACS, POSITION_BITS, POSITION_MASK, Kind
from penstock.formats.contract import Format, Host
from penstock.formats.past import Past, lead
from penstock.formats.segment_list import LISTINGS_MAX
from penstock.formats.values import Damage, SegmentInfo
from penstock.options import DEFAULT_GROUP
from penstock.records import dataclass, field, replace
from penstock.sidecar import control, groups, notes, plain_copies

Found = TypeVar("Found")
MAX_SEGMENT_BYTES = 2 << 30
OPEN_AT_MOST = 2
"""The newest segments: they may still change."""


@dataclass(slots=True)
class CutEnd:
    """Where a queue ends after a power cut."""

    last: int
    """The segment that it ends in."""
    ends: dict[int, int] = field(default_factory=dict)
    """The end of each segment that was not synced as a whole."""
    older_copies: set[int] = field(default_factory=set)
    """Segments whose plain copy has less than they have themselves."""
    dropped: list[Damage] = field(default_factory=list)

    def cut(self, info: SegmentInfo) -> SegmentInfo | None:
        """A segment as far as it is part of the queue; none when it is not."""
        number = info.base >> POSITION_BITS
        if number > self.last:
            return None
        end = self.ends.get(number)
        return info if end is None else replace(info, end=end)


def _has_iv(header: Header) -> bool:
    """Whether the file has the IV that is known. The file system gives the inode of a segment that
    was deleted to the next file, which may be the one that takes its place under its id."""
    return files.read_start(header.path, header.kind.data_at).endswith(header.iv)


class BeatsFiles(Format):
    """The files of one queue: where each ends, and how it is opened."""

    kind: Kind
    """What new segments are."""

    def __init__(self, store: Host) -> None:
        """Nothing is known of the files yet."""
        super().__init__(store)
        self._odd: dict[int, list[Damage]] = {}
        """By id of a segment that was unpacked: what is wrong beside its frames."""
        self._headers: dict[int, tuple[int, Header | Unreadable]] = {}
        """By segment id, each with the inode that it was read from."""
        self._ended: dict[int, tuple[int, SegmentInfo]] = {}
        """The same for segments that are never written to again."""
        self._stream_ends: dict[tuple[int, int, int], int] = {}
        """By id, size and time of a stream's file: where its frames end."""
        self.own: dict[int, int] = {}
        """Segments that this process began, by base: how many bytes each may get."""
        self.is_recovering = False
        self.cut_end: CutEnd | None = None
        self.past: Past | None = None
        """What had happened when we recovered the queue."""
        self.first_number, self.counted = (-1, 0), (-1, 0, 0)
        """By base: the first number of our last segment; how far another's frames were counted."""

    def header(self, path: Path) -> Header | Unreadable:
        """What a segment's first bytes say; they never change once a frame is there."""
        return self._header(int(path.stem), path.stat().st_ino)

    def header_of(self, number: int) -> Header | None:
        """The segment with this id, if it is there and its header can be read."""
        try:
            header = self.header(segments.path_of(self.path, number))
        except FileNotFoundError:
            return None
        return header if isinstance(header, Header) else None

    def _header(self, number: int, inode: int) -> Header | Unreadable:
        known, found = self._headers.get(number, (None, None))
        is_same = known == inode and isinstance(found, Header) and found.fits
        if is_same and isinstance(found, Header) and (not found.iv or _has_iv(found)):
            return found
        path = segments.path_of(self.path, number)
        found = segments.identify(path, self.options.key)
        if isinstance(found, Header) and found.kind.is_encrypted:
            self.key_for(path)
        self._headers[number] = inode, found
        return found

    def trimmed(self, info: SegmentInfo) -> None:
        """With the tags of the segment goes what was known of it."""
        _core.unlink_file(segments.mac_path(info.path))
        number = info.base >> POSITION_BITS
        self._headers.pop(number, None)
        self._ended.pop(number, None)
        self.own.pop(info.base, None)

    def _live_base(self) -> int | None:
        """The base of the segment that a process has open, if one has."""
        if self.is_recovering:
            return None
        if self.store.shared is not None:
            return self.store.shared.segment_base
        words = self.live_words()
        return words.segment_base if words is not None else None

    def live_words(self) -> control.Words | None:
        """The shared words of a queue that a process has open, or that a crash left in this boot.

        None once a Beat has begun a segment since: it goes on from the newest there is, and
        deletes the oldest first.
        """
        while True:
            words = control.peek(self.sidecar)
            is_current = words is not None and words.boot == self.store.run
            if words is not None and (words.is_clean or is_current):
                self._drop_cut_end()
            if words is None or words.is_clean or not is_current:
                return None
            number = words.segment_base >> POSITION_BITS
            last, next = (segments.path_of(self.path, n) for n in (number, number + 1))
            if last.exists() and not next.exists():
                return words
            if control.peek(self.sidecar) == words:  # Else one of our processes has just begun it.
                is_unborn = words.reserved_end == control.ROLLING and last.exists()
                return words if is_unborn and self._has_no_frame(next) else None

    def _has_no_frame(self, path: Path) -> bool:
        header = self.header_of(int(path.stem))
        return not path.exists() if header is None else files.size_of(path) == header.kind.data_at

    def _drop_cut_end(self) -> None:
        """Forgets where a power cut had left the queue: a writer has made the files end there."""
        if self.cut_end is not None:
            self.cut_end = None
            self._ended.clear()
            self.store.forget_segments()

    def path_of(self, base: int) -> Path:
        return segments.path_of(self.path, base >> POSITION_BITS)

    def list_segments(self) -> list[SegmentInfo]:
        """By id; each one's end is where its file ends."""
        found = self.list_from(0)
        oldest = found[0].base >> POSITION_BITS if found else 0
        for known in (self._headers, self._ended):  # Others delete segments, too.
            for number in list(known):  # At once: other threads look, too.
                if number < oldest:
                    known.pop(number, None)
        return found

    def list_from(self, offset: int) -> list[SegmentInfo]:
        """From the id in `offset` on: nothing is asked of the files before it."""
        for _ in range(LISTINGS_MAX):
            live = self._live_base()
            found = list(self.infos(live, offset >> POSITION_BITS))
            if self._live_base() == live:
                break
            # One has begun meanwhile: where no process had the queue open, the size of what was the
            # last one was taken for its end. Else the list is of when `live` was the last one.
        return found

    def find_segment(self, offset: int) -> SegmentInfo | None:
        """The segment whose id is in `offset`, or the next one, if it ends above it."""
        number, live = offset >> POSITION_BITS, self._live_base()
        for nearest in (number, number + 1):
            with suppress(FileNotFoundError):
                inode = segments.path_of(self.path, nearest).stat().st_ino
                info = self._certain(self._info(nearest, inode, live))
                if info is not None and (info.end is None or info.end > offset):
                    return info
        return None

    def infos(
        self, live: int | None, first: int = 0, *, newest_first: bool = False
    ) -> Iterator[SegmentInfo]:
        listed = segments.listed(self.path)
        if live is not None:  # A newer one has its name already, but is not announced.
            del listed[bisect_left(listed, ((live >> POSITION_BITS) + 1, 0)) :]
        # The process that began the last one may still be closing the one before it.
        closed_below = 0 if self.is_recovering else len(listed) - OPEN_AT_MOST
        indices = range(bisect_left(listed, (first, 0)), len(listed))
        for index in reversed(indices) if newest_first else indices:
            number, inode = listed[index]
            was, info = self._ended.get(number, (None, None))
            if was != inode or index >= closed_below:
                path = segments.path_of(self.path, number)
                info = self._unless_gone(path, partial(self._info, number, inode, live))
                # Others may have begun two more since `live` was asked for.
                if info is not None and info.end is not None and index < closed_below:
                    self._ended[number] = inode, info
            info = self._certain(info)
            if info is not None:
                yield info

    def _unless_gone(self, path: Path, look: Callable[[], Found]) -> Found | None:
        """What `look` finds; none when the segment was deleted. A working copy that goes while
        one looks is no loss: the segment itself is whole by then."""
        while True:
            try:
                return look()
            except FileNotFoundError:
                if not path.exists():
                    return None

    def _certain(self, info: SegmentInfo | None) -> SegmentInfo | None:
        """The segment as far as it counts: without what a power cut left behind the end."""
        known = self.cut_end
        return info if info is None or known is None else known.cut(info)

    def _info(self, number: int, inode: int, live: int | None) -> SegmentInfo | None:
        """None for a file without a header that can be read."""
        header = self._header(number, inode)
        if isinstance(header, Unreadable):
            return None
        size = header.size
        if header.base == live:
            return header.info(None, None)
        return header.info(self._end_of(header, size), size)

    def _end_of(self, header: Header, size: int) -> int:
        if not header.kind.is_stream:
            return header.end_of(size)
        if self._goes_by_copy(header.number):
            copy = plain_copies.path_of(self.sidecar, header.number)
            return header.base + copy.stat().st_size - header.kind.header_bytes
        at = (header.number, size, header.path.stat().st_mtime_ns)
        if at not in self._stream_ends:
            self._stream_ends[at] = self.open_stream(header)[0].end or 0
        return self._stream_ends[at]

    def _goes_by_copy(self, number: int) -> bool:
        """Whether a stream is read from its plain copy."""
        is_older = self.cut_end is not None and number in self.cut_end.older_copies
        return not is_older and plain_copies.path_of(self.sidecar, number).exists()

    def has_more_in_copy(self, number: int) -> bool:
        """Whether the plain copy of a stream has frames that count."""
        if not self._goes_by_copy(number):
            return False
        if self.cut_end is not None and number in self.cut_end.ends:
            return self.cut_end.ends[number] > self.first_of(number)
        return files.size_of(plain_copies.path_of(self.sidecar, number)) > self.kind.header_bytes

    def secrets_of(self, header: Header) -> dict[str, Any]:
        """Key, IV and beginning of the frames, as the core wants them."""
        known: dict[str, Any] = {"data_at": header.kind.data_at}
        if header.kind.is_encrypted:
            known |= {"key": self.options.key, "iv": header.iv}
        return known

    def open_stream(self, header: Header) -> tuple[_core.Segment, list[tuple[int, int, str, str]]]:
        """Unpacks a segment that is one compressed stream; also returns what is odd about it."""
        extras = {k: v for k, v in self.side_files().items() if k == "extras"}
        known, skipped = self.secrets_of(header), header.kind.header_bytes
        return _core.beats_stream(header.path, header.base, skipped, **known, **extras)

    def unpack(self, header: Header, end: int | None) -> _core.Segment:
        """Opens such a segment, and notes what is odd about it."""
        segment, odd = self.open_stream(header)
        self._odd.pop(header.number, None)
        if odd and end is not None:  # One that is still written is not whole.
            self._odd[header.number] = [Damage(header.path, *fault) for fault in odd]
        return segment

    def noticed(self, start: int = 0) -> list[Damage]:
        """What is odd about streams that were unpacked and are still there."""
        odd = (found for number, found in [*self._odd.items()] if number >= start >> POSITION_BITS)
        there = (damage for found in odd for damage in found if damage.path.exists())
        return known_damage.new_in(there, self.store.set_aside)

    def open_segment(self, info: SegmentInfo, *, writable: bool) -> _core.Segment:
        found = self._unless_gone(info.path, partial(self._open_now, info, writable=writable))
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "the segment was deleted", str(info.path))
        return found

    def _open_now(self, info: SegmentInfo, *, writable: bool) -> _core.Segment:
        header = self.header(info.path)
        if isinstance(header, Unreadable):
            raise FormatError(info.path, header.found, "`penstock repair` sets it aside")
        kind, path, shift, known = header.kind, info.path, header.kind.data_at, {}
        if kind.is_stream:
            if not self._goes_by_copy(header.number):
                return self.unpack(header, info.end)
            path, shift = plain_copies.path_of(self.sidecar, header.number), kind.header_bytes
        else:
            known = self.secrets_of(header)
        frames = _core.beats_frames(
            kind.encoding, packed=kind.is_packed, wide_flags=kind.header_bytes == 12, **known
        )
        limit = self.own.get(info.base, MAX_SEGMENT_BYTES)  # For a reader the format's own.
        capacity = None if info.end is not None else max(limit, info.size)
        return _core.Segment(
            path, info.base, shift, frames, end=info.end, writable=writable, capacity=capacity,
            by_write=True, **self.side_files(),
        )  # fmt: skip

    def segment_of(self, offset: int) -> _core.Segment | None:
        """The segment whose id is in `offset`, also when that is its end."""
        begin = offset & ~POSITION_MASK
        if self.store.shared is None:
            info = next(iter(self.list_from(begin)), None)
        else:
            info = self.store.segments().beginning(begin)
            if info is not None and not info.path.exists():
                info = self.store.segments(fresh=True).beginning(begin)
        if info is None or info.base & ~POSITION_MASK != begin:
            return None
        return self.store.open_listed(info)

    def readable(self, *, newest_first: bool = False) -> Iterator[Header]:
        """Segments with a header that can be read; one may be deleted while we look."""
        listed = segments.listed(self.path)
        for number, inode in reversed(listed) if newest_first else listed:
            with suppress(FileNotFoundError):
                if isinstance(header := self._header(number, inode), Header):
                    yield header

    @property
    def identity(self) -> str:
        """Drawn when we first opened it; before that the folder itself."""
        known = self.noted().get("id")
        if isinstance(known, str):
            return known
        found = self.path.stat()
        return f"beats-{found.st_dev:x}-{found.st_ino:x}"

    def noted(self) -> dict[str, object]:
        """What we noted about the queue when we left it."""
        return notes.read(self.sidecar, notes.BEATS) or {}

    # ── groups ─────────────────────────────────────────────────────────────────────────────

    @property
    def state_path(self) -> Path:
        """Where Beats keeps its position."""
        return self.path / "state.dat"

    def progress(self) -> groups.GroupProgress | None:
        """Where the default group is, by our own files."""
        return groups.peek(self.sidecar / "groups" / DEFAULT_GROUP, self.store.run)

    @property
    def state_version(self) -> int:
        """Releases that write layout 0 know only version 0; one that has gone on from there has
        written version 1, and forgets where it is in a segment by the other."""
        found = state.read(self.state_path)
        return 0 if self.kind.version == 0 and (found is None or found.version == 0) else 1

    def segment_numbers(self) -> list[int]:
        """The ids of segments up to the newest one that has events, in order: of a hundred files
        only the last ones are looked into."""
        found = [number for number, _ in segments.listed(self.path)]
        while found and self.is_empty(found[-1]):
            found.pop()
        return found

    def is_empty(self, number: int) -> bool:
        """Whether a segment never had a frame: it is a header alone, and neither that nor a tag
        says that there was more."""
        header = self.header(segments.path_of(self.path, number))
        if not isinstance(header, Header) or header.size > header.kind.data_at:
            return False
        if header.kind.is_stream and self.has_more_in_copy(number):
            return False  # Its stream comes to the disk when it is closed.
        tags = files.size_of(segments.mac_path(header.path))
        return not self.count_of(header) and tags <= MACS.size

    def count_of(self, header: Header) -> int | None:
        """Frames by the header: none where it has no count, 0 while the segment was open."""
        raw = files.read_start(header.path, header.kind.header_bytes)
        count: int | None = header.kind.header.unpack(raw).get("frames")
        return count

    def first_of(self, number: int) -> int:
        """The offset of the first event of a segment."""
        header = self.header(segments.path_of(self.path, number))
        return header.base if isinstance(header, Header) else number << POSITION_BITS

    def frame_offsets(self, number: int, asked: int = -1) -> list[int]:
        """Where each whole frame of a segment begins, and where the last one ends; or only `asked`,
        where whole frames lead to that."""
        info = self._info(number, segments.path_of(self.path, number).stat().st_ino, None)
        if info is None:
            return [self.first_of(number)]
        segment = self.open_segment(info, writable=False)
        if asked >= info.first and lead(segment, info.first, asked).end == asked:
            return [asked]
        frames = _core.beats_whole_frames(segment, info.first, info.end or info.first)
        last = frames[-1][0] + frames[-1][1] if frames else info.first
        return [offset for offset, _, _ in frames] + [last]

    def start_of(self, found: state.StateFile) -> int:
        """The beginning of the segment that a state names, if it is there; else of the queue."""
        is_there = found.segment in self.segment_numbers()
        return self.first_of(found.segment) if is_there else self.store.end().head
