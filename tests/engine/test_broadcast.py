"""Broadcast groups: for one consumer, and gone with it."""

from __future__ import annotations

import multiprocessing
import os
import signal
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

import penstock
from penstock.engine import retention
from penstock.formats.registry import MODULES, format_class


def test_every_broadcast_consumer_gets_every_message(tmp_path: Path) -> None:
    with penstock.Queue(tmp_path / "q") as queue:
        queue.put(b"before")
        first, second = queue.broadcast(), queue.broadcast()
        queue.put(b"news")
        assert [first.get(0).body, second.get(0).body] == [b"news", b"news"]
        assert first.name != second.name


def test_a_second_consumer_of_an_exclusive_group_is_refused(tmp_path: Path) -> None:
    with penstock.Queue(tmp_path / "q") as queue, penstock.Queue(tmp_path / "q") as other:
        mine = queue.group("mine", exclusive=True)
        with pytest.raises(penstock.GroupError, match="another consumer has it"):
            other.group("mine")
        queue.put(b"a")
        assert mine.get(0).body == b"a"


def test_a_broadcast_group_goes_when_its_consumer_leaves(tmp_path: Path) -> None:
    with penstock.Queue(tmp_path / "q") as queue:
        with queue.broadcast() as group:
            assert queue.groups() == [group.name]
        assert queue.groups() == []


def test_a_broadcast_group_goes_with_the_queue(tmp_path: Path) -> None:
    with penstock.Queue(tmp_path / "q") as queue:
        queue.broadcast()
    with penstock.Queue(tmp_path / "q") as queue:
        assert queue.groups() == []


def join_and_wait(path: Path, pipe: Connection) -> None:
    queue = penstock.Queue(path)
    pipe.send(queue.broadcast().name)
    pipe.recv()


@pytest.mark.crash
@pytest.mark.parametrize("format", MODULES)
def test_the_group_of_a_killed_consumer_is_removed_by_the_next_opener(
    tmp_path: Path, format: str
) -> None:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    with penstock.Queue(tmp_path / "q", format=format) as queue:
        consumer = context.Process(target=join_and_wait, args=(tmp_path / "q", theirs))
        consumer.start()
        name = ours.recv()
        with penstock.Queue(tmp_path / "q") as other:
            assert other.groups() == [name]
        os.kill(consumer.pid or 0, signal.SIGKILL)
        consumer.join()
        assert queue.groups() == [name]
        with penstock.Queue(tmp_path / "q") as other:
            assert other.groups() == []


@pytest.mark.parametrize("format", MODULES)
def test_a_dead_consumer_s_group_does_not_hold_retention_up(tmp_path: Path, format: str) -> None:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    with penstock.Queue(tmp_path / "q", format=format) as queue:
        consumer = context.Process(target=join_and_wait, args=(tmp_path / "q", theirs))
        consumer.start()
        name = ours.recv()
        assert list(retention.holding_cursors(queue)) == [name]
        os.kill(consumer.pid or 0, signal.SIGKILL)
        consumer.join()
        assert retention.holding_cursors(queue) == {}
        assert queue.groups() == []  # Also where the format has a file of its own for the group.


DELETING = [name for name in MODULES if format_class(name).capabilities.deletes_consumed]


@pytest.mark.parametrize("format", DELETING)
def test_what_a_broadcast_consumer_elsewhere_has_acked_goes(tmp_path: Path, format: str) -> None:
    with (
        penstock.Queue(tmp_path / "q", format=format) as queue,
        penstock.Queue(tmp_path / "q") as other,
    ):
        groups = [queue.group("mine"), other.broadcast()]
        queue.put(b"news")
        for group in groups:
            group.get(0).ack()
        queue.sync()
        assert queue.offsets().head == queue.offsets().tail


@pytest.mark.parametrize("format", DELETING)
def test_who_frees_what_was_acked_does_not_take_a_dead_consumer_s_place(
    tmp_path: Path, format: str
) -> None:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    with penstock.Queue(tmp_path / "q", format=format) as queue:
        consumer = context.Process(target=join_and_wait, args=(tmp_path / "q", theirs))
        consumer.start()
        ours.recv()
        os.kill(consumer.pid or 0, signal.SIGKILL)
        consumer.join()
        queue.put(b"news")
        queue.group("mine").get(0).ack()
        queue.sync()
        assert queue.groups() == ["mine"]
        assert queue.offsets().head == queue.offsets().tail


def test_a_forked_child_has_no_share_in_an_exclusive_group(tmp_path: Path) -> None:
    with penstock.Queue(tmp_path / "q") as queue:
        group = queue.broadcast()
        queue.put(b"news")
        pid = os.fork()
        if pid == 0:
            try:
                group.get(0)
            except penstock.ClosedError:
                queue.put(b"from the child")
                os._exit(0)
            os._exit(1)
        assert os.waitpid(pid, 0)[1] == 0
        assert [m.body for m in group.get_many(10)] == [b"news", b"from the child"]
