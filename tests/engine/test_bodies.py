"""Bodies alone, for consumers that need nothing else of a message."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock import GroupError, OptionError, Queue


@pytest.mark.parametrize("format", ["penstock", "zbus", "vqs", "mfq"])
def test_bodies_come_in_order_and_are_done(tmp_path: Path, format: str) -> None:
    bodies = [b"%d" % number for number in range(1, 31)]
    with Queue(tmp_path / "q", format=format) as queue:
        queue.put_many(bodies)
        group = queue.group("g", ack="auto")
        assert group.get_bodies(10) == bodies[:10]
        assert [message.body for message in group.get_many(5)] == bodies[10:15]
        assert group.get_bodies(100) == bodies[15:]
        assert group.get_bodies(100) == []
        assert group.cursor == queue.offsets().tail


def test_bodies_of_a_compressed_batch_are_unpacked(tmp_path: Path) -> None:
    with Queue(tmp_path / "q", compression="lz4") as queue:
        queue.put_many([bytes(500)] * 20)
        group = queue.group("g", ack="auto")
        assert group.get_bodies(7) == [bytes(500)] * 7
        assert group.get_bodies(20) == [bytes(500)] * 13


def test_a_message_that_is_held_back_is_no_body_yet(tmp_path: Path) -> None:
    with Queue(tmp_path / "q") as queue:
        queue.put(b"later", delay=1000)
        queue.put(b"now")
        assert queue.group("g", ack="auto").get_bodies(10) == [b"now"]


def test_bodies_need_a_group_that_acks_by_getting(tmp_path: Path) -> None:
    with Queue(tmp_path / "q") as queue:
        queue.put(b"x")
        with pytest.raises(GroupError, match="can't be acked"):
            queue.group("g").get_bodies(1)
        assert queue.group("g").get(0).body == b"x"


def test_a_count_below_zero_is_refused(tmp_path: Path) -> None:
    with Queue(tmp_path / "q") as queue, pytest.raises(OptionError, match="0 or more"):
        queue.group("g", ack="auto").get_bodies(-1)
