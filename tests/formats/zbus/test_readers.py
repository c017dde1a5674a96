"""A group's progress is in the format's own files, so that an original could go on with it."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

from penstock import ManualClock, Queue, UnsupportedError
from penstock.formats.zbus import readers
from penstock.formats.zbus.structs import NAK, NAK_RECORD, READER, TABLE

LAYOUTS = ("doc000", "doc001", "flag", "corr", "crc")


def make(path: Path, layout: str = "crc", **options: Any) -> Queue:
    return Queue(path, format="zbus", layout=layout, durability="process", **options)


def place(path: Path, group: str) -> tuple[int, int]:
    block, offset = struct.unpack_from(">qi", readers.rdx_path(path, group).read_bytes())
    return block, offset


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_reader_file_names_the_lowest_unacked_message(layout: str, tmp_path: Path) -> None:
    path = tmp_path / "mq"
    with make(path, layout, segment_bytes=16384) as queue:
        for number in range(4):
            queue.put(b"%d" % number * 9796)  # Two frames of 10,000 bytes in each block.
        group = queue.group("g")
        assert place(path, "g") == (0, 0)
        first, second, third = group.get_many(3)
        assert place(path, "g") == (0, 0)
        second.ack()
        assert place(path, "g") == (0, 0)
        first.ack()
        assert place(path, "g") == (1, 0)
        third.ack()
        assert place(path, "g") == (1, 10_000)
        group.get(0).ack()
        assert place(path, "g") == (1, 20_000)


def test_a_group_read_to_the_end_is_never_put_into_an_empty_block(tmp_path: Path) -> None:
    path = tmp_path / "mq"
    with make(path) as queue:
        queue.put(b"one")
        group = queue.group("g")
        group.get(0).ack()
        queue.store.roll(0, 0)
        group.seek("earliest")
        group.get(0).ack()
        assert place(path, "g") == (0, 207)  # The originals can't open a reader in block 1.


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_group_goes_on_from_its_reader_file_alone(layout: str, tmp_path: Path) -> None:
    path = tmp_path / "mq"
    with make(path, layout) as queue:
        queue.put_many([b"%d" % n for n in range(6)])
        for message in queue.group("g", tags="").get_many(4):
            message.ack()
    shutil.rmtree(path / ".penstock")
    with Queue(path, create=False) as queue:
        assert queue.groups() == ["g"]
        assert [m.body for m in queue.group("g").get_many(9)] == [b"4", b"5"]


def test_a_filter_is_stored_and_changed_where_the_originals_look(tmp_path: Path) -> None:
    path = tmp_path / "mq"
    with make(path) as queue:
        group = queue.group("g", tags="eu.#")
        rdx = readers.rdx_path(path, "g")
        assert READER.unpack(rdx.read_bytes())["filter"] == b"eu.#"
        group.configure(tags="us.*;eu.#")
        assert READER.unpack(rdx.read_bytes())["filter"] == b"us.*;eu.#"
        group.configure(tags="")
        assert READER.unpack(rdx.read_bytes())["filter"] == b""


def test_a_filter_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    with make(tmp_path / "mq") as queue:
        with pytest.raises(UnsupportedError, match="format zbus holds 127"):
            queue.group("g", tags="x" * 128)
        assert queue.group("h", tags="x" * 128, native_cursor=False).get_many(9) == []


def test_a_new_group_starts_where_it_was_told_on_disk_too(tmp_path: Path) -> None:
    path = tmp_path / "mq"
    with make(path) as queue:
        queue.put(b"old")
        queue.group("late", start="latest")
        assert place(path, "late") == (0, 207)


def test_a_deleted_group_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "mq"
    with make(path) as queue:
        queue.group("g", max_in_flight=10).delete()
        assert list((path / "reader").iterdir()) == []
        assert queue.groups() == []
        with queue.broadcast():
            assert len(list((path / "reader").iterdir())) == 1
        assert list((path / "reader").iterdir()) == []


@pytest.mark.parametrize("block", [-1, 0, 7])
def test_a_reader_outside_the_queue_goes_to_its_nearest_end(block: int, tmp_path: Path) -> None:
    path = tmp_path / "mq"
    with make(path) as queue:
        queue.put(b"one")
    raw = READER.pack(
        block=block, offset=99_999, filter=b"", mask=0, updated_ms=1, created_ms=1, creator=b"",
        ext1=b"", ext2=b"", ext3=b"", ext4=b"",
    )  # fmt: skip
    readers.rdx_path(path, "lost").write_bytes(raw)
    with Queue(path) as queue:
        wanted = [b"one"] if block < 0 else []
        assert [m.body for m in queue.group("lost").get_many(9)] == wanted


def test_a_reader_inside_a_frame_gets_that_frame(tmp_path: Path) -> None:
    path = tmp_path / "mq"
    with make(path) as queue:
        queue.put_many([b"one", b"two", b"three"])
        queue.group("g")
    rdx = readers.rdx_path(path, "g")
    rdx.write_bytes(struct.pack(">qi", 0, 300) + rdx.read_bytes()[12:])
    shutil.rmtree(path / ".penstock")
    with Queue(path, create=False) as queue:
        assert [m.body for m in queue.group("g").get_many(9)] == [b"two", b"three"]


def test_a_group_that_a_zbus_program_moved_goes_on_from_there(tmp_path: Path) -> None:
    path = tmp_path / "mq"
    with make(path) as queue:
        queue.put_many([b"%d" % n for n in range(5)])
        for name in ("moved", "left"):
            queue.group(name).get(0).ack()
    rdx = readers.rdx_path(path, "moved")
    rdx.write_bytes(struct.pack(">qi", 0, 3 * 205) + rdx.read_bytes()[12:])
    with Queue(path, create=False) as queue:
        assert [m.body for m in queue.group("moved").get_many(9)] == [b"3", b"4"]
        assert [m.body for m in queue.group("left").get_many(9)] == [b"1", b"2", b"3", b"4"]


# ── NAK ────────────────────────────────────────────────────────────────────────────────────


def naks(path: Path, group: str) -> dict[int, int]:
    found = readers.read_naks(readers.nak_path(path, group), TABLE["crc"])
    assert found is not None
    return dict(found.out)


def test_leases_of_a_small_window_are_in_the_nak_file(tmp_path: Path) -> None:
    path, clock = tmp_path / "mq", ManualClock()
    with make(path, clock=clock) as queue:
        queue.put_many([b"%d" % n for n in range(5)])
        group = queue.group("g", max_in_flight=10, visibility_s=3)
        raw = readers.nak_path(path, "g").read_bytes()
        assert len(raw) == 22_024
        head = NAK.unpack(raw)
        assert (head["window"], head["timeout_ms"]) == (10, 3000)
        held = group.get_many(3)
        assert naks(path, "g") == {0: 1, 205: 1, 410: 1}
        assert place(path, "g") == (0, 615)  # The next unread; what is owed is in the NAK file.
        held[1].ack()
        assert naks(path, "g") == {0: 1, 410: 1}
        clock.advance(4)
        again = group.get_many(1)
        assert again[0].offset == 0
        assert naks(path, "g") == {0: 2, 410: 1}
        record = NAK_RECORD.unpack(readers.nak_path(path, "g").read_bytes(), NAK.size)
        assert record["updated_ms"] == int(clock.wall() * 1000)
        group.seek("latest")
        assert naks(path, "g") == {}


def test_leases_come_back_from_the_nak_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "mq"
    with make(path) as queue:
        queue.put_many([b"%d" % n for n in range(5)])
        group = queue.group("g", max_in_flight=10)
        held = group.get_many(3)
        held[0].ack()
        shutil.copytree(path, tmp_path / "copy", ignore=shutil.ignore_patterns(".penstock"))
    with Queue(tmp_path / "copy", create=False) as queue:
        found = queue.group("g").get_many(9)
        assert [(m.body, m.receives) for m in found] == [
            (b"1", 2), (b"2", 2), (b"3", 1), (b"4", 1),
        ]  # fmt: skip


def test_a_window_that_no_nak_file_holds_is_kept_by_us(tmp_path: Path) -> None:
    path = tmp_path / "mq"
    with make(path) as queue:
        queue.put_many([b"x"] * 3)
        queue.group("g", max_in_flight=1000).get_many(2)
        assert not readers.nak_path(path, "g").exists()
        assert place(path, "g") == (0, 0)
