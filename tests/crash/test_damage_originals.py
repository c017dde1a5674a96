"""Every bit of the originals' files flipped, in every layout: an answer or an error of ours.

Beats has checksums: no wrong event is given, and none is missing without a word. The files of the
other originals have none, or (zbus, layout `crc`) of ids and tags alone: what comes of a flip there
is counted, and the figure says how many were silent. What penstock itself writes in these formats
has checksums beside it (`test_damage_formats.py`, `tests/formats/zbus/test_every_byte.py`).
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock import PenstockError, Queue
from tests import counting
from tests.golden_data import FORMATS, GoldenCase, golden_cases

MEMORY = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else Path("/tmp")
CHOSEN = {
    "beats": ("multi", "empty-key", "mixed-rel", "mixed-seed"),
    "mfq": ("basic", "rollover", "tail_left_3"),
    "vqs": ("ring-consumed-two", "orig-6a75ead-three", "orig-57d1a94-wrapped",
            "orig-eb7ac2c-wrapped"),
    "zbus": ("basic", "readers", "meta"),
}  # fmt: skip
"""Small ones of each layout, with several messages, several segments, and places of groups."""
CASES = [case for format in FORMATS for case in golden_cases(format) if case.name in CHOSEN[format]]
LARGEST = 1 << 20
Rows = list[tuple[int | None, str | None, str | None, bytes]]


@dataclass
class Sample:
    """A queue of an original, and what it holds as long as nobody touches it."""

    case: GoldenCase
    path: Path
    whole: Rows

    @property
    def files(self) -> list[Path]:
        """Those with bytes in them; what counts the events that a Beat has sent is a place."""
        found = [self.path] if self.path.is_file() else sorted(self.path.rglob("*"))
        return [file for file in found if file.is_file() and 0 < file.stat().st_size < LARGEST]

    def bits(self) -> Iterator[tuple[Path, int]]:
        """Every bit of every file, up to where there are only zeros."""
        for file in self.files:
            used = len(file.read_bytes().rstrip(b"\0"))
            yield from ((file, bit) for bit in range(8 * used))

    def flip(self, bits: Iterable[tuple[Path, int]]) -> None:
        for file, of_file in itertools.groupby(bits, key=lambda one: one[0]):
            before = file.read_bytes()
            with file.open("r+b", buffering=0) as stream:
                for _, bit in of_file:
                    at = bit // 8
                    os.pwrite(stream.fileno(), bytes([before[at] ^ 1 << bit % 8]), at)
                    self.check(f"{file.name}, bit {bit}")
                    os.pwrite(stream.fileno(), before[at : at + 1], at)

    def check(self, where: str) -> None:
        rows, told = read(self.path, self.case.key)
        name = self.case.format
        counting.count(f"{name} flips")
        if told:
            counting.count(f"{name} told")
        elif rows == self.whole:
            counting.count(f"{name} harmless")
        else:
            counting.count(f"{name} silent")
            assert name != "beats", f"{where}: {rows}"
        if name == "beats":
            assert {row[-1] for row in rows} <= {row[-1] for row in self.whole}, where


def read(path: Path, key: bytes | None) -> tuple[Rows, bool]:
    """What a reader gets, and whether it is told that something is wrong."""
    try:
        with Queue(path, read_only=True, create=False, key=key) as queue:
            scan = queue.scan(tolerant=True)
            rows = [(m.timestamp_ns, m.id, m.tag, m.payload) for m in scan]
            told = bool(scan.damage or queue.store.dropped) or not queue.verify().is_ok
            return rows, told
    except PenstockError:
        return [], True


@pytest.fixture(params=CASES, ids=lambda case: f"{case.format}/{case.id}")
def sample(request: pytest.FixtureRequest) -> Iterator[Sample]:
    folder = Path(tempfile.mkdtemp(dir=MEMORY, prefix="penstock-golden-bits-"))
    try:
        path = request.param.copy(folder)
        rows, told = read(path, request.param.key)
        assert rows
        assert not told
        yield Sample(request.param, path, rows)
    finally:
        shutil.rmtree(folder)


def test_some_flipped_bits_of_an_original_end_in_an_answer(sample: Sample) -> None:
    sample.flip(sorted(random.Random(3).sample([*sample.bits()], 30)))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_flipped_bit_of_an_original_ends_in_anything_else(sample: Sample) -> None:
    sample.flip(sample.bits())
