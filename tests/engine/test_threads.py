"""One opening, many threads: what they share stays one, and closing it is closing it once."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import ClosedError, Queue, StandardQueue
from penstock.disk import files
from penstock.engine.group import Group
from tests.waiting import LONG_S, often_switching, until_it_waits, words_of


def at_once(count: int, work: Callable[[], object]) -> list[object]:
    """What each of `count` threads finds; an error is found too."""
    barrier, found = threading.Barrier(count), []

    def begin() -> None:
        barrier.wait()
        try:
            found.append(work())
        except BaseException as error:
            found.append(error)

    threads = [threading.Thread(target=begin) for _ in range(count)]
    with often_switching():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return found


def test_threads_that_ask_for_a_new_group_at_once_get_the_same_one(tmp_path: Path) -> None:
    with Queue(tmp_path / "queue", durability="process") as queue:
        for number in range(10):
            found = at_once(4, lambda name=f"g{number}": queue.group(name))  # type: ignore[misc]
            assert found == [queue.group(f"g{number}")] * 4


def test_threads_that_get_first_at_once_are_all_ended_by_closing(tmp_path: Path) -> None:
    for number in range(5):
        queue = Queue(tmp_path / f"queue{number}", durability="process")
        ended: list[object] = []
        other = threading.Thread(target=lambda: ended.extend(at_once(3, queue.get)))  # noqa: B023
        other.start()
        while words_of(queue.store.need_shared())["waiters"] < 3:
            assert other.is_alive()
        queue.close()
        other.join(LONG_S)
        assert [type(error) for error in ended] == [ClosedError] * 3


def test_two_threads_may_close_at_once(tmp_path: Path) -> None:
    for number in range(5):
        queue = Queue(tmp_path / f"queue{number}")
        queue.put(b"one")
        assert at_once(4, queue.close) == [None] * 4
        with Queue(tmp_path / f"queue{number}") as again:
            assert again.get(0).body == b"one"


def test_closing_a_poisoned_queue_ends_a_blocked_get(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = Queue(tmp_path / "queue", durability="process")
    found: list[object] = []
    waiting = threading.Thread(target=lambda: found.extend(at_once(1, queue.get)))
    waiting.start()
    until_it_waits(waiting, queue)
    monkeypatch.setattr(Queue, "is_poisoned", True)
    queue.close()
    waiting.join(LONG_S)
    assert [type(error) for error in found] == [ClosedError]


def test_an_item_that_is_taken_while_it_is_counted_is_not_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with StandardQueue(tmp_path / "tasks") as tasks:
        tasks.put("work")

        def lag_after_a_get(group: Group) -> int:
            monkeypatch.undo()
            assert tasks.get() == "work"
            return group.lag

        monkeypatch.setattr(Group, "lag", property(lag_after_a_get))
        assert tasks.unfinished == 1
        tasks.task_done()
        assert tasks.unfinished == 0


def test_a_small_file_may_be_replaced_by_several_at_once(tmp_path: Path) -> None:
    path = tmp_path / "small.json"

    def replace() -> None:
        for number in range(50):
            files.write_json(path, {"number": number}, synced=False)

    assert at_once(4, replace) == [None] * 4
    assert files.read_json(path) == {"number": 49}
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_a_forked_child_opens_its_doors_anew(tmp_path: Path) -> None:
    with StandardQueue(tmp_path / "tasks", maxsize=5) as tasks:
        tasks.put("parent")
        with tasks._mutex:  # As another thread of the parent may, at the fork.
            child = os.fork()
            if child == 0:
                tasks.put("child")
                os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert [tasks.get(), tasks.get()] == ["parent", "child"]
