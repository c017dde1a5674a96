"""How segments end: counts, streams, what a crash left, what Beats did meanwhile."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from penstock import _core
from penstock.disk import files
from penstock.formats.beats import segments
from penstock.formats.beats.queue_files import BeatsFiles
from penstock.formats.beats.segments import Header
from penstock.formats.beats.structs import MACS, POSITION_BITS, POSITION_MASK, Kind
from penstock.formats.past import Past, lead
from penstock.formats.values import Damage
from penstock.options import Durability
from penstock.sidecar import plain_copies, quarantine

COUNT_AT = 4
TAG_BYTES = 32
"""Length of the tag of each frame in a tamper-evident segment."""


def open_macs(tags: bytes, count: int) -> bytes:
    """The tags of a closed segment as they were when it had `count` frames, and was open."""
    at = MACS.offset_of("frames")
    return tags[:at] + bytes(MACS.size - at) + tags[MACS.size : MACS.size + count * TAG_BYTES]


def name_plain(beats: BeatsFiles, number: int) -> None:
    """Syncs the names of a plain copy and of its segment: later syncs are of the copy alone."""
    with suppress(FileNotFoundError):  # Others may have filled and deleted it.
        _core.sync_file(segments.path_of(beats.path, number))
    for folder in (plain_copies.folder_of(beats.sidecar), beats.sidecar, beats.path):
        _core.sync_folder(folder)


def close_segment(beats: BeatsFiles, base: int, tail: int, next_number: int | None = None) -> None:
    """Closes a full segment: the file ends at `tail`, and its header says how many frames. Without
    `next_number` a roll has written that, and at `always` synced it.

    The process that began it may have died before; another one may be done with it, and delete it.
    """
    path, tail = segments.path_of(beats.path, base >> POSITION_BITS), max(base, tail)
    try:
        _close(beats, path, base, tail, next_number)
    except FileNotFoundError:
        if path.exists():
            raise
    shared = None if beats.is_recovering else beats.store.shared  # Else its head may be an old one.
    if shared is not None and shared.head > tail:
        _core.unlink_file(path)  # Else a file that was written anew would stay.
        _core.unlink_file(segments.mac_path(path))


def _close(beats: BeatsFiles, path: Path, base: int, tail: int, next_number: int | None) -> None:
    header = beats.header(path)
    assert isinstance(header, Header)
    kind = header.kind
    if kind.is_stream:
        _close_stream(beats, header, tail - base, is_ours=base in beats.own)
        return
    length = kind.data_at + tail - base  # No call for this: every roll comes here.
    is_longer, is_always = header.size > length, beats.options.durability is Durability.ALWAYS
    if is_longer:
        _core.resize_file(path, length)
    if tail == base:
        return
    if beats.options.tamper_evident and kind.is_encrypted:
        segment = beats.open_segment(header.info(tail, header.size), writable=False)
        key = beats.key_for(path)
        _core.beats_close_macs(segment, segments.mac_path(path), key, header.iv, tail)
    if next_number is not None and (count := frame_count(beats, tail, next_number)):
        _core.write_file(path, *count)
    if next_number is not None or is_longer or not is_always:
        # The next segment may reach the disk sooner, and nothing would tell that this one did not.
        _core.sync_file(path)


def frame_count(beats: BeatsFiles, tail: int, next_number: int) -> tuple[int, bytes] | None:
    """Where the header of the segment that ends at `tail` counts its frames, and what it says then.
    None where there is no place for it; who appends to a stream writes it each time."""
    number, (base, first) = tail >> POSITION_BITS, beats.first_number
    is_ours = base >> POSITION_BITS == number  # Then it is of our kind, and no file is asked.
    header = None if is_ours else beats.header_of(number)
    if header is None and not is_ours:
        return None
    kind = beats.kind if header is None else header.kind
    if tail & POSITION_MASK <= kind.header_bytes or kind.is_stream or not kind.is_counted:
        return None
    count = next_number - first
    if header is not None:  # Another process began it, and may still append to it.
        base, at, count = beats.counted
        at, count = (at, count) if base == header.base and at <= tail else (header.base, 0)
        segment = beats.open_segment(header.info(tail, header.size), writable=False)
        count += len(_core.beats_whole_frames(segment, at, tail))
        beats.counted = header.base, tail, count
    return COUNT_AT, count.to_bytes(4, "little")


def _close_stream(beats: BeatsFiles, header: Header, length: int, *, is_ours: bool) -> None:
    """Ends the stream of a segment, made anew where it may not be whole: it was not ours."""
    path, kind = header.path, header.kind
    copy = plain_copies.path_of(beats.sidecar, header.number)
    if not copy.exists():
        return
    plain = files.read_bytes(copy)[kind.header_bytes : kind.header_bytes + length]
    if not is_ours:
        write_stream(path, kind, plain)
    elif plain:
        at = _core.beats_open_end(path, kind.data_at)
        ending = _core.beats_stream_end(plain)
        _core.write_file(path, at, ending)
        _core.resize_file(path, _length(kind, at + len(ending), plain))
        _core.sync_file(path)
    # The stream is on the disk before its copy goes.
    plain_copies.drop(beats.sidecar, header.number)


def _length(kind: Kind, end: int, plain: bytes) -> int:
    """How long a file is whose stream ends at `end`: Beats take its length for that of the plain
    frames, and would pass over whatever lies above it."""
    return max(end, kind.header_bytes + len(plain))


def write_stream(path: Path, kind: Kind, plain: bytes) -> None:
    """Makes `path` a closed segment that is one stream."""
    raw = kind.pack_header(_frames_in(plain)) + (_core.beats_pack_stream(plain) if plain else b"")
    _core.replace_file(path, raw)
    if plain:
        _core.resize_file(path, _length(kind, len(raw), plain))


def _frames_in(plain: bytes) -> int:
    count = at = 0
    while at + 4 <= len(plain):
        size = int.from_bytes(plain[at : at + 4], "little")
        if size == 0 or at + size > len(plain):
            break
        at, count = at + size, count + 1
    return count


def drop_unfinished(beats: BeatsFiles, past: Past) -> None:
    """Cuts off what an append of ours left that was killed. Its put has not returned, and of a list
    some frames may be whole: it counts only where all that it announced is there."""
    words = past.words
    tail = words.tail if words is not None else 0
    announced, header = past.unfinished_end(tail), beats.header_of(tail >> POSITION_BITS)
    if announced == tail or header is None or tail < header.base:
        return
    is_stream, copy = header.kind.is_stream, plain_copies.path_of(beats.sidecar, header.number)
    path = copy if is_stream else header.path
    data_at = header.kind.header_bytes if is_stream else header.kind.data_at
    end = header.base + files.size_of(path) - data_at
    if not tail < end <= announced:
        return
    segment = beats.open_segment(header.info(end), writable=False)
    if _core.walk(segment, tail, end).end == announced:
        return
    _core.resize_file(path, data_at + tail - header.base)


def close_after_crash(beats: BeatsFiles, number: int) -> list[Damage]:
    """Closes what we had open when we died: streams from their copies, `number` by its frames.

    Bytes of a frame that was never whole are set aside and cut off.
    """
    dropped = []
    for copy in plain_copies.all_of(beats.sidecar):
        header = beats.header_of(int(copy.stem))
        if header is None or not header.kind.is_stream:
            plain_copies.drop(beats.sidecar, int(copy.stem))
            continue
        skipped = header.kind.header_bytes
        dropped += _cut_torn(beats, header, copy, skipped)
        packed, plain = _whole_frames(beats, header), files.read_bytes(copy)[skipped:]
        if plain.startswith(packed):
            _close_stream(beats, header, len(plain), is_ours=False)
        elif not packed.startswith(plain):
            _put_behind(beats, header, plain)
        plain_copies.drop(beats.sidecar, header.number)
    return dropped + close_one(beats, number)


def _whole_frames(beats: BeatsFiles, header: Header) -> bytes:
    """The frames of a stream as it is packed, as far as they are whole."""
    segment, base = beats.open_stream(header)[0], header.base
    end = _core.walk(segment, base, segment.end or base).end
    return segment.read(header.kind.header_bytes, end - base)


def _put_behind(beats: BeatsFiles, header: Header, plain: bytes) -> None:
    """Makes a segment of what is in our copy and was not acked: a Beat has begun its own segment
    under the name of ours."""
    known = beats.progress()
    acked = known.cursor - header.base if known is not None else 0
    if 0 < acked <= len(plain):
        plain = plain[acked:]
    if plain:
        newest = segments.listed(beats.path)[-1][0]
        write_stream(segments.path_of(beats.path, newest + 1), header.kind, plain)
        _core.sync_folder(beats.path)


def mend_streams(beats: BeatsFiles) -> None:
    """Makes the streams that a Beat has left such that it can read them itself when it comes back:
    it passes over those without a count, and over what lies above the file's length."""
    newest = next(beats.readable(newest_first=True), None)
    if newest is None or not newest.kind.is_stream:
        return  # A release that writes streams writes no other kind.
    for header in list(beats.readable()):
        path, kind = header.path, header.kind
        copy = plain_copies.path_of(beats.sidecar, header.number)
        if not kind.is_stream or kind.is_encrypted or copy.exists():
            continue
        plain = _whole_frames(beats, header)
        if plain and not beats.count_of(header):
            write_stream(path, kind, plain)
        elif header.size < kind.header_bytes + len(plain):
            _core.resize_file(path, kind.header_bytes + len(plain))


def drop_empty(beats: BeatsFiles) -> None:
    """Deletes the newest segments as far as they never had a frame, if there is one that has: Beats
    pass over them. No process has them open."""
    listed = [number for number, _ in segments.listed(beats.path)]
    empty = []
    for number in reversed(listed):
        if not beats.is_empty(number):
            break
        empty.append(number)
    for number in empty if len(empty) < len(listed) else []:
        path = segments.path_of(beats.path, number)
        plain_copies.drop(beats.sidecar, number)
        for file in (segments.mac_path(path), path):
            _core.unlink_file(file)


def close_one(beats: BeatsFiles, number: int) -> list[Damage]:
    """Closes a segment that is in the file as it is, by its frames."""
    header = beats.header_of(number)
    if header is None or header.kind.is_stream:
        return []
    dropped = _cut_torn(beats, header, header.path, header.kind.data_at)
    close_segment(beats, header.base, header.end_of(header.size), 0)
    _core.sync_file(header.path)
    return dropped


def _cut_torn(beats: BeatsFiles, header: Header, file: Path, data_at: int) -> list[Damage]:
    """Sets a torn end aside and cuts it off; damage with frames behind it stays as it is. `file`
    has the frames: the segment itself, or its plain copy."""
    size = file.stat().st_size
    end = header.base + size - data_at
    segment = beats.open_segment(header.info(end), writable=False)
    seen = lead(segment, header.base, end)
    if not seen.stop:
        return []
    _, found, expected, length = seen.faults[-1]
    at = size - length
    quarantine.copy(beats.sidecar, file, at, length, now_ns=beats.clock.wall_now_ns())
    _core.resize_file(file, at)
    return [Damage(file, at, length, found, expected)]
