"""Groups with `key_batches`: several messages of a key go out together, and in order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import Group, ManualClock, Queue


@pytest.fixture
def queue(tmp_path: Path, clock: ManualClock) -> Iterator[Queue]:
    with Queue(tmp_path / "q", clock=clock, durability="process", segment_bytes=1 << 16) as queue:
        yield queue


@pytest.fixture
def group(queue: Queue) -> Group:
    return queue.group(key_batches=True, release_on_exit=False)


def put(queue: Queue, *names: str) -> None:
    for name in names:
        queue.put(name.encode(), key=name[0])


def taken(group: Group, count: int = 10) -> list[str]:
    return [message.body.decode() for message in group.get_many(count)]


def test_what_is_there_of_a_key_comes_before_the_next_key(queue: Queue, group: Group) -> None:
    put(queue, "a1", "b1", "a2", "b2", "a3")
    assert taken(group) == ["a1", "a2", "a3", "b1", "b2"]


def test_a_key_that_is_out_gives_nothing_more(queue: Queue, group: Group) -> None:
    put(queue, "a1", "a2", "a3", "b1")
    assert taken(group, 2) == ["a1", "a2"]
    assert taken(group) == ["b1"]
    put(queue, "a4")
    assert taken(group) == []


def test_acks_in_any_order_free_the_key_when_all_are_done(queue: Queue, group: Group) -> None:
    put(queue, "a1", "a2", "a3", "a4")
    first, second, third = group.get_many(3)
    second.ack()
    assert taken(group) == []
    first.ack()
    assert taken(group) == []
    third.ack()
    assert taken(group) == ["a4"]


@pytest.mark.parametrize("boot", ["the same boot", "a new boot"])
def test_what_came_back_is_not_held_back_by_the_lease_that_it_had(
    tmp_path: Path, clock: ManualClock, boot: str
) -> None:
    with Queue(tmp_path / "q", clock=clock) as queue:
        group = queue.group(key_batches=True, visibility_s=3600)
        put(queue, "a1", "a2", "a3", "b1")
        assert taken(group) == ["a1", "a2", "a3", "b1"]
    if boot == "a new boot":
        clock.restart()
    with Queue(tmp_path / "q", clock=clock) as queue:
        # Who opens the group alone makes its table from the journal.
        first, *others = queue.group().get_many(10)
        assert [one.body for one in (first, *others)] == [b"a1", b"a2", b"a3", b"b1"]
        first.ack()
        others[0].nack()
        assert taken(queue.group()) == ["a2"]


def test_what_comes_back_comes_in_order(queue: Queue, group: Group, clock: ManualClock) -> None:
    put(queue, "a1", "a2", "a3")
    assert taken(group, 2) == ["a1", "a2"]
    clock.advance(31)
    assert taken(group) == ["a1", "a2", "a3"]


def test_an_extended_message_hides_those_behind_it(
    queue: Queue, group: Group, clock: ManualClock
) -> None:
    put(queue, "a1", "a2", "a3")
    _, second, _ = group.get_many(3)
    second.extend(100)
    clock.advance(31)
    assert taken(group) == ["a1"]
    clock.advance(31)
    assert taken(group) == ["a1"]


def test_one_given_back_waits_for_the_one_before_it(queue: Queue, group: Group) -> None:
    put(queue, "a1", "a2")
    first, second = group.get_many(2)
    second.nack()
    assert taken(group) == []
    first.ack()
    assert taken(group) == ["a2"]


def test_leases_of_a_key_survive_a_new_opening(tmp_path: Path, clock: ManualClock) -> None:
    with Queue(tmp_path / "q", clock=clock) as queue:
        group = queue.group(key_batches=True, release_on_exit=False)
        put(queue, "a1", "a2", "a3")
        first, second = group.get_many(2)
        second.nack()
        receipt = first.receipt
    with Queue(tmp_path / "q", clock=clock) as queue:
        group = queue.group()
        assert group.options.key_batches
        assert taken(group) == []
        assert receipt is not None
        group.ack(receipt)
        again = group.get_many(10)
        assert [(one.body, one.receives) for one in again] == [(b"a2", 2), (b"a3", 1)]


def test_a_dead_letter_makes_way_for_the_next_of_its_key(queue: Queue, clock: ManualClock) -> None:
    group = queue.group(key_batches=True, max_receives=1)
    put(queue, "a1", "a2")
    assert taken(group, 1) == ["a1"]
    clock.advance(31)
    assert taken(group) == ["a2"]


def test_messages_of_a_key_are_found_in_later_segments(queue: Queue, group: Group) -> None:
    for number in range(40):
        queue.put(b"%d" % number + b"x" * 9000, key="a")
    found = [message.body[:2] for message in group.get_many(10)]
    assert found[:2] == [b"0x", b"1x"]


@pytest.mark.parametrize("state", ["leased", "ready", "delayed", "blocked"])
def test_a_message_is_acked_however_it_stands(
    queue: Queue, group: Group, clock: ManualClock, state: str
) -> None:
    put(queue, "a1", "a2", "b1")
    if state == "delayed":
        queue.put(b"d1", delay=5)
    group.get_many(1)
    if state == "ready":
        clock.advance(31)
        group.get_many(1)
    wanted = next(offset for offset, found, *_ in group.core.outstanding() if found == state)
    stands, acked = group.standing(wanted), queue.message_at(wanted).body.decode()
    assert stands is not None
    assert stands[0] == state
    assert group.ack_at(wanted)
    assert group.standing(wanted) is None
    assert not group.ack_at(wanted)
    clock.advance(60)
    left = {"a1", "a2", "b1"} | ({"d1"} if state == "delayed" else set())
    assert sorted(taken(group)) == sorted(left - {acked})
