"""What the conformance checks share: making queues, naming what a format holds, other processes."""

from __future__ import annotations

import contextlib
import hashlib
import multiprocessing
import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from penstock import ManualClock, Message, Queue, UnsupportedError
from penstock.formats.registry import MODULES
from penstock.formats.values import Capabilities
from tests.opening import small_segments
from tests.reading import bodies_of

SPAWN = multiprocessing.get_context("spawn")
SMALL = 16 * 1024


def tree_hash(root: Path) -> str:
    """Of every name and byte below `root` (a folder, or a file and its sidecar)."""
    digest = hashlib.sha256()
    roots = [root, *root.parent.glob(root.name + ".*")] if root.is_file() else [root]
    for top in roots:
        for path in sorted([top, *top.rglob("*")]):
            digest.update(str(path).encode() + b"\0")
            if path.is_file():
                digest.update(path.read_bytes())
    return digest.hexdigest()


def filler(number: int, size: int) -> bytes:
    """A body that begins with its number and that no compression makes smaller."""
    return b"%06d" % number + random.Random(number).randbytes(size)


ALARM = signal.SIGUSR2


@contextlib.contextmanager
def alarm(
    seconds: float, error: BaseException | type[BaseException] = KeyboardInterrupt
) -> Iterator[None]:
    """Ctrl-C or another error after `seconds`, by a signal that no time limit of a test goes by.

    Inside `pytest.raises`: on a busy machine it may come before the block has begun.
    """

    def interrupt(*_: object) -> None:
        raise error

    before = signal.signal(ALARM, interrupt)
    timer = threading.Timer(seconds, os.kill, (os.getpid(), ALARM))
    try:
        timer.start()
        yield
    finally:
        timer.cancel()
        timer.join()
        signal.signal(ALARM, before)


class Checks:
    """A format's own test file says `format`, `layout`, `options`, and `name` where a queue is a
    file. Everything else follows from `store.capabilities`."""

    format: ClassVar[str] = "penstock"
    layout: ClassVar[str | None] = None
    options: ClassVar[dict[str, Any]] = {}
    name: ClassVar[str] = "queue"
    has_segments: ClassVar[bool] = True
    """Whether old data goes segment by segment (a ring has one)."""

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return tmp_path / self.name

    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    def queue(self, path: Path, clock: ManualClock) -> Iterator[Queue]:
        """Time stands still in it, and what was acked stays."""
        with self.make(path, clock=clock, durability="process") as queue:
            self.hold(queue)
            yield queue

    def make(self, path: Path, **options: Any) -> Queue:
        given = small_segments(self.format, SMALL) | self.options | options
        return Queue(path, format=self.format, layout=self.layout, **given)

    def reopen(self, path: Path, **options: Any) -> Queue:
        """Sniffed, as a user would open what is there."""
        return Queue(
            path, create=False, **(small_segments(self.format, SMALL) | self.options | options)
        )

    def hold(self, queue: Queue) -> None:
        """Formats that delete what every group has acked keep it for this group."""
        if self.can(queue).deletes_consumed:
            queue.group("hold")

    def can(self, queue: Queue) -> Capabilities:
        return queue.store.capabilities

    def fill(self, queue: Queue, count: int, start: int = 0) -> list[bytes]:
        """Puts `count` bodies that all differ, and answers them."""
        put = [b"message %06d" % number for number in range(start, start + count)]
        for body in put:
            queue.put(body)
        return put

    def fill_segments(self, queue: Queue) -> list[int]:
        """Offsets of enough messages for several small segments."""
        return [queue.put(filler(number, 1000)) for number in range(80)]

    def refuses(self, queue: Queue, put: Callable[[], object]) -> None:
        """Nothing is written, and the error names a format that could."""
        before = tree_hash(queue.path), queue.offsets().tail
        with pytest.raises(UnsupportedError) as refusal:
            put()
        others = [name for name in (*MODULES, "penstock", "zbus", "vqs") if name != self.format]
        assert any(name in str(refusal.value) for name in others), str(refusal.value)
        assert (tree_hash(queue.path), queue.offsets().tail) == before

    def holds(self, queue: Queue, able: bool, put: Callable[[], object]) -> bool:
        """Puts what the format says it can hold; what it may hold elsewhere works or is refused."""
        if able:
            put()
            return True
        try:
            put()
        except UnsupportedError as refusal:
            text = str(refusal)
        else:
            return True
        assert any(name in text for name in (*MODULES, "penstock")), text
        return False

    @contextlib.contextmanager
    def other_process(self, work: Callable[..., None], *arguments: Any) -> Iterator[Any]:
        """Runs `work(self, channel, …)` elsewhere; the block gets the other end of the channel."""
        here, there = SPAWN.Pipe()
        process = SPAWN.Process(target=work, args=(self, there, *arguments), daemon=True)
        process.start()
        there.close()
        try:
            yield Other(process, here)
        finally:
            process.kill()
            process.join()
            here.close()


class Other:
    """Another process of a test."""

    def __init__(self, process: Any, channel: Any) -> None:
        self.process, self.channel = process, channel

    def hear(self) -> Any:
        assert self.channel.poll(60), "the other process says nothing"
        return self.channel.recv()

    def tell(self, value: Any) -> None:
        self.channel.send(value)

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.join()

    def end(self) -> int | None:
        self.process.join(60)
        exit_code: int | None = self.process.exitcode
        return exit_code


def put_and_die(checks: Checks, channel: Any, path: Path, count: int, options: Any) -> None:
    """Puts, says what, and is gone without a word to anyone."""
    queue = checks.make(path, **options)
    checks.hold(queue)
    channel.send(checks.fill(queue, count))
    os._exit(0)


def put_and_wait(checks: Checks, channel: Any, path: Path, count: int, start: int) -> None:
    """Puts, says what, and stays until it is killed or told to go."""
    with checks.make(path, durability="process") as queue:
        channel.send(checks.fill(queue, count, start))
        channel.recv()


def take_and_wait(checks: Checks, channel: Any, path: Path, count: int) -> None:
    """Takes leases, says which, and stays with them."""
    with checks.make(path, durability="process") as queue:
        held: list[Message] = queue.get_many(count, 10)
        channel.send(bodies_of(held))
        channel.recv()


def take_and_ack(checks: Checks, channel: Any, path: Path, count: int) -> None:
    """Consumes `count` messages."""
    with checks.make(path, durability="process") as queue:
        seen: list[bytes] = []
        while len(seen) < count:
            message = queue.get(30)
            seen.append(message.body)
            message.ack()
        channel.send(seen)


def put_from_handle(checks: Checks, channel: Any, queue: Queue) -> None:
    """Uses a queue that travelled as a pickle."""
    with queue:
        queue.put(b"from the other side")
    channel.send(queue.store.format.name)
