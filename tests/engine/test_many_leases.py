"""Many leases are open at once and end in any order: every message comes, once, and is done."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import penstock


def filled(path: Path, count: int) -> penstock.Queue:
    queue = penstock.Queue(path, durability="process")
    queue.put_many([b"%d" % number for number in range(count)])
    return queue


def check_done(queue: penstock.Queue, group: penstock.Group) -> None:
    assert group.cursor == queue.offsets().tail
    assert group.core.outstanding() == []
    counts = group.core.counts()
    assert [counts[name] for name in ("leased", "delayed", "blocked", "ready")] == [0] * 4


@pytest.mark.parametrize("held", [1, 63, 65, 200, 255, 256, 257, 700])
def test_leases_that_stay_open_are_not_forgotten_behind_many_acks(
    tmp_path: Path, held: int
) -> None:
    with filled(tmp_path / "q", 1500) as queue:
        group = queue.group()
        kept = group.get_many(held)
        for number in range(held, 1500):
            message = group.get(0)
            assert message.body == b"%d" % number
            message.ack()
            assert group.cursor == kept[0].offset
        assert [row[0] for row in group.core.outstanding()] == [one.offset for one in kept]
        for message in kept:
            message.ack()
        check_done(queue, group)


@pytest.mark.parametrize("seed", range(4))
def test_leases_end_in_any_order(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    with penstock.Queue(tmp_path / "q", durability="process") as queue:
        for number in range(1500):
            queue.put(b"%d" % number, key=rng.choice((None, None, None, "a", "b")))
        group = queue.group(max_in_flight=rng.choice((100, 600, 5000)))
        held: list[penstock.Message] = []
        came: list[int] = []
        while len(came) < 1500 or held:
            for message in group.get_many(rng.randrange(1, 40)):
                held.append(message)
                came.append(int(message.body))
            for _ in range(rng.randrange(1, 40)):
                if held:
                    held.pop(rng.randrange(len(held))).ack()
        assert sorted(came) == list(range(1500))
        check_done(queue, group)


def test_a_second_ack_is_refused_among_many_open_leases(tmp_path: Path) -> None:
    with filled(tmp_path / "q", 1000) as queue:
        group = queue.group()
        messages = group.get_many(1000)
        done = messages[1::2]
        for message in done:
            message.ack()
        for message in done:
            with pytest.raises(penstock.ReceiptError):
                message.ack()
        for message in messages[::2]:
            message.ack()
        check_done(queue, group)
