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
from penstock.formats.beats.segments import Header, Unreadable
from penstock.formats.beats.structs import POSITION_BITS
from penstock.formats.past import Past
from penstock.formats.values import Damage
from penstock.sidecar import plain_copies, prepared, quarantine


def find(beats: BeatsFiles, past: Past) -> CutEnd | None:
    """Where the queue ends; none when nothing is in doubt. Changes nothing."""
    numbers = list(segments.find(beats.path))
    if not past.is_stopped or not numbers:
        return None
    cut, before = CutEnd(numbers[-1]), -1
    for number in numbers:
        header = beats.header(segments.path_of(beats.path, number))
        if number < past.durable >> POSITION_BITS:
            # Of a segment that was synced one of the two is whole. A copy that was never synced,
            # and was deleted when the stream was, may be back with zeros in it.
            if isinstance(header, Header) and header.kind.is_stream:
                _ends(beats, header, header.base, cut)
        elif not _is_whole(beats, header, before, past.durable, cut):
            break
        before = number
    later = [segments.path_of(beats.path, number) for number in numbers if number > cut.last]
    cut.dropped += [
        Damage(path, 0, path.stat().st_size, "a segment that was not whole yet", "nothing")
        for path in later
    ]
    return cut


def _is_whole(
    beats: BeatsFiles, header: Header | Unreadable, before: int, durable: int, cut: CutEnd
) -> bool:
    """Notes where a segment ends; false when the queue ends in it, or before it: in the segment
    `before`, -1 where it is the first. One with a header stays if it is that."""
    if isinstance(header, Unreadable):
        cut.last = before
        return False
    number, base = header.number, header.base
    end, whole_end = _ends(beats, header, max(durable, base), cut)
    cut.ends[number] = whole_end
    if whole_end >= end:
        return True
    cut.last = number if whole_end > base or before < 0 else before
    if cut.last == number:
        found, at = "bytes that are no whole frame, never synced", header.position(whole_end)
        cut.dropped.append(Damage(header.path, at, end - whole_end, found, "nothing"))
    return False


def _ends(beats: BeatsFiles, header: Header, start: int, cut: CutEnd) -> tuple[int, int]:
    """Where a segment ends by its length, and by its frames: up to `start` they were synced."""
    if not header.kind.is_stream:
        end = header.end_of(header.size)
        return end, _whole_end(beats.open_segment(header.info(end), writable=False), start, end)
    stream = beats.open_stream(header)[0]
    stream_end = stream.end or header.base
    copy = plain_copies.path_of(beats.sidecar, header.number)
    if not copy.exists():
        return stream_end, _whole_end(stream, start, stream_end)
    end = header.base + copy.stat().st_size - header.kind.header_bytes
    copied = beats.open_segment(header.info(end), writable=False)
    # Which of the two was synced up to `start` is not known: the copy while the segment is open,
    # the stream once it is closed. So both are walked from their beginning.
    in_stream = _whole_end(stream, header.base, stream_end)
    in_copy = _whole_end(copied, header.base, end)
    # A list is in the copy before its first word is, and before the stream has any of it. So as
    # long as the copy is longer than what the stream gives, that may be half a list.
    if in_stream > in_copy and in_stream >= end:
        cut.older_copies.add(header.number)
        return stream_end, in_stream
    return end, _whole_end(copied, start, end)


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
            header = beats.header(path)
            assert isinstance(header, Header)
            cut_segment = _cut_stream if header.kind.is_stream else _cut_frames
            cut_segment(beats, header, cut.ends[number])
    _core.sync_folder(beats.path)


def _cut_frames(beats: BeatsFiles, header: Header, end: int) -> None:
    """Cuts a segment off at the offset `end`."""
    path, length = header.path, header.position(end)
    if end == header.base:
        _core.unlink_file(segments.mac_path(path))  # Tags reached the disk, their frames did not.
    _set_aside(beats, path, length)
    if header.size > length:
        _core.resize_file(path, length)
    if end == header.base and header.kind.is_counted:
        # The count reached the disk, its frames did not.
        _core.write_file(path, closing.COUNT_AT, bytes(4))
    closing.close_one(beats, header.number)  # It syncs the file.


def _cut_stream(beats: BeatsFiles, header: Header, end: int) -> None:
    """Makes a stream anew that ends at the offset `end`: what stands in it may be more, or less."""
    kind, plain_bytes = header.kind, end - header.base
    copy = plain_copies.path_of(beats.sidecar, header.number)
    if copy.exists():
        _set_aside(beats, copy, kind.header_bytes + plain_bytes)
        plain = files.read_bytes(copy)[kind.header_bytes :][:plain_bytes]
    elif kind.is_encrypted:
        return  # It is a Beat's: such a stream is only read.
    else:
        plain = beats.open_stream(header)[0].read(kind.header_bytes, plain_bytes)
    closing.write_stream(header.path, kind, plain)
    plain_copies.drop(beats.sidecar, header.number)


def _set_aside(beats: BeatsFiles, file: Path, length: int) -> None:
    """Keeps what stands behind the first `length` bytes of `file`, should anyone want it."""
    more = file.stat().st_size - length
    if more > 0:
        quarantine.copy(beats.sidecar, file, length, more, now_ns=beats.clock.wall_now_ns())


def write_anew(beats: BeatsFiles, durable: int) -> None:
    """After a failed sync: what was not known to be on the disk is written anew, byte for byte."""
    for number, path in segments.find(beats.path).items():
        if number >= durable >> POSITION_BITS:
            copy = plain_copies.path_of(beats.sidecar, number)
            for file in (path, copy, segments.mac_path(path)):
                prepared.copy_anew(beats.sidecar, file)
