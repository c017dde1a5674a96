"""What is wrong with a Beats queue, with file and byte."""

from __future__ import annotations

import contextlib

from penstock import _core
from penstock.disk import files
from penstock.errors import KeyNeededError
from penstock.formats import known_damage
from penstock.formats.beats import closing, segments
from penstock.formats.beats.reading import BeatsFiles
from penstock.formats.beats.segments import Header, Unreadable
from penstock.formats.values import Damage, SegmentInfo, Verdict
from penstock.sidecar import notes


def check_key(format: BeatsFiles) -> None:
    """A wrong key opens no frame at all; damage leaves some."""
    known = notes.read(format.sidecar, notes.BEATS) or {}
    key = format.options.key
    if "id" in known and known.get("key_check") == (key and segments.key_check(key)):
        return  # Our word for it. After a power cut there may be no frame to tell by.
    encrypted = {n: h for n, _, h in format.readable() if h.kind.is_encrypted}
    if not encrypted or any(header.fits and _has_data(format, n, header) for n, header in
                            encrypted.items()):  # fmt: skip
        return
    with_data = {n: h for n, h in encrypted.items() if _has_data(format, n, h)}
    for number, header in with_data.items():
        try:
            if _opens_any(format, number, header):
                return
        except FileNotFoundError:
            return  # It was read and deleted meanwhile, by a process that had the key.
    if with_data:
        path = format.path / f"{min(with_data)}.seg"
        raise KeyNeededError(
            f"{path}: no frame opens with this key; give the one it was written with"
        )


def _has_data(format: BeatsFiles, number: int, header: Header) -> bool:
    return segments.size_of(format.path / f"{number}.seg") > header.kind.data_at


def _opens_any(format: BeatsFiles, number: int, header: Header) -> bool:
    path, kind = format.path / f"{number}.seg", header.kind
    base = kind.base(number)
    if kind.is_stream:
        return False  # Its first bytes are fixed, and they do not fit.
    end = base + path.stat().st_size - kind.data_at
    frames = _core.beats_frames(kind.encoding, packed=kind.is_packed, **format.secrets_of(header))
    segment = _core.Segment(path, base, kind.data_at, frames, end=end)
    return bool(_core.beats_whole_frames(segment, base, end))


def verify(format: BeatsFiles) -> Verdict:
    """Every frame of every file, checksums and events; headers, streams, tags."""
    verdict, end = Verdict(), format.store.end()
    infos = format.store.segments(fresh=True)
    done, total = 0, sum(info.size for info in infos)
    for info in infos:
        format.store.on_verified(done, total)
        done += info.size
        if info.first > end.tail:
            break  # It began after we did.
        last = end.tail if info.end is None else info.end
        with contextlib.suppress(FileNotFoundError):  # Read and freed meanwhile.
            _verify_segment(format, info, last, end.segment_base, verdict)
            header = format.header(info.path)
            if isinstance(header, Header) and not header.kind.is_stream:
                _verify_macs(format, info, header, last, verdict)
    for path in segments.find(format.path).values():
        with contextlib.suppress(FileNotFoundError):
            header = format.header(path)
            if isinstance(header, Unreadable):
                size = path.stat().st_size
                damage = Damage(path, 0, size, header.found, "a segment of version 0 to 3")
                (verdict.torn if header.is_torn else verdict.corrupt).append(damage)
    verdict.corrupt += format.missing_segments(None)
    verdict.corrupt = known_damage.new_in(verdict.corrupt, format.store.set_aside)
    verdict.torn = known_damage.new_in(verdict.torn, format.store.set_aside)
    return verdict


def _verify_segment(
    format: BeatsFiles, info: SegmentInfo, last: int, live: int, verdict: Verdict
) -> None:
    header = format.header(info.path)
    assert isinstance(header, Header)
    is_open = info.end is None
    segment = format.store.open_listed(info)
    seen = _core.walk(segment, info.first, last, past_damage=True, open_frames=True)
    verdict.frames += seen.frames
    verdict.messages += seen.messages
    count = count_of(format, info)
    faults = zip(seen.faults, seen.bad, strict=True)
    for index, ((at, found, expected, length), (offset, _)) in enumerate(faults):
        is_last = index == len(seen.faults) - 1 and seen.stop != ""
        # A crash leaves a frame that runs past the end, or a stream that does.
        is_torn = is_last and seen.stop == "cut" and not count
        damage = Damage(info.path, at, length, found, expected, offset)
        (verdict.torn if is_torn else verdict.corrupt).append(damage)
    is_known = any(entry.segment == info.path.name for entry in format.store.set_aside)
    if count and count != seen.frames and not (is_open or is_known or seen.faults):
        found = f"{count} frames in the header"
        verdict.corrupt.append(Damage(info.path, 4, 4, found, str(seen.frames)))
    if header.kind.is_stream and not is_open and not segment.is_mapped:
        for at, length, found, expected in format.open_stream(info.base, info.path, header)[1]:
            verdict.corrupt.append(Damage(info.path, at, length, found, expected))


def _verify_macs(
    format: BeatsFiles, info: SegmentInfo, header: Header, last: int, verdict: Verdict
) -> None:
    """Whether the frames are those that the tags were made for, all of them and no others."""
    path, key = segments.mac_path(info.path), format.options.key
    if not header.kind.is_encrypted or key is None:
        return
    tags = files.read_bytes(path) if path.exists() else None
    if tags is None and (last == info.first or not format.options.tamper_evident):
        return
    segment = format.store.open_listed(info)
    if info.end is None and tags is not None:
        # Others append to it, and may be closing it: what is behind `last` is not looked at.
        count = len(_core.beats_whole_frames(segment, info.first, last))
        tags = closing.open_macs(tags, count)
    for offset, found in _core.beats_check_macs(segment, tags or b"", key, header.iv, last):
        at = segment.position(offset)
        verdict.corrupt.append(Damage(info.path, at, 0, found, "what its tag was made for"))


def count_of(format: BeatsFiles, info: SegmentInfo) -> int | None:
    """Frames by the header: none where it has no count, 0 while the segment was open."""
    header = format.header(info.path)
    if not isinstance(header, Header) or not header.kind.is_counted:
        return None
    with files.reading(info.path) as file:
        return int(header.kind.header.unpack(file.read(header.kind.header_bytes))["frames"])
