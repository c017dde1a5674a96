"""A queue that a zbus program has begun, and left before it had a block."""

from __future__ import annotations

import shutil
from pathlib import Path

from penstock import Queue
from penstock.formats.zbus.index import slot_at
from penstock.formats.zbus.structs import TABLE
from tests.reading import bodies_at


def test_an_index_without_a_block_gets_its_first_one(tmp_path: Path) -> None:
    path, table = tmp_path / "q", TABLE["corr"]
    Queue(path, format="zbus", layout="corr").close()
    shutil.rmtree(path / ".penstock")
    shutil.rmtree(path / "data")
    with next(path.glob("*.idx")).open("r+b") as stream:
        stream.seek(table.index.offset_of("block_count"))
        stream.write(table.index.pack_field("block_count", 0))
        stream.seek(slot_at(0))
        stream.write(bytes(table.entry.size))
    assert bodies_at(path) == []
    with Queue(path) as queue:
        queue.put(b"first")
        assert queue.meta["block_count"] == 1
    assert bodies_at(path) == [b"first"]
