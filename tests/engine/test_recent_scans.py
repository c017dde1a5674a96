"""A scan begins in the segment of the one before, without a question to Python, where that is
right; whatever has happened in between, it gives what anyone else would read."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Literal

import pytest

from penstock import CorruptError, Queue, _core
from penstock.engine.positions import Where
from tests.engine.test_repair import flip, position, segment_files

Compression = Literal["none", "lz4"]
SMALL_SEGMENT = 64 << 10


def seen(queue: Queue, start: Where = "earliest") -> list[bytes]:
    return [message.body for message in queue.scan(start=start)]


def test_the_second_scan_of_a_segment_asks_python_for_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Queue(tmp_path / "q") as queue:
        queue.put_many([b"a", b"b"])
        assert seen(queue) == [b"a", b"b"]
        queue.put(b"c")

        def refuse(offset: int) -> _core.Segment:
            raise AssertionError(f"asked for {offset}")

        monkeypatch.setattr(queue.store, "segment_at", refuse)
        assert seen(queue) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("seed", range(6))
def test_scans_amid_rolls_trims_and_purges_see_what_a_fresh_reader_sees(
    tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    compression: Compression = "lz4" if seed % 2 else "none"
    with Queue(tmp_path / "q", segment_bytes=SMALL_SEGMENT, compression=compression) as queue:
        for number in range(120):
            step = chance.random()
            if step < 0.6:
                queue.put_many([b"%d " % number * chance.randrange(400)] * chance.randrange(1, 60))
            elif step < 0.7:
                queue.trim(chance.choice([*(one.offset for one in queue.scan()), "latest"]))
            elif step < 0.73:
                queue.purge()
            starts: list[Where] = [one.offset or 0 for one in queue.scan()]
            start = chance.choice([*starts, "earliest"])
            with Queue(tmp_path / "q", read_only=True) as fresh:
                assert seen(queue, start) == seen(fresh, start)


def test_a_scan_after_a_repair_passes_what_was_set_aside(tmp_path: Path) -> None:
    with Queue(tmp_path / "q") as queue:
        offsets = [queue.put(b"body %d" % number) for number in range(10)]
        queue.sync()
        assert len(seen(queue)) == 10
        segment = segment_files(tmp_path / "q")[0]
        flip(segment, position(segment, offsets[3]) + 38)
        with pytest.raises(CorruptError):
            seen(queue)
        queue.repair()
        assert seen(queue) == [b"body %d" % number for number in range(10) if number != 3]
        assert seen(queue, offsets[4]) == [b"body %d" % number for number in range(4, 10)]
