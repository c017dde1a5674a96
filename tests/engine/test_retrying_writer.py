"""Puts on a disk that fails for a while, and puts that sync after so many messages."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import AsyncQueue, ManualClock, OptionError, PoisonedError, Queue, _core
from penstock.engine import retrying_writer
from tests.failing import failing_syncs


class FailingWriter:
    """A native writer whose next puts fail; says when it was asked."""

    def __init__(self, native: _core.Writer, clock: ManualClock, *errors: int) -> None:
        self.native, self.clock, self.errors = native, clock, list(errors)
        self.asked: list[float] = []

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("put"):
            return getattr(self.native, name)

        def call(*args: Any, **values: Any) -> Any:
            self.asked.append(self.clock.core.boot_now_ns() / 1e9)
            if self.errors:
                raise OSError(self.errors.pop(0), "the disk says no")
            return getattr(self.native, name)(*args, **values)

        return call


def failing(queue: Queue, clock: ManualClock, *errors: int) -> FailingWriter:
    """Lets the next puts of the queue fail."""
    fake = FailingWriter(queue.store.need_writer(), clock, *errors)
    queue.store.writer = fake  # type: ignore[assignment]
    queue.put = retrying_writer.writer(queue).put  # type: ignore[method-assign]
    return fake


def put_while_time_goes_by(queue: Queue, clock: ManualClock, put: Callable[[], Any]) -> None:
    """Moves the clock on until the put has returned."""
    thread = threading.Thread(target=put)
    thread.start()
    while thread.is_alive():
        clock.advance(0.25)
        thread.join(0.01)


def test_a_put_waits_out_a_full_disk_twice_as_long_each_time(tmp_path: Path) -> None:
    clock = ManualClock()
    options: dict[str, Any] = {"retry_interval_s": 1.0, "max_retry_interval_s": 4.0}
    with Queue(tmp_path / "q", clock=clock, **options) as queue:
        fake = failing(queue, clock, *[errno.ENOSPC] * 5)
        put_while_time_goes_by(queue, clock, lambda: queue.put(b"at last"))
        waits = [later - before for before, later in zip(fake.asked, fake.asked[1:], strict=False)]
        for wait, least in zip(waits, [1, 2, 4, 4, 4], strict=True):
            assert least <= wait
        assert [message.body for message in queue.scan()] == [b"at last"]


def test_patience_ends_the_tries_with_the_error_itself(tmp_path: Path) -> None:
    clock = ManualClock()
    options: dict[str, Any] = {"retry_interval_s": 1.0, "put_timeout_s": 0.0}
    with Queue(tmp_path / "q", clock=clock, **options) as queue:
        failing(queue, clock, errno.ENOSPC)
        with pytest.raises(OSError, match="the disk says no"):
            queue.put(b"x")


def test_other_errors_are_raised_at_once(tmp_path: Path) -> None:
    clock = ManualClock()
    with Queue(tmp_path / "q", clock=clock, retry_interval_s=1.0) as queue:
        fake = failing(queue, clock, errno.EACCES)
        with pytest.raises(OSError, match="the disk says no"):
            queue.put(b"x")
        assert len(fake.asked) == 1


def test_a_list_is_tried_again_only_when_none_of_it_can_be_there(tmp_path: Path) -> None:
    clock = ManualClock()
    with Queue(tmp_path / "q", clock=clock, retry_interval_s=1.0) as queue:
        fake = failing(queue, clock, errno.ENOSPC)
        put_while_time_goes_by(queue, clock, lambda: queue.put_many(iter([b"a", b"b"])))
        assert [message.body for message in queue.scan()] == [b"a", b"b"]

        def lands_in_part(items: list[bytes], **values: Any) -> None:
            fake.native.put(items[0])
            raise OSError(errno.ENOSPC, "the disk says no")

        fake.__dict__["put_list"] = lands_in_part
        with pytest.raises(OSError, match="the disk says no"):
            queue.put_many([b"c", b"d"])


def test_a_failed_sync_is_not_tried_again(tmp_path: Path) -> None:
    queue = Queue(tmp_path / "q", durability="always", retry_interval_s=1.0)
    with queue, failing_syncs(), pytest.raises(PoisonedError):
        queue.put(b"x")


def test_closing_the_queue_ends_the_wait(tmp_path: Path) -> None:
    clock = ManualClock()
    queue = Queue(tmp_path / "q", clock=clock, retry_interval_s=1.0)
    fake = failing(queue, clock, *[errno.ENOSPC] * 1000)
    raised: list[BaseException] = []

    def put() -> None:
        try:
            queue.put(b"x")
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=put)
    thread.start()
    while not fake.asked and thread.is_alive():
        thread.join(0.001)
    queue.close()
    thread.join(60)
    assert not thread.is_alive()
    assert len(raised) == 1


def test_tasks_are_told_at_once_and_do_not_block_the_loop(tmp_path: Path) -> None:
    async def put() -> None:
        async with AsyncQueue(tmp_path / "q", retry_interval_s=30.0) as queue:
            inner = queue.queue
            failing(inner, ManualClock(), errno.ENOSPC)
            with pytest.raises(OSError, match="the disk says no"):
                await queue.put(b"x")
            await queue.put(b"y")

    asyncio.run(put())


@pytest.mark.parametrize("format", ["penstock", "beats"])
def test_so_many_messages_are_unsynced_and_no_more(format: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"durability": "process", "max_unsynced": 3}
    with Queue(tmp_path / "q", format=format, **options) as queue:
        unsynced = 0
        for number in range(10):
            queue.put(b'{"n": %d}' % number)
            end = queue.offsets()
            unsynced = 0 if end.durable == end.tail else unsynced + 1
            assert unsynced < 3, number
        queue.put_many([b"{}"] * 5)
        assert queue.offsets().durable == queue.offsets().tail


def test_a_queue_without_these_options_puts_by_the_native_writer(tmp_path: Path) -> None:
    with Queue(tmp_path / "q") as queue:
        assert retrying_writer.writer(queue) is queue.store.need_writer()


@pytest.mark.parametrize(
    "options",
    [
        {"retry_interval_s": -1.0},
        {"retry_interval_s": 60.0},
        {"max_unsynced": -1},
    ],
)
def test_options_that_can_not_be_are_refused(options: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(OptionError):
        Queue(tmp_path / "q", **options)
