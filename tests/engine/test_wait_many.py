"""Waiting for many queues at once, by an event loop's descriptor or by green threads."""

from __future__ import annotations

import select
from pathlib import Path

import pytest

from penstock import Queue, _core
from penstock.engine.wait_many import QueuePoll


@pytest.fixture(params=["epoll", "poll", "select"])
def poll(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> QueuePoll:
    """Libraries of green threads take `epoll` away, and eventlet `poll`, too."""
    for name in {"epoll": [], "poll": ["epoll"], "select": ["epoll", "poll"]}[request.param]:
        monkeypatch.delattr(select, name)
    return QueuePoll()


def test_a_put_and_a_call_end_a_wait(poll: QueuePoll, tmp_path: Path) -> None:
    with Queue(tmp_path / "q") as queue:
        watch = _core.Watch(queue.store.need_shared())
        poll.add(watch.fileno())
        poll.wait(0)
        watch.arm()
        queue.put(b"x")
        poll.wait(None)  # For ever, if nobody wakes it.
        poll.wake()
        poll.wait(None)
        poll.wake()
        poll.clear()
        poll.wait(0)
        poll.drop(watch.fileno())
        poll.drop(watch.fileno())  # It is fine that it is watched no more.
        watch.close()
    poll.close()


def test_only_an_event_loop_gets_a_descriptor(poll: QueuePoll) -> None:
    if poll.is_green:
        with pytest.raises(RuntimeError, match="green threads"):
            poll.fileno()
    else:
        poll.wake()
        assert select.select([poll.fileno()], [], [], 0)[0]
        poll.clear()
        assert not select.select([poll.fileno()], [], [], 0)[0]
    poll.close()
