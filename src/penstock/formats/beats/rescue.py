"""Frames that have no place any more: behind a broken block of a compressed stream.

A block that does not unpack to its end keeps the whole frames that it gave until then. It hides
how many bytes it held, so what stands behind it has no logical position. The blocks themselves are
independent: their frames are found by size and checksum and go, byte for byte, into a new segment
at the end of the queue.
"""

from __future__ import annotations

import secrets
from pathlib import Path

from penstock import _core
from penstock.formats.beats import segments
from penstock.formats.beats.queue_files import BeatsFiles
from penstock.formats.beats.structs import IV_BYTES, KINDS, Kind

PLAIN_FORM = {"2-released-lz4": "2-released", "2-released-aes-lz4": "2", "3-stream": "2"}
"""The layout that holds the same frames without the stream, as confidential as it was."""


def bring_back(beats: BeatsFiles, path: Path) -> int:
    """Saves what stands behind a broken block of `path`; how many frames that were."""
    header = beats.header_of(int(path.stem))
    if header is None or not header.kind.is_stream:
        return 0
    saved, pieces = _core.beats_stream_rest(path, **beats.secrets_of(header))
    # Looking for the next block may meet what the broken one still gave: that stays where it is.
    known = set(whole_frames(beats, saved))
    found = (frame for piece in pieces for frame in whole_frames(beats, piece))
    frames = [frame for frame in found if frame not in known]
    if frames:
        write_segment(beats, KINDS[PLAIN_FORM[header.kind.name]], frames)
    return len(frames)


def whole_frames(beats: BeatsFiles, plain: bytes) -> list[bytes]:
    """Every run of bytes that is a frame by both sizes and its checksum."""
    framing = _core.beats_frames("cbor")  # Nothing looks into the frames.
    segment = _core.Segment.over(beats.path, 0, 0, framing, plain, end=len(plain))
    found = _core.beats_whole_frames(segment, 0, len(plain))
    return [plain[at : at + size] for at, size, _ in found]


def write_segment(beats: BeatsFiles, kind: Kind, frames: list[bytes]) -> None:
    """A closed segment with these frames, behind all others."""
    data, head = b"".join(frames), kind.pack_header(len(frames))
    if kind.is_encrypted:
        iv = secrets.token_bytes(IV_BYTES)
        data = _core.beats_crypt(beats.key_for(beats.path), iv, data)
        head += iv
    _core.replace_file(beats.path / f"{max(segments.find(beats.path)) + 1}.seg", head + data)
