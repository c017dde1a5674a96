"""Old blocks go: BlockStart moves on the disk, slots wrap, readers behind it move on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from penstock import ManualClock, Queue, _core
from penstock.engine.verifying import verify
from penstock.formats.zbus import index
from penstock.formats.zbus.structs import TABLE
from penstock.records import replace

LAYOUTS = ("doc000", "doc001", "flag", "corr", "crc")


def fill(path: Path, layout: str = "crc", blocks: int = 5) -> Path:
    with Queue(path, format="zbus", layout=layout, segment_bytes=16384, durability="process") as q:
        for number in range(blocks):
            q.put(b"%d" % number * 20_000)
    return path


@pytest.mark.parametrize("layout", LAYOUTS)
def test_trimming_is_on_the_disk_for_everyone(layout: str, tmp_path: Path) -> None:
    path = fill(tmp_path / "mq", layout)
    with Queue(path) as queue:
        queue.group("behind")
        assert queue.trim(3 * 20_204, dry_run=True) == 0  # It waits for the group.
        queue.group("behind").seek(3 * 20_204)
        assert queue.trim(3 * 20_204) == 3
        assert (queue.meta["block_start"], queue.meta["block_count"]) == (3, 2)
    assert sorted(int(p.stem) for p in (path / "data").iterdir()) == [60_612, 80_816]
    shutil.rmtree(path / ".penstock")
    with Queue(path, create=False) as queue:
        assert [m.body[:1] for m in queue.scan()] == [b"3", b"4"]
        assert queue.offsets().head == 60_612
        queue.put(b"more")
        assert queue.verify().is_ok
        numbers = [message.number or 0 for message in queue.scan()]
        assert numbers == list(range(numbers[0], numbers[0] + 3))


def test_count_and_start_go_with_one_write_before_any_file(tmp_path: Path) -> None:
    path = fill(tmp_path / "mq")
    with Queue(path, durability="process") as queue:
        inode = (path / "mq.idx").stat().st_ino
        _core.record_effects(True)
        queue.trim(2 * 20_204)
        _core.record_effects(False)
        log = _core.take_effects()
    stores = [e for e in log if e[0] == "store" and e[1] == inode]
    assert [(e[2], e[3]) for e in stores] == [(4, (3).to_bytes(4, "big") + (2).to_bytes(8, "big"))]
    first_unlink = next(at for at, e in enumerate(log) if e[0] == "unlink")
    assert log.index(("sync", inode)) < first_unlink
    assert log.index(stores[0]) < log.index(("sync", inode))


def test_slots_are_used_again_behind_the_last_one(tmp_path: Path) -> None:
    path = fill(tmp_path / "mq", blocks=1)
    with Queue(path, segment_bytes=16384, durability="process") as queue:
        store = queue.store
        # As after 10,239 blocks: the next ones have slots 10239 and 0.
        found = index.read(path / "mq.idx", TABLE["crc"])
        block = found.blocks[0]
        found.write_block(replace(block, number=10_238))
        found.write_range(10_238, 1)
        for number in range(3):
            queue.put(b"%d" % number * 20_000)
        assert [b.number % 10_240 for b in index.read(path / "mq.idx", TABLE["crc"]).blocks] == [
            10_238, 10_239, 0, 1,
        ]  # fmt: skip
        assert len(list(queue.scan())) == 4
        assert verify(store).is_ok
    with Queue(path, read_only=True) as queue:
        assert len(queue) == 4


def test_retention_by_age_uses_the_blocks_own_times(tmp_path: Path) -> None:
    clock = ManualClock()
    with Queue(
        tmp_path / "mq", format="zbus", clock=clock, segment_bytes=16384, durability="process",
        retention_age_s=100,
    ) as queue:  # fmt: skip
        for number in range(4):
            queue.put(b"%d" % number * 20_000)
            clock.advance(40)
        assert queue.trim() == 2
        assert [m.body[:1] for m in queue.scan()] == [b"2", b"3"]
