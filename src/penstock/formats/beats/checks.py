"""What is wrong with a Beats queue, with file and byte."""

from __future__ import annotations

import contextlib

from penstock import _core
from penstock.disk import files
from penstock.errors import KeyNeededError
from penstock.formats import known_damage
from penstock.formats.beats import closing, noted, segments
from penstock.formats.beats.queue_files import BeatsFiles
from penstock.formats.beats.segments import Header, Unreadable
from penstock.formats.beats.structs import POSITION_BITS
from penstock.formats.values import Damage, SegmentInfo, Verdict


def check_key(beats: BeatsFiles) -> None:
    """A wrong key opens no frame at all; damage leaves some."""
    known, key = beats.noted(), beats.options.key
    if "id" in known and known.get("key_check") == (key and segments.key_check(key)):
        return  # As we noted. After a power cut there may be no frame that could tell.
    encrypted = [header for header in beats.readable() if header.kind.is_encrypted]
    with_data = [one for one in encrypted if files.size_of(one.path) > one.kind.data_at]
    if any(header.fits for header in with_data):
        return
    try:
        if any(_opens_any(beats, header) for header in with_data):
            return
    except FileNotFoundError:
        return  # It was read and deleted meanwhile, by a process that had the key.
    if with_data:
        raise KeyNeededError(
            f"{with_data[0].path}: no frame opens with this key; give the one it was written with"
        )


def _opens_any(beats: BeatsFiles, header: Header) -> bool:
    kind, end = header.kind, header.end_of(header.size)
    if kind.is_stream:
        return False  # Its first bytes are fixed, and they do not fit.
    frames = _core.beats_frames(kind.encoding, packed=kind.is_packed, **beats.secrets_of(header))
    segment = _core.Segment(header.path, header.base, kind.data_at, frames, end=end)
    return bool(_core.beats_whole_frames(segment, header.base, end))


def unreadable(beats: BeatsFiles, start: int, *, briefly: bool) -> list[tuple[Damage, bool]]:
    """Files from `start` on whose header says nothing, and whether a crash explains it.

    An empty newest one is a Beat's that ended before it had written anything, unless we know that
    events were in it. `briefly`: the oldest, the newest and empty ones; the time that opening takes
    does not grow with the queue.
    """
    found, paths = [], segments.find(beats.path)
    ends = (min(paths, default=None), max(paths, default=None))
    for number, path in paths.items():
        with contextlib.suppress(FileNotFoundError):  # Read and freed meanwhile.
            size = path.stat().st_size
            if number < start >> POSITION_BITS or (briefly and size and number not in ends):
                continue
            header = beats.header(path)
            is_begun = not size and number == ends[1] and not noted.had_events(beats, number)
            if isinstance(header, Unreadable) and not is_begun:
                damage = Damage(path, 0, size, header.found, "a segment of version 0 to 3")
                found.append((damage, header.is_torn))
    return found


def torn_end(beats: BeatsFiles, info: SegmentInfo, segment: _core.Segment) -> list[Damage]:
    """The last frame of a segment if a crash cut it short."""
    header = beats.header(info.path)
    if info.end is None or (isinstance(header, Header) and beats.count_of(header)):
        return []
    return _faults(info, _core.walk(segment, info.first, info.end, past_damage=True), 0)[1]


def _faults(
    info: SegmentInfo, seen: _core.Walked, count: int | None
) -> tuple[list[Damage], list[Damage]]:
    """Damage that a walk met, and apart from it what a crash leaves: a frame or a stream that runs
    past the end of a file that was not closed."""
    found = known_damage.met(info, seen)
    whole = len(found) - (seen.stop == "cut" and not count)
    return found[:whole], found[whole:]


def judge(
    beats: BeatsFiles, info: SegmentInfo, segment: _core.Segment, last: int, seen: _core.Walked,
    verdict: Verdict,
) -> None:  # fmt: skip
    """Adds what is wrong with a segment: its frames, its header, its stream, its tags."""
    header = beats.header(info.path)
    assert isinstance(header, Header)
    is_open = info.end is None
    count = beats.count_of(header)
    corrupt, torn = _faults(info, seen, count)
    verdict.corrupt += corrupt
    verdict.torn += torn
    is_known = any(entry.segment == info.path.name for entry in beats.store.set_aside)
    if count and count != seen.frames and not (is_open or is_known or seen.faults):
        found = f"{count} frames in the header"
        verdict.corrupt.append(Damage(info.path, 4, 4, found, str(seen.frames)))
    if not header.kind.is_stream:
        verdict.corrupt += _wrong_macs(beats, info, header, segment, last)
    elif not is_open and not segment.is_mapped:
        beats.unpack(header, info.end)  # It may have been opened long ago.


def _wrong_macs(
    beats: BeatsFiles, info: SegmentInfo, header: Header, segment: _core.Segment, last: int
) -> list[Damage]:
    """Where the frames are not those that the tags were made for, all of them and no others."""
    path, key = segments.mac_path(info.path), beats.options.key
    if not header.kind.is_encrypted or key is None:
        return []
    tags = files.read_bytes(path) if path.exists() else None
    if tags is None and (last == info.first or not beats.options.tamper_evident):
        return []
    if info.end is None and tags is not None:
        # Others append to it, and may be closing it: what is behind `last` is not looked at.
        count = len(_core.beats_whole_frames(segment, info.first, last))
        tags = closing.open_macs(tags, count)
    wrong = _core.beats_check_macs(segment, tags or b"", key, header.iv, last)
    text = "what its tag was made for"
    return [Damage(info.path, segment.position(at), 0, found, text) for at, found in wrong]
