"""Groups over closing, forking and new boots."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock import ClosedError, ManualClock, Queue


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def test_a_checkpoint_does_not_start_a_delay_anew(tmp_path: Path, clock: ManualClock) -> None:
    with Queue(tmp_path / "q", clock=clock) as queue:
        queue.put(b"late", delay=100)
        assert queue.get_many(1) == []
        clock.advance(90)
        queue.group().core.checkpoint()
    clock.restart(off_s=5)
    with Queue(tmp_path / "q", clock=clock) as queue:
        assert queue.get_many(1) == []
        clock.advance(6)
        assert [message.body for message in queue.get_many(1)] == [b"late"]


def test_a_lease_is_not_acked_through_a_closed_queue(tmp_path: Path, clock: ManualClock) -> None:
    with Queue(tmp_path / "q", clock=clock) as queue:
        queue.put(b"x")
        message = queue.group(bound=False).get(0)
    with pytest.raises(ClosedError):
        message.ack()
    with Queue(tmp_path / "q", clock=clock) as queue:
        assert queue.get_many(1) == []
        clock.advance(31)
        assert queue.get(0).receives == 2


def test_a_forked_child_does_not_ack_what_its_parent_was_given(tmp_path: Path) -> None:
    with Queue(tmp_path / "q", durability="process") as queue:
        queue.put(b"x")
        message = queue.get(0)
        pid = os.fork()
        if pid == 0:
            try:
                message.ack()
            except ClosedError:
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        message.ack()


def test_a_new_boot_begins_a_new_journal(tmp_path: Path, clock: ManualClock) -> None:
    with Queue(tmp_path / "q", clock=clock) as queue:
        queue.put_many([b"a", b"b"])
        queue.get(0).ack()
    folder = tmp_path / "q/.penstock/groups/default"
    before = {entry.name for entry in folder.glob("journal-*")}
    clock.restart()
    with Queue(tmp_path / "q", clock=clock) as queue:
        queue.group()
        assert {entry.name for entry in folder.glob("journal-*")}.isdisjoint(before)
        assert [message.body for message in queue.get_many(5)] == [b"b"]
