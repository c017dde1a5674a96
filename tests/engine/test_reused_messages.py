"""The object of a message that nobody has any more becomes the next one; no other object does."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from penstock import Empty, Message, Queue

COUNT = 300
Ack = Literal["auto", "lease"]


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Queue]:
    with Queue(tmp_path / "q", codec="json", segment_bytes=64 << 10) as queue:
        for number in range(COUNT):
            queue.put({"n": number, "pad": "x" * 1000}, headers={"n": str(number)})
        yield queue


def number_of(message: Message) -> int:
    """What it says by its body, which its headers must say too."""
    number = message.value["n"]
    assert message.headers == {"n": str(number)}
    return int(number)


@pytest.mark.parametrize("ack", ["auto", "lease"])
@pytest.mark.parametrize("every", [1, 2, 3, 7])
def test_messages_that_somebody_has_stay_what_they_are(queue: Queue, ack: Ack, every: int) -> None:
    get = queue.group("jobs", ack=ack, max_in_flight=COUNT).get
    kept: list[Message] = []
    for number in range(COUNT):
        message = get(0)
        assert number_of(message) == number
        if number % every == 0:
            kept.append(message)
    assert [number_of(message) for message in kept] == list(range(0, COUNT, every))


@pytest.mark.parametrize("ack", ["auto", "lease"])
def test_objects_of_messages_that_are_done_are_used_again(queue: Queue, ack: Ack) -> None:
    group = queue.group("jobs", ack=ack)
    seen = set()
    for number in range(COUNT):
        message = group.get(0)
        seen.add(id(message))
        assert number_of(message) == number
        if ack == "lease":
            message.ack()
    assert len(seen) == 2, "the last one is still there while the next one is got"
    assert group.lag == 0


def test_a_lease_ends_with_its_own_receipt(queue: Queue) -> None:
    group = queue.group("jobs")
    receipts = {str(group.get(0).receipt) for _ in range(4)}
    assert len(receipts) == 4
    for receipt in receipts:
        group.ack(receipt)
    assert group.stats()["acked"] == 4


def test_a_message_of_an_automatic_group_has_no_lease(queue: Queue) -> None:
    group = queue.group("jobs", ack="auto")
    for _ in range(3):
        message = group.get(0)
        assert (message.receipt, message.receives) == (None, 0)


def test_the_collector_does_not_know_what_may_become_another(queue: Queue) -> None:
    get = queue.group("jobs", ack="auto").get
    messages = [get(0) for _ in range(5)]
    assert not any(map(gc.is_tracked, messages))


def test_an_empty_queue_takes_nothing_from_the_next_message(queue: Queue) -> None:
    group = queue.group("jobs", ack="auto")
    group.get_many(COUNT - 1)
    last = group.get(0)
    for _ in range(3):
        with pytest.raises(Empty):
            group.get(0)
    queue.put({"n": COUNT}, headers={"n": str(COUNT)})
    assert (number_of(group.get(0)), number_of(last)) == (COUNT, COUNT - 1)


def test_threads_of_one_group_each_have_messages_of_their_own(queue: Queue) -> None:
    get = queue.group("jobs", ack="auto").get
    found: list[list[int]] = []

    def work() -> None:
        mine: list[int] = []
        before: Message | None = None
        try:
            while True:
                message = get(0)
                number = number_of(message)
                mine.append(number)
                if before is not None:
                    assert number_of(before) == mine[-2]
                before = message
        except Empty:
            found.append(mine)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(number for mine in found for number in mine) == list(range(COUNT))


def test_a_message_outlives_its_queue(tmp_path: Path) -> None:
    with Queue(tmp_path / "q") as queue:
        queue.put_many([b"one", b"two", b"three"])
        group = queue.group("jobs", ack="auto")
        group.get(0)
        kept = group.get(0)
    assert kept.body == b"two"
