"""A small queue with its checksums beside it: every byte wrong once, every byte cut off.

In every layout that we create nothing is silently wrong: a message is as it was put, or it is not
given out and its damage is told.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import PenstockError, Queue
from penstock.formats.zbus.structs import CREATED, INDEX_BYTES
from tests import counting

BLOCK_0 = "data/00000000000000000000.zbus"
FRAME = 204 + 6
Row = tuple[Any, ...]


class Sample:
    """Two messages in one block."""

    def __init__(self, path: Path, layout: str) -> None:
        self.path, self.layout, self.block = path, layout, path / BLOCK_0
        with Queue(path, format="zbus", layout=layout, durability="process") as queue:
            for number in range(2):
                queue.put(b"body %d" % number, id=f"id-{number}", tag="eu.orders")
        self.raw = self.block.read_bytes()
        self.rows, reported = self.read(self.raw)
        assert len(self.rows) == 2
        assert not reported
        assert len(self.raw) == 2 * FRAME

    def read(self, raw: bytes) -> tuple[list[Row], bool]:
        """What a reader gets once the block has these bytes, and whether anything is told."""
        self.block.write_bytes(raw)
        with Queue(self.path, read_only=True) as queue:
            scan = queue.scan(tolerant=True)
            rows = [(m.offset, m.number, m.timestamp_ns, m.id, m.tag, m.body) for m in scan]
            told = bool(scan.damage or queue.store.dropped) or not queue.verify().is_ok
            return rows, told

    def check_flip(self, bit: int) -> None:
        broken = bytearray(self.raw)
        broken[bit // 8] ^= 1 << bit % 8
        rows, told = self.read(bytes(broken))
        counting.count("flips")
        assert told, bit
        assert rows == [row for at, row in enumerate(self.rows) if at != bit // 8 // FRAME], bit


@pytest.fixture(params=CREATED)
def sample(request: pytest.FixtureRequest) -> Iterator[Sample]:
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None))
    try:
        yield Sample(folder / "mq", request.param)
    finally:
        shutil.rmtree(folder)


def test_no_wrong_byte_is_silently_wrong(sample: Sample) -> None:
    for byte in range(len(sample.raw)):
        sample.check_flip(8 * byte + (3 * byte + byte // 8) % 8)


@pytest.mark.slow
def test_no_wrong_bit_is_silently_wrong(sample: Sample) -> None:
    for bit in range(8 * len(sample.raw)):
        sample.check_flip(bit)


def test_a_block_cut_at_any_byte_gives_its_whole_messages_and_tells(sample: Sample) -> None:
    for size in range(len(sample.raw)):
        rows, told = sample.read(sample.raw[:size])
        assert rows == sample.rows[: size // FRAME], size
        assert told, size


def test_an_index_cut_anywhere_is_refused_and_nothing_is_changed(sample: Sample) -> None:
    index = next(sample.path.glob("*.idx"))
    raw = index.read_bytes()
    assert len(raw) == INDEX_BYTES
    for size in [*range(0, 1060, 7), 205_823, 205_824, INDEX_BYTES - 1]:
        index.write_bytes(raw[:size])
        with pytest.raises(PenstockError):
            Queue(sample.path, create=False)
        assert index.stat().st_size == size
        assert sample.block.read_bytes() == sample.raw


def test_a_wrong_bit_of_the_index_header_loses_no_message_in_silence(sample: Sample) -> None:
    index = next(sample.path.glob("*.idx"))
    raw = index.read_bytes()
    silent = []
    for byte in [*range(32), *range(1024, 1052)]:
        broken = bytearray(raw)
        broken[byte] ^= 1 << byte % 8
        index.write_bytes(broken)
        try:
            rows, told = sample.read(sample.raw)
        except PenstockError:
            continue
        assert set(rows) <= set(sample.rows)
        if rows != sample.rows and not told:
            silent.append(byte)
    assert silent == []
