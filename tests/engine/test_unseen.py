"""A get that is its own ack and ends with an error has taken nothing: its caller saw no message."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock import PenstockError, Queue, _core
from penstock.engine.group import Group
from tests.failing import failing_syncs
from tests.reading import bodies_of
from tests.waiting import signal_once, sleeps_on_a_shared_word

BODIES = [b"%d" % number for number in range(5)]
FORMATS = ["penstock", "zbus", "beats", "vqs", "mfq"]
CALLS: dict[str, Callable[[Group], object]] = {
    "get": lambda group: group.get(0),
    "get_many": lambda group: group.get_many(2),
    "get_bodies": lambda group: group.get_bodies(2),
    "messages": lambda group: next(iter(group.messages(0))),
}
SYNC_LOCK = 24
"""Where the table of a group has the lock of its syncs."""


@contextmanager
def opened(folder: Path, format: str, **options: Any) -> Iterator[Queue]:
    """A queue of which another group keeps everything: some formats delete what all have acked."""
    path = folder / ("q.bin" if format == "vqs" else "q")
    with Queue(path, format=format, **options) as queue:
        queue.group("hold")
        queue.put_many(BODIES)
        yield queue


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("format", FORMATS)
def test_a_get_whose_sync_fails_has_taken_nothing(tmp_path: Path, format: str, call: str) -> None:
    with opened(tmp_path, format, durability="always") as queue:
        group = queue.group("g", ack="auto")
        with failing_syncs(errno.EIO), pytest.raises(PenstockError):
            CALLS[call](group)
    with Queue(queue.path) as again:
        assert bodies_of(again.group("g").get_many(9)) == BODIES


@contextmanager
def raising_in_a_sync(table: Path, holder: Queue) -> Iterator[None]:
    """Another opening syncs the group; once someone waits for that, a signal handler raises."""

    def store(name: int) -> None:
        with table.open("r+b", buffering=0) as file:
            file.seek(SYNC_LOCK)
            file.write(name.to_bytes(4, "little"))

    def handle() -> None:
        store(0)
        raise KeyboardInterrupt

    main = threading.main_thread()
    store(holder.store.need_shared().owner)
    with signal_once(lambda: sleeps_on_a_shared_word(main), handle):
        yield


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("format", FORMATS)
def test_a_get_that_a_signal_ends_in_its_sync_has_taken_nothing(
    tmp_path: Path, format: str, call: str
) -> None:
    with opened(tmp_path, format, durability="always") as queue, Queue(queue.path) as holder:
        group = queue.group("g", ack="auto")
        with pytest.raises(KeyboardInterrupt), raising_in_a_sync(group.folder / "table", holder):
            CALLS[call](group)
        assert bodies_of(holder.group("g").get_many(9)) == BODIES


@pytest.mark.parametrize("format", FORMATS)
def test_bodies_that_memory_does_not_suffice_for_are_not_taken(tmp_path: Path, format: str) -> None:
    with opened(tmp_path, format) as queue:
        group, refused = queue.group("g", ack="auto"), 0
        for nth in range(12):
            _core.refuse_memory(nth)
            try:
                found = group.get_bodies(9)
            except (MemoryError, PenstockError):
                _core.refuse_memory(-1)
                found = group.get_bodies(9)
                refused += 1
            finally:
                _core.refuse_memory(-1)
            assert found == BODIES, f"question {nth}"
            group.seek("earliest")
        assert refused > 1


@pytest.mark.parametrize("format", FORMATS)
def test_what_was_acked_unseen_comes_again_before_what_is_newer(
    tmp_path: Path, format: str
) -> None:
    with opened(tmp_path, format) as queue, Queue(queue.path) as other:
        group = queue.group("g", ack="auto")
        first, second, third = group.get_many(3)
        assert group.core.take_back([first]) == []
        assert group.core.take_back([third]) == []
        assert group.core.take_back([second]) == []
        assert group.cursor == first.offset
        assert bodies_of(other.group("g").get_many(2)) == BODIES[:2]
    with Queue(queue.path) as again:
        assert bodies_of(again.group("g").get_many(9)) == BODIES[2:]


def test_what_was_acked_unseen_keeps_its_place_beside_keys_and_delays(
    tmp_path: Path, clock: Any
) -> None:
    with Queue(tmp_path / "q", clock=clock) as queue:
        group = queue.group("g", ack="auto")
        queue.put(b"a1", key="a")
        queue.put(b"late", delay=60)
        queue.put(b"a2", key="a", delay=30)
        queue.put(b"b")
        a1 = group.get(0)
        assert group.get(0).body == b"b"
        assert group.core.take_back([a1]) == []
        clock.advance(31)
        assert bodies_of(group.get_many(9)) == [b"a1", b"a2"]
        clock.advance(60)
        assert bodies_of(group.get_many(9)) == [b"late"]
        assert group.core.counts()["delivered"] == 4


@pytest.mark.parametrize("format", FORMATS)
def test_a_lease_that_nobody_saw_does_not_count(tmp_path: Path, format: str) -> None:
    with opened(tmp_path, format) as queue, Queue(queue.path) as other:
        group = queue.group("g", max_receives=1)
        taken = group.get_many(3)
        taken[0].ack()
        assert group.core.take_back(taken) == []
        assert group.core.take_back(taken) == []
        again = other.group("g").get_many(2)
        assert [(one.body, one.receives) for one in again] == [(b"1", 1), (b"2", 1)]
        assert group.core.take_back(again[1:]) == []
        again[0].nack()
        assert group.core.counts()["delivered"] == 2
    with Queue(queue.path) as later:
        # The first was seen and is dead now.
        found = [(one.body, one.receives) for one in later.group("g").get_many(9)]
        assert found == [(b"2", 1), (b"3", 1), (b"4", 1)]


def test_a_lease_that_nobody_saw_keeps_the_order_of_its_key(tmp_path: Path) -> None:
    with Queue(tmp_path / "q") as queue:
        group = queue.group("g", key_batches=True)
        for body in (b"a1", b"a2", b"a3"):
            queue.put(body, key="a")
        queue.put(b"b1", key="b")
        taken = group.get_many(2)
        assert group.core.take_back(taken[::-1]) == []
        assert bodies_of(group.get_many(2)) == [b"a1", b"a2"]
        table = group.folder / "table"
    table.unlink()
    with Queue(tmp_path / "q") as queue:
        assert bodies_of(queue.group("g").get_many(9)) == [b"a1", b"a2", b"a3", b"b1"]


def test_what_was_deleted_meanwhile_is_answered(tmp_path: Path) -> None:
    with Queue(tmp_path / "q") as queue:
        group = queue.group("g", ack="auto")
        queue.put_many(BODIES)
        found = group.get_many(2)
        queue.purge()
        assert group.core.take_back(found) == found
        assert group.get_many(9) == []


def test_messages_that_were_given_back_survive_a_new_table(tmp_path: Path) -> None:
    with Queue(tmp_path / "q", durability="process") as queue:
        group = queue.group("g", ack="auto")
        queue.put_many(BODIES)
        assert group.core.take_back(group.get_many(3)) == []
        table = group.folder / "table"
    table.unlink()
    with Queue(tmp_path / "q") as queue:
        assert bodies_of(queue.group("g").get_many(9)) == BODIES
