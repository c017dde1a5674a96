"""What a power cut or a failed sync leaves of blocks, of reader files and of leases."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from penstock import Empty, PoisonedError, Queue, StorageError
from penstock.formats.zbus import readers
from tests.copies import copy_open
from tests.failing import failing_syncs
from tests.opening import open_queue
from tests.reading import bodies

BODY = b"x" * 9000
"""One fits into a block."""


def block(path: Path, base: int) -> Path:
    return path / "data" / f"{base:020d}.zbus"


@pytest.mark.parametrize("layout", ["doc000", "corr", "crc"])
def test_a_group_that_read_what_a_power_cut_took_is_set_back(layout: str, tmp_path: Path) -> None:
    with open_queue(tmp_path / "q", format="zbus", layout=layout) as queue:
        group, other = queue.group("done"), queue.group("out", max_in_flight=8)
        queue.put(b"one")
        queue.sync()
        tail = queue.offsets().tail
        queue.put_many([b"two", b"three"])
        for message in group.get_many(3):
            message.ack()
        assert len(other.get_many(3)) == 3
        path = copy_open(tmp_path / "q", tmp_path / "cut")
    with block(path, 0).open("r+b") as stream:
        stream.truncate(tail)
    with Queue(path) as queue:
        assert bodies(queue) == [b"one"]
        assert readers.bookmarks(path)["done"] == f"{0:016x}{tail:08x}"
        queue.put(b"new")
        assert queue.group("done").get(0).body == b"new"
        assert queue.group("out").get(0).body == b"one"


@pytest.mark.parametrize("synced", [0, 1])
def test_a_block_that_went_with_the_power_takes_what_was_never_synced_along(
    synced: int, tmp_path: Path
) -> None:
    with open_queue(tmp_path / "q", format="zbus") as queue:
        offsets = [queue.put(BODY) for _ in range(synced)]
        queue.sync()
        offsets += [queue.put(BODY) for _ in range(3)]
        path = copy_open(tmp_path / "q", tmp_path / "cut")
    bases = sorted(int(file.stem) for file in (path / "data").glob("*.zbus"))
    block(path, bases[synced]).unlink()
    with Queue(path) as queue:
        scan = queue.scan(tolerant=True)
        assert {message.offset for message in scan} <= set(offsets)
        assert scan.damage or queue.store.dropped
        offset = queue.put(b"next")
        assert [message.body for message in queue.scan(start=offset)] == [b"next"]


def test_every_block_that_a_failed_sync_left_in_doubt_is_written_anew(tmp_path: Path) -> None:
    queue = open_queue(tmp_path / "q", format="zbus")
    queue.put(b"synced")
    queue.sync()
    put = [b"synced"]
    with failing_syncs():
        with suppress(StorageError, PoisonedError):
            for _ in range(4):
                queue.put(BODY)
                put.append(BODY)
        with pytest.raises(PoisonedError):
            queue.sync()
    before = {file: file.stat().st_ino for file in (tmp_path / "q" / "data").glob("*.zbus")}
    durable = queue.offsets().durable
    queue.close()
    with Queue(tmp_path / "q") as queue:
        assert bodies(queue) == put
        same = [file for file, inode in before.items() if file.stat().st_ino == inode]
        assert all(int(file.stem) < durable for file in same)
        assert queue.verify().is_ok


def test_a_group_that_was_taken_out_of_the_formats_files_stays_out(tmp_path: Path) -> None:
    with open_queue(tmp_path / "q", format="zbus") as queue:
        queue.put_many([b"one", b"two"])
        queue.group("g").get(0).ack()
        queue.group("g", native_cursor=False).get(0).ack()
    readers.write_reader(readers.rdx_path(tmp_path / "q", "g"), 0, 0)
    with Queue(tmp_path / "q") as queue, pytest.raises(Empty):
        queue.group("g").get(0)
