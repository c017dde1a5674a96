"""What a power cut may have done to the end of a queue, and how that is set right.

What was synced is there. Above that, files may have any length and hold zeros where frames should
be, headers too; a plain copy of a stream may be older than the stream itself, or newer. The queue
then ends at the first frame that is not whole: what stands behind it was never promised, and
giving it out would leave a hole. Readers compute this end, the next writer makes it so.
"""

from __future__ import annotations

from pathlib import Path

from penstock import _core
from penstock.disk import files
from penstock.formats.beats import closing, segments
from penstock.formats.beats.queue_files import BeatsFiles, CutEnd
from penstock.formats.beats.segments import Header
from penstock.formats.beats.structs import POSITION_BITS
from penstock.formats.past import Past
from penstock.formats.values import Damage, SegmentInfo
from penstock.sidecar import plain_copies, quarantine


def find(beats: BeatsFiles, past: Past) -> CutEnd | None:
    """Where the queue ends; none when nothing is in doubt. Changes nothing."""
    paths = segments.find(beats.path)
    if not past.is_stopped or not paths:
        return None
    cut = CutEnd(max(paths))
    for number, path in paths.items():
        if number < past.durable >> POSITION_BITS:
            _judge_copy(beats, number, path, cut)
            continue
        if not _is_whole(beats, number, path, past.durable, cut):
            break
    later = {n: p for n, p in paths.items() if n > cut.last}
    cut.dropped += [
        Damage(p, 0, p.stat().st_size, "a segment that was not whole yet", "nothing")
        for p in later.values()
    ]
    return cut


def _judge_copy(beats: BeatsFiles, number: int, path: Path, cut: CutEnd) -> None:
    """Of a segment that was synced one of the two is whole. A copy that was never synced, and was
    deleted when the stream was, may be back with zeros in it."""
    header = beats.header(path)
    if isinstance(header, Header) and header.kind.is_stream:
        _ends(beats, number, path, header, header.kind.base(number), cut)


def _is_whole(beats: BeatsFiles, number: int, path: Path, durable: int, cut: CutEnd) -> bool:
    """Notes where a segment ends; false when the queue ends in it, or before it."""
    header = beats.header(path)
    before = max((n for n in segments.find(beats.path) if n < number), default=number)
    if not isinstance(header, Header):
        cut.last = before
        return False
    base = header.kind.base(number)
    end, whole_end = _ends(beats, number, path, header, max(durable, base), cut)
    cut.ends[number] = whole_end
    if whole_end >= end:
        return True
    is_first = before == number
    cut.last = number if whole_end > base or is_first else before
    if cut.last == number:
        at = header.kind.data_at + whole_end - base
        found = "bytes that are no whole frame, never synced"
        cut.dropped.append(Damage(path, at, end - whole_end, found, "nothing"))
    return False


def _ends(
    beats: BeatsFiles, number: int, path: Path, header: Header, start: int, cut: CutEnd
) -> tuple[int, int]:
    """Where a segment ends by its length, and by its frames from `start` on."""
    base = header.kind.base(number)
    copy = plain_copies.path_of(beats.sidecar, number)
    own = _walk(beats, path, header, base, start)
    if not header.kind.is_stream or not copy.exists():
        return own
    end = base + copy.stat().st_size - header.kind.header_bytes
    info = SegmentInfo(path, base, base, end, 0)
    copied = end, _whole_end(beats.open_segment(info, writable=False), start, end)
    # A list is in the copy before its first word is, and before the stream has any of it. So as
    # long as the copy is longer than what the stream gives, that may be half a list.
    if own[1] > copied[1] and own[1] >= end:
        cut.older_copies.add(number)
        return own
    return copied


def _walk(beats: BeatsFiles, path: Path, header: Header, base: int, start: int) -> tuple[int, int]:
    if header.kind.is_stream:
        segment = beats.open_stream(base, path, header)[0]
        end = segment.end or base
    else:
        end = base + path.stat().st_size - header.kind.data_at
        info = SegmentInfo(path, base, base, end, 0)
        segment = beats.open_segment(info, writable=False)
    return end, _whole_end(segment, start, end)


def _whole_end(segment: _core.Segment, start: int, end: int) -> int:
    """Where whole frames end; what was synced and is gone all the same is damage, not the end."""
    return end if start >= end else _core.walk(segment, start, end).end


# ── setting it right ───────────────────────────────────────────────────────────────────────


def cut_off(beats: BeatsFiles, cut: CutEnd) -> None:
    """Makes the files end where the queue does, and syncs what stays."""
    for number, path in segments.find(beats.path).items():
        copy = plain_copies.path_of(beats.sidecar, number)
        if number > cut.last:
            for file in (path, copy, segments.mac_path(path)):
                quarantine.move(beats.sidecar, file, beats.clock.wall_now_ns())
        if number in cut.older_copies:
            plain_copies.drop(beats.sidecar, number)
        if number in cut.ends and number <= cut.last:
            _cut_segment(beats, number, path, cut.ends[number])
    _core.sync_folder(beats.path)


def _cut_segment(beats: BeatsFiles, number: int, path: Path, end: int) -> None:
    header = beats.header(path)
    assert isinstance(header, Header)
    kind, base = header.kind, header.kind.base(number)
    if kind.is_stream:
        _cut_stream(beats, number, path, header, end - base)
        return
    if end == base:
        _core.unlink_file(segments.mac_path(path))  # Tags came to the disk, and their frames not.
    _set_aside(beats, path, kind.data_at + end - base)
    if path.stat().st_size > kind.data_at + end - base:
        _core.resize_file(path, kind.data_at + end - base)
    if end == base and kind.is_counted:
        _core.write_file(path, closing.COUNT_AT, bytes(4))  # It came, its frames did not.
    _core.sync_file(path)
    closing.close_one(beats, number)


def _cut_stream(
    beats: BeatsFiles, number: int, path: Path, header: Header, plain_bytes: int
) -> None:
    """Makes a stream anew from its first `plain_bytes`: what stands in it may be more, or less."""
    kind, copy = header.kind, plain_copies.path_of(beats.sidecar, number)
    if copy.exists():
        _set_aside(beats, copy, kind.header_bytes + plain_bytes)
        plain = files.read_bytes(copy)[kind.header_bytes :][:plain_bytes]
    elif kind.is_encrypted:
        return  # A Beat's, which is only read.
    else:
        segment = beats.open_stream(kind.base(number), path, header)[0]
        plain = segment.read(kind.header_bytes, plain_bytes)
    closing.write_stream(path, kind, plain)
    plain_copies.drop(beats.sidecar, number)


def _set_aside(beats: BeatsFiles, file: Path, length: int) -> None:
    """Keeps what stands behind the first `length` bytes of `file`, should anyone want it."""
    more = file.stat().st_size - length
    if more > 0:
        quarantine.copy(beats.sidecar, file, length, more, now_ns=beats.clock.wall_now_ns())


def write_anew(beats: BeatsFiles, durable: int) -> None:
    """After a failed sync: what was not known to be on the disk is written anew, byte for byte."""
    for number, path in segments.find(beats.path).items():
        if number >= durable >> POSITION_BITS:
            _core.replace_file(path, files.read_bytes(path))
            copy = plain_copies.path_of(beats.sidecar, number)
            if copy.exists():
                plain_copies.write(beats.sidecar, number, files.read_bytes(copy))
