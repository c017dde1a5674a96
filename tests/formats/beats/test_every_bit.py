"""Every bit of a golden segment flipped, every byte cut off, in every layout.

The segment has three events of an original program. Whatever is done to it, nothing crashes or
hangs, no event is given that was not written, and what is missing is reported where the format
can tell. Bits of the header go through a queue that is opened, bits of frames and streams through
the core alone; `make test-slow` takes every bit through the queue.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock import KeyNeededError, Queue, _core
from penstock.formats.beats.structs import IV_BYTES, KINDS, POSITION_MASK, Kind
from tests import counting
from tests.formats.beats.helpers import NAMES
from tests.golden_data import golden_cases

CASES = {case.layout: case for case in golden_cases("beats") if case.name == "empty-key"}
MEMORY = Path("/dev/shm")
Found = tuple[dict[int, bytes], bool]
"""Payloads by offset, and whether anything was reported."""


@dataclass
class Sample:
    """A queue of one segment, and what it holds as long as nobody touches it."""

    file: Path
    kind: Kind
    key: bytes | None
    raw: bytes
    whole: dict[int, bytes]

    @property
    def ends(self) -> list[int]:
        """The byte of the file behind each frame, where frames are in the file as they are."""
        iv = self.kind.data_at - self.kind.header_bytes
        starts = [(offset & POSITION_MASK) + iv for offset in self.whole]
        return [*starts[1:], len(self.raw)]

    def flipped(self, bit: int) -> bytes:
        broken = bytearray(self.raw)
        broken[bit // 8] ^= 1 << bit % 8
        return bytes(broken)

    def by_queue(self, raw: bytes) -> Found:
        """What a reader of the queue gets once the file has these bytes."""
        self.file.write_bytes(raw)
        return read(self.file.parent, self.key)

    def by_core(self, raw: bytes) -> Found:
        """What the core makes of the segment, its header being whole."""
        segment, notes = self.open(raw)
        assert segment.end is not None
        scan = _core.Scan(Host(segment), segment.base, segment.end, tolerant=True)
        found = {message.offset or 0: message.payload for message in scan}
        seen = _core.walk(segment, segment.base, segment.end, past_damage=True, open_frames=True)
        assert (seen.frames == len(found)) or scan.faults
        return found, bool(notes or scan.faults or seen.faults)

    def open(self, raw: bytes) -> tuple[_core.Segment, list[tuple[int, int, str, str]]]:
        kind, base = self.kind, self.kind.base(0)
        iv = raw[kind.data_at - IV_BYTES : kind.data_at] if kind.is_encrypted else None
        if kind.is_stream:
            self.file.write_bytes(raw)
            return _core.beats_stream(
                self.file, base, kind.header_bytes, data_at=kind.data_at, key=self.key, iv=iv
            )
        frames = _core.beats_frames(
            kind.encoding, packed=kind.is_packed, key=self.key, iv=iv, data_at=kind.data_at
        )
        end = base + len(raw) - kind.data_at
        return _core.Segment.over(self.file, base, kind.data_at, frames, raw, end=end), []

    def check_flip(self, bit: int, found: Found) -> None:
        """What holds of a segment with one wrong bit."""
        counting.count("flips")
        events, reported = found
        assert set(events.values()) <= set(self.whole.values()), bit
        assert reported or events == self.whole, bit
        if bit // 8 < self.kind.data_at:
            return
        if self.kind.is_stream:
            # What a block unpacks to may be longer or shorter than it was: offsets behind move.
            kept = list(events.items())
            assert kept[:1] == list(self.whole.items())[:1] or bit // 8 < self.first_block_end, bit
        else:
            hit = sum(end <= bit // 8 for end in self.ends)
            rest = [item for index, item in enumerate(self.whole.items()) if index != hit]
            assert list(events.items()) == rest, bit

    @property
    def first_block_end(self) -> int:
        """The byte behind the first block of a stream."""
        at = self.kind.data_at
        plain = self.raw[at : at + 11]
        if self.key is not None:
            plain = _core.beats_crypt(self.key, self.raw[at - IV_BYTES : at], plain)
        return at + 11 + (int.from_bytes(plain[7:11], "little") & 0x7FFFFFFF)


@dataclass
class Host:
    """A queue of one segment, as the core asks for it."""

    segment: _core.Segment

    def segment_at(self, offset: int) -> _core.Segment:
        return self.segment


def read(path: Path, key: bytes | None) -> Found:
    try:
        with Queue(path, read_only=True, key=key) as queue:
            scan = queue.scan(tolerant=True)
            found = {message.offset or 0: message.payload for message in scan}
            return found, bool(scan.damage) or not queue.verify().is_ok
    except (KeyNeededError, ValueError, OSError):
        return {}, True


@pytest.fixture(params=sorted(CASES))
def sample(request: pytest.FixtureRequest) -> Iterator[Sample]:
    case = CASES[request.param]
    folder = Path(tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else None))
    try:
        path = case.copy(folder)
        path.chmod(0o700)
        file = path / "0.seg"
        file.chmod(0o600)
        whole, reported = read(path, case.key)
        assert not reported
        assert len(whole) == 3
        yield Sample(file, KINDS[NAMES[request.param]], case.key, file.read_bytes(), whole)
    finally:
        shutil.rmtree(folder)


def test_no_flipped_bit_of_a_header_gives_a_wrong_event_or_is_passed_over(sample: Sample) -> None:
    for bit in range(sample.kind.data_at * 8):
        sample.check_flip(bit, sample.by_queue(sample.flipped(bit)))


def test_no_flipped_bit_of_a_frame_gives_a_wrong_event_or_hides_another(sample: Sample) -> None:
    for bit in range(sample.kind.data_at * 8, len(sample.raw) * 8):
        sample.check_flip(bit, sample.by_core(sample.flipped(bit)))


@pytest.mark.slow
def test_no_flipped_bit_gives_a_wrong_event_by_the_queue_either(sample: Sample) -> None:
    for bit in range(len(sample.raw) * 8):
        sample.check_flip(bit, sample.by_queue(sample.flipped(bit)))


def test_a_segment_cut_at_any_byte_gives_every_event_before_the_cut(sample: Sample) -> None:
    kind = sample.kind
    for cut in range(len(sample.raw)):
        events, reported = sample.by_queue(sample.raw[:cut])
        assert list(events.items()) == list(sample.whole.items())[: len(events)], cut
        if not kind.is_stream:
            assert len(events) == sum(end <= cut for end in sample.ends), cut
        # A file that ends where a frame or a block does looks like one that was never longer.
        is_seam = cut in ([kind.data_at, *sample.ends] if not kind.is_stream else seams(sample))
        assert reported or events == sample.whole or (is_seam and not kind.is_counted), cut


def seams(sample: Sample) -> tuple[int, ...]:
    """Where a stream may stop after a crash: before it begins, behind its head and its blocks."""
    begin = sample.kind.data_at
    return begin, begin + 7, sample.first_block_end


def test_a_block_of_a_stream_that_is_cut_short_gives_its_whole_events(tmp_path: Path) -> None:
    path = tmp_path / "q"
    with Queue(path, format="beats", layout="2-released-lz4") as queue:
        queue.put_many([b'{"n": %d}' % number for number in range(50)])
    raw = (path / "0.seg").read_bytes()
    block_end = _core.beats_open_end(path / "0.seg", 12)
    counts = []
    for cut in range(23, block_end, 7):
        (path / "0.seg").write_bytes(raw[:cut])
        events, reported = read(path, None)
        assert reported
        assert list(events) == sorted(events)
        counts.append(len(events))
    assert counts[0] == 0
    assert counts[-1] >= 49
    # Zeros in place of the missing bytes may happen to be right, so one may be there early.
    assert all(later >= count - 1 for count, later in itertools.pairwise(counts))
    assert len(set(counts)) > 40
