"""Checksums beside the frames: nothing that we wrote goes wrong in silence."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from penstock import CorruptError, Queue, _core
from penstock.sidecar.side_files import INTEGRITY, INTEGRITY_ENTRY

LAYOUTS = ("doc000", "doc001", "flag", "corr", "crc")
BLOCK_0 = "data/00000000000000000000.zbus"
SIDE = ".penstock/integrity/00000000000000000000.crc"


def make(path: Path, layout: str = "corr", count: int = 3, **options: Any) -> Path:
    with Queue(path, format="zbus", layout=layout, durability="process", **options) as queue:
        for number in range(count):
            queue.put(b"body %d" % number, id=f"id-{number}", tag="eu.orders")
    return path


def flip(path: Path, bit: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[bit // 8] ^= 1 << bit % 8
    path.write_bytes(raw)


def seen(queue: Queue) -> tuple[list[tuple[Any, ...]], list[Any]]:
    scan = queue.scan(tolerant=True)
    rows = [
        (m.offset, m.number, m.timestamp_ns, m.id, m.tag, tuple(m.headers.items()), m.body)
        for m in scan
    ]
    return rows, scan.damage


@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_flipped_bit_of_a_frame_is_silently_wrong(layout: str, tmp_path: Path) -> None:
    path = make(tmp_path / "mq", layout)
    whole = (path / BLOCK_0).read_bytes()
    with Queue(path, read_only=True) as queue:
        right, damage = seen(queue)
        assert len(right) == 3
        assert damage == []
    for bit in random.Random(layout).sample(range(len(whole) * 8), 150):
        (path / BLOCK_0).write_bytes(whole)
        flip(path / BLOCK_0, bit)
        with Queue(path, read_only=True) as queue:
            rows, damage = seen(queue)
            assert rows == [row for row in right if not row[0] <= bit // 8 < row[0] + 210]
            assert [d.path.name for d in damage] == [Path(BLOCK_0).name]
            verdict = queue.verify()
            assert len(verdict.corrupt) == 1
            assert verdict.corrupt[0].at // 210 == bit // 8 // 210
            with pytest.raises(CorruptError):
                list(queue.scan())


def test_the_checksum_of_layout_crc_guards_what_it_covers_without_ours(tmp_path: Path) -> None:
    path = make(tmp_path / "mq", "crc", checksums=False)
    shutil.rmtree(path / ".penstock")
    whole = (path / BLOCK_0).read_bytes()
    with Queue(path, read_only=True) as queue:
        right, _ = seen(queue)
    for bit in range(210 * 8, 210 * 8 + 200 * 8, 7):  # Every byte of the second one's header.
        (path / BLOCK_0).write_bytes(whole)
        flip(path / BLOCK_0, bit)
        with Queue(path, read_only=True) as queue:
            rows, damage = seen(queue)
            assert rows == [right[0], right[2]]
            assert len(damage) == 1


def test_a_consumer_is_told_and_goes_on_behind_the_damage(tmp_path: Path) -> None:
    path = make(tmp_path / "mq")
    flip(path / BLOCK_0, (210 + 206) * 8)
    with Queue(path) as queue:
        assert queue.get(0).body == b"body 0"
        with pytest.raises(CorruptError, match=r"zbus:210: found frame checksum"):
            queue.get(0)
        assert queue.get(0).body == b"body 2"


def test_the_entries_are_as_declared(tmp_path: Path) -> None:
    path = make(tmp_path / "mq")
    raw, frames = (path / SIDE).read_bytes(), (path / BLOCK_0).read_bytes()
    assert INTEGRITY.unpack(raw) == {
        "magic": b"PENSTCRC", "version": 1, "base": 0, "count": 3,
    }  # fmt: skip
    for number in range(3):
        entry = INTEGRITY_ENTRY.unpack(raw, INTEGRITY.size + number * INTEGRITY_ENTRY.size)
        crc = _core.crc32c(frames[210 * number : 210 * number + 210])
        assert entry == {"offset": 210 * number, "frame_bytes": 210, "crc": crc}


def test_what_was_written_without_checksums_is_unchecked_not_corrupt(tmp_path: Path) -> None:
    path = make(tmp_path / "mq", checksums=False)
    with Queue(path) as queue:
        assert queue.verify().unchecked == 3
        queue.put(b"checked")
        assert queue.verify().unchecked == 3
    with Queue(path, checksums=False) as queue:
        queue.put(b"not again")
    with Queue(path) as queue:
        queue.put(b"checked too")
        verdict = queue.verify()
        assert verdict.is_ok
        assert (verdict.messages, verdict.unchecked) == (6, 4)
    flip(path / BLOCK_0, (630 + 205) * 8)
    with Queue(path, read_only=True) as queue:
        assert [m.body for m in queue.scan(tolerant=True)][3:] == [b"not again", b"checked too"]


def test_an_entry_above_the_tail_never_judges_another_message(tmp_path: Path) -> None:
    path = make(tmp_path / "mq")
    raw = bytearray((path / SIDE).read_bytes())
    at = INTEGRITY.size + 3 * INTEGRITY_ENTRY.size
    raw[at : at + 16] = INTEGRITY_ENTRY.pack(offset=630, frame_bytes=999, crc=1)
    raw[24:32] = (4).to_bytes(8, "little")
    (path / SIDE).write_bytes(raw)
    with Queue(path) as queue:
        queue.put(b"the real one")
        assert queue.verify().is_ok
        assert [m.body for m in queue.scan()][3:] == [b"the real one"]


def test_entries_that_never_reached_the_disk_are_left_out(tmp_path: Path) -> None:
    path = make(tmp_path / "mq")
    raw = bytearray((path / SIDE).read_bytes())
    at = INTEGRITY.size + 2 * INTEGRITY_ENTRY.size
    raw[at : at + 16] = bytes(16)
    (path / SIDE).write_bytes(raw)
    (path / ".penstock/control").unlink()
    with Queue(path) as queue:
        queue.put(b"more")
        verdict = queue.verify()
        assert verdict.is_ok
        assert (verdict.messages, verdict.unchecked) == (4, 1)


def test_entries_go_with_their_block(tmp_path: Path) -> None:
    path = tmp_path / "mq"
    with Queue(path, format="zbus", segment_bytes=16384, durability="process") as queue:
        for number in range(5):
            queue.put(b"%d" % number * 20_000, key="k")
        sides = [path / ".penstock" / kind for kind in ("integrity", "extras")]
        assert [len(list(side.iterdir())) for side in sides] == [5, 5]
        queue.trim(3 * 20_204)
        for side in sides:
            assert sorted(int(p.stem) for p in side.iterdir()) == [60_612, 80_816]
        assert queue.verify().is_ok
        assert [m.key for m in queue.scan()] == ["k", "k"]
