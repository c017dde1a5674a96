"""What zbus can't hold is refused before a byte is written, with an error that says why."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock import CorruptError, Message, Queue, UnsupportedError
from penstock.formats.zbus import index, structs
from penstock.formats.zbus.structs import TABLE
from tests.formats.checks import tree_hash

LAYOUTS = ("doc000", "doc001", "flag", "corr", "crc")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("what", "given"),
    [
        ("the id has 40 bytes, format zbus holds 39", {"id": "é" * 20}),
        ("the tag has 128 bytes, format zbus holds 127", {"tag": "x" * 128}),
        ("no place for header", {"headers": {"trace": "1"}}),
        ("zbus.corr_offset", {"headers": {"zbus.corr_offset": "-1"}}),
        ("zbus.corr_offset", {"headers": {"zbus.corr_offset": "seven"}}),
    ],
)
def test_what_does_not_fit_is_refused(
    layout: str, what: str, given: dict[str, Any], tmp_path: Path
) -> None:
    with Queue(tmp_path / "mq", format="zbus", layout=layout, durability="process") as queue:
        queue.put(b"first")
        before = tree_hash(queue.path)
        with pytest.raises(UnsupportedError, match=f"{what}.*; format penstock holds it"):
            queue.put(b"x", **given)
        with pytest.raises(UnsupportedError, match=what):
            queue.put_many([Message(b"good"), Message(b"bad", **given)])
        assert tree_hash(queue.path) == before
        queue.put(b"second")
        numbers = [message.number or 0 for message in queue.scan()]
        assert numbers[1] == numbers[0] + 1


def test_the_most_that_fits_is_held(tmp_path: Path) -> None:
    with Queue(tmp_path / "mq", format="zbus", layout="crc") as queue:
        queue.put(b"x", id="i" * 39, tag="t" * 127)
        queue.put(b"x", id="é" * 19 + "x", tag="日" * 42 + "x")  # 39 and 127 bytes
        found = [(message.id, message.tag) for message in queue.scan()]
        assert found == [("i" * 39, "t" * 127), ("é" * 19 + "x", "日" * 42 + "x")]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_no_block_can_hold_is_refused_before_a_file_is_made(
    layout: str, tmp_path: Path
) -> None:
    with Queue(tmp_path / "mq", format="zbus", layout=layout, durability="process") as queue:
        before = tree_hash(queue.path)
        with pytest.raises(UnsupportedError, match="signed 32-bit number"):
            queue.store.roll(0, 2**31)
        assert tree_hash(queue.path) == before


@pytest.mark.slow  # Two gigabytes of zeros are mapped and checked.
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_block_never_ends_behind_what_its_word_can_say(layout: str, tmp_path: Path) -> None:
    path, room = tmp_path / "mq", 2**20
    with Queue(path, format="zbus", layout=layout, durability="process") as queue:
        queue.put(b"first")
    # A body of nearly 2 GiB, most of it a hole in the file: the block is just not full yet.
    end = 2**31 - room - 10
    block, table = path / "data" / f"{0:020d}.zbus", TABLE[layout]
    os.truncate(block, end)
    with block.open("r+b") as stream:
        stream.seek(table.frame.offset_of("length"))
        stream.write((end - 204).to_bytes(4, "big"))
    found = index.read(path / "mq.idx", table)
    found.write_block(replace(found.blocks[0], end=end))
    shutil.rmtree(path / ".penstock")
    with Queue(path, layout=layout, create=False, segment_bytes=2**31 - room) as queue:
        assert queue.offsets().tail == end
        assert queue.put(bytes(room + 100)) == end  # It would pass 2^31-1: a block of its own.
        assert [info.base for info in queue.store.segments(fresh=True)] == [0, end]
        queue.put(b"small")
    assert block.stat().st_size == end


def test_layout_crc_has_no_place_for_corr_offset(tmp_path: Path) -> None:
    with (
        Queue(tmp_path / "mq", format="zbus", layout="crc") as queue,
        pytest.raises(UnsupportedError, match="layout corr has"),
    ):
        queue.put(b"x", headers={"zbus.corr_offset": "7"})


def test_a_full_table_of_blocks_is_an_error_and_trimming_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(structs, "SLOTS", 3)
    with Queue(tmp_path / "mq", format="zbus", segment_bytes=16384) as queue:
        for number in range(3):
            queue.put(b"%d" % number * 20_000)
        before = tree_hash(queue.path / "data"), queue.offsets().tail
        with pytest.raises(UnsupportedError, match="no slot for another"):
            queue.put(b"one too many")
        assert (tree_hash(queue.path / "data"), queue.offsets().tail) == before
        queue.trim(20_204)
        queue.put(b"now")
        assert len(list(queue.scan())) == 3


def test_blocks_that_do_not_go_up_are_an_error_with_file_and_byte(tmp_path: Path) -> None:
    path = tmp_path / "mq"
    with Queue(path, format="zbus", segment_bytes=16384) as queue:
        for number in range(3):
            queue.put(b"%d" % number * 20_000)
    found = index.read(path / "mq.idx", TABLE["doc000"])
    found.write_block(replace(found.blocks[1], base=0))
    with pytest.raises(CorruptError, match="block 1 begins at 0") as error:
        Queue(path, create=False)
    assert error.value.at == index.slot_at(1)


def test_a_batch_lands_whole_in_one_block(tmp_path: Path) -> None:
    with Queue(tmp_path / "mq", format="zbus", segment_bytes=16384) as queue:
        queue.put(b"first")
        queue.put_many([b"x" * 800] * 50)
        assert len(queue.store.segments(fresh=True)) == 1
        queue.put(b"next")
        assert len(queue.store.segments(fresh=True)) == 2
