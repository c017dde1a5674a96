"""A consumer dies at any store that it makes under its group's lock; the others live on.

Every state that an operation passes through is put before the living: their receipts hold, no
message is lost or comes twice, keys keep their order, and nothing is left over in the end.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from penstock import ManualClock, Message, Queue
from tests import counting
from tests.crash.killing import in_a_small_process
from tests.crash.stepping import LOCK, Image, images, need_stepping

pytestmark = pytest.mark.crash
MEMORY = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else Path("/tmp")
FAST_STATES = 3
"""Of each operation, spread over all; the slow suite tries every one."""
Taken = list[Message]


def numbered(numbers: Any) -> list[bytes]:
    return [b"%04d" % number for number in numbers]


@dataclass(frozen=True)
class Operation:
    """What the dying consumer does, after it was given the messages it takes before."""

    run: Callable[[Queue, Taken], object]
    before: Callable[[Scene, Taken], object] = lambda *_: None
    done: int | None = None
    """Which of the two messages that it took may be done with afterwards."""
    given: tuple[int, ...] = ()
    """Messages that the living give back for it to take."""
    crowd: int = 0
    """So many more messages are out."""
    forgets: bool = False
    """Everything is handed out again, whoever had it."""


OPERATIONS = {
    "get": Operation(lambda queue, _: queue.get_many(1)),
    "get-several": Operation(lambda queue, _: queue.get_many(6)),
    "get-again": Operation(lambda queue, _: queue.get_many(1), lambda _, taken: taken[0].nack()),
    "get-in-a-growing-table": Operation(lambda queue, _: queue.get_many(2), crowd=248),
    "get-what-ran-out": Operation(
        lambda queue, _: queue.get_many(1), lambda scene, _: scene.clock.advance(31)
    ),
    "ack": Operation(lambda _, taken: taken[0].ack(), done=0),
    "ack-out-of-order": Operation(lambda _, taken: taken[1].ack(), done=1),
    "ack-with-a-key": Operation(lambda _, taken: taken[0].ack(), done=0, given=(3,)),
    "nack": Operation(lambda _, taken: taken[0].nack()),
    "nack-later": Operation(lambda _, taken: taken[1].nack(7)),
    "extend": Operation(lambda _, taken: taken[0].extend(99)),
    "checkpoint": Operation(lambda queue, _: queue.group().core.checkpoint()),
    "give-back": Operation(lambda queue, _: queue.group().core.give_back()),
    "release-dead": Operation(
        lambda queue, _: queue.group().core.release_dead(), lambda scene, _: scene.another_dies()
    ),
    "inherit": Operation(
        lambda queue, _: queue.group().core.outstanding(),
        lambda scene, _: scene.another_dies(with_the_lock=True),
    ),
    "seek": Operation(lambda queue, _: queue.seek("earliest"), forgets=True),
}


class Scene:
    """A queue with living consumers, and one that is about to die."""

    def __init__(self, folder: Path, operation: Operation) -> None:
        self.operation = operation
        self.path = folder / "queue"
        self.clock: ManualClock = ManualClock()
        self.note = folder / "taken"
        self.queue = self.open()
        self.group = self.queue.group()
        queue = self.queue
        queue.put_many(numbered(range(3)))
        queue.put(b"0003", key="a")
        queue.put(b"0004", key="b")
        queue.put(b"0005", key="a")
        queue.put(b"0006", key="b")
        queue.put_many(numbered(range(7, 12)))
        queue.put(b"0012", delay=50)
        queue.put(b"0013", key="a", delay=60)
        queue.put_many(numbered(range(14, 20)))
        self.total = 20 + operation.crowd
        queue.put_many(numbered(range(20, self.total)))
        self.offsets = {number(message): message.offset or 0 for message in queue.scan()}
        # Taken, one acked in between, one given back: no entry of a table made anew is where it
        # was, and something is ready.
        self.held = self.group.get_many(6 + operation.crowd, visibility=1000)
        self.held.pop(1).ack()
        self.done = {1}
        for message in [m for m in self.held if number(m) in operation.given]:
            self.held.remove(message)
            message.nack()

    def open(self) -> Queue:
        return Queue(self.path, clock=self.clock, durability="process", segment_bytes=1 << 16)

    def die(self) -> list[Image]:
        """Every state in which the operation may leave the group's files."""

        def work(ready: Callable[[], None]) -> None:
            with self.open() as queue:
                taken = queue.get_many(2)
                self.note.write_text(" ".join(str(number(message)) for message in taken))
                self.operation.before(self, taken)
                ready()
                self.operation.run(queue, taken)

        return images(self.group.folder, work)

    def another_dies(self, *, with_the_lock: bool = False) -> None:
        """Before the one that is watched: it has a message, and perhaps the lock."""
        pid = os.fork()
        if pid == 0:
            queue = self.open()
            queue.get_many(1)
            if with_the_lock:
                owner = queue.store.need_shared().owner
                with (self.group.folder / "table").open("r+b") as table:
                    table.seek(LOCK)
                    table.write(owner.to_bytes(4, "little"))
            os._exit(0)
        os.waitpid(pid, 0)

    def check(self, image: Image) -> None:
        image.restore(self.group.folder)
        cursor = self.group.cursor
        after_seek = self.operation.forgets and not self.group.core.outstanding()
        if not after_seek:
            for message in self.held:
                message.extend(10_000)
        self.group.core.release_dead()
        came = self.drain()
        if not after_seek:
            came += [number(message) for message in self.held]
            for message in self.held:
                message.ack()
        came += self.drain()
        self.clock.advance(100)
        came += self.drain()
        expected = set(range(self.total)) - (set() if after_seek else self.done)
        taken = [int(text) for text in self.note.read_text().split()]
        maybe = set() if self.operation.done is None else {taken[self.operation.done]}
        assert cursor <= min(self.offsets[one] for one in came or taken), "could have been trimmed"
        assert len(came) == len(set(came)), f"came twice: {sorted(came)}"
        assert expected - maybe <= set(came) <= expected
        self.is_empty()

    def drain(self) -> list[int]:
        came = []
        while found := self.group.get_many(100):
            came += [number(message) for message in found]
            for message in found:
                message.ack()
        for key in ([3, 5, 13], [4, 6]):
            order = [n for n in came if n in key]
            assert order == sorted(order), f"out of order: {order}"
        return came

    def is_empty(self) -> None:
        counts = self.group.core.counts()
        assert [counts[name] for name in ("leased", "delayed", "blocked", "ready")] == [0] * 4
        assert self.group.core.outstanding() == []
        assert self.group.cursor == self.queue.offsets().tail
        assert len(list(self.group.folder.glob("journal-*"))) == 1


def number(message: Message) -> int:
    return int(message.body)


def die_in_each(folder: Path, most: int | None) -> None:
    for name in OPERATIONS:
        (folder / name).mkdir()
        die_everywhere(folder / name, name, most)


def die_everywhere(folder: Path, name: str, most: int | None) -> None:
    scene = Scene(folder, OPERATIONS[name])
    states = scene.die()
    print(f"{name}: {len(states)} states")
    assert len(states) > 3
    stride = 1 if most is None else max(1, len(states) // most)
    for index in sorted({*range(0, len(states), stride), 0, len(states) - 1}):
        try:
            scene.check(states[index])
            counting.count("kills")
        except BaseException as error:
            error.add_note(f"{name}: state {index} of {len(states)}")
            raise
    scene.queue.close()


@pytest.fixture
def folder() -> Iterator[Path]:
    path = MEMORY / f"penstock-step-{os.getpid()}"
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    yield path
    shutil.rmtree(path)


def test_a_death_under_the_lock_harms_nobody_else(folder: Path) -> None:
    need_stepping()
    in_a_small_process(die_in_each, folder, FAST_STATES)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_death_at_every_store_under_the_lock_harms_nobody_else(folder: Path, name: str) -> None:
    need_stepping()
    in_a_small_process(die_everywhere, folder, name, None)
