"""Consumers of a leased group are killed all the time, at whatever they are doing.

Nobody who lives is refused a receipt, every message is acked, none comes again unless a lease on
it had ended, and in the end nothing is left over.
"""

from __future__ import annotations

import mmap
import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import Queue, ReceiptError
from tests import counting
from tests.crash.killing import in_a_small_process
from tests.opening import open_queue

pytestmark = pytest.mark.crash
SEED = int(os.environ.get("PENSTOCK_SEED", "20261115"))
MEMORY = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else Path("/tmp")
CONSUMERS, BATCH = 3, 3


@pytest.fixture
def folder() -> Iterator[Path]:
    path = MEMORY / f"penstock-victims-{os.getpid()}"
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    yield path
    shutil.rmtree(path)


class Notes:
    """Shared memory: what came how often, what was acked or given back, who has what."""

    def __init__(self, path: Path, total: int) -> None:
        self.total = total
        path.write_bytes(bytes(4 * total + CONSUMERS * 64))
        with path.open("r+b") as file:
            self.memory = mmap.mmap(file.fileno(), 0)

    def count(self, kind: int, number: int) -> None:
        at = kind * self.total + number
        self.memory[at] = min(self.memory[at] + 1, 255)

    def counted(self, kind: int) -> bytes:
        return self.memory[kind * self.total : (kind + 1) * self.total]

    def hold(self, who: int, numbers: list[int]) -> None:
        text = ",".join(map(str, numbers)).encode().ljust(64, b"\0")
        at = 4 * self.total + who * 64
        self.memory[at : at + 64] = text

    def held(self, who: int) -> list[int]:
        at = 4 * self.total + who * 64
        text = self.memory[at : at + 64].rstrip(b"\0").decode()
        return [int(part) for part in text.split(",") if part]


CAME, ACKED, ENDED, REFUSED = range(4)


def consume(path: Path, notes: Notes, who: int, seed: int) -> None:
    """Takes some, keeps the lease of some for longer, gives some back, acks the rest."""
    rng = random.Random(seed)
    group = open_queue(path, segment_bytes=1 << 16).group("all", visibility_s=600.0)
    for _ in range(100_000):
        messages = group.get_many(rng.randrange(1, BATCH + 1), 0.05)
        numbers = [int(message.body) for message in messages]
        notes.hold(who, numbers)
        for number in numbers:
            notes.count(CAME, number)
        for message, number in zip(messages, numbers, strict=True):
            try:
                what = rng.random()
                if what < 0.2:
                    message.extend(700)
                if what < 0.1:
                    notes.count(ENDED, number)
                    message.nack(rng.choice((0.0, 0.001)))
                else:
                    message.ack()
                    notes.count(ACKED, number)
            except ReceiptError:
                notes.count(REFUSED, number)


class Arena:
    """Consumers that are killed and replaced."""

    def __init__(self, path: Path, notes: Notes, rng: random.Random) -> None:
        self.path, self.notes, self.rng = path, notes, rng
        self.pids = [self.start(who) for who in range(CONSUMERS)]

    def start(self, who: int) -> int:
        self.notes.hold(who, [])
        seed = self.rng.randrange(2**32)
        pid = os.fork()
        if pid == 0:
            try:
                consume(self.path, self.notes, who, seed)
            finally:
                os._exit(1)
        return pid

    def kill(self, who: int) -> None:
        os.kill(self.pids[who], signal.SIGKILL)
        _, status = os.waitpid(self.pids[who], 0)
        assert os.WIFSIGNALED(status), "a consumer ended by itself"
        counting.count("kills")
        for number in self.notes.held(who):
            self.notes.count(ENDED, number)

    def kill_and_replace(self) -> None:
        until = time.perf_counter_ns() + self.rng.randrange(6_000_000)
        while time.perf_counter_ns() < until:
            pass
        who = self.rng.randrange(CONSUMERS)
        self.kill(who)
        self.pids[who] = self.start(who)


def kill_often(folder: Path, kills: int) -> None:
    print(f"seed {SEED}")
    rng, path = random.Random(SEED), folder / "queue"
    total, put = kills * 400, 0
    notes = Notes(folder / "notes", total)
    with open_queue(path, segment_bytes=1 << 16) as queue:
        group = queue.group("all", visibility_s=600.0)
        arena = Arena(path, notes, rng)
        for _ in range(kills):
            if group.lag < 500 and put < total:
                keys = rng.choice((None, None, "a", "b"))
                for number in range(put, min(put + 400, total)):
                    queue.put(b"%d" % number, key=keys if number % 3 == 0 else None)
                put = min(put + 400, total)
            arena.kill_and_replace()
        for who in range(CONSUMERS):
            arena.kill(who)
        group.core.release_dead()
        check(queue, notes, put, kills)


def check(queue: Queue, notes: Notes, put: int, kills: int) -> None:
    """The rest is drained here; then everything must fit together."""
    group = queue.group("all")
    left: list[int] = []
    deadline = time.monotonic() + 60
    while group.cursor != queue.offsets().tail and time.monotonic() < deadline:
        for message in group.get_many(100, 0.05):
            left.append(int(message.body))
            message.ack()
    came, acked = notes.counted(CAME), notes.counted(ACKED)
    ended, refused = notes.counted(ENDED), notes.counted(REFUSED)
    assert group.cursor == queue.offsets().tail
    assert refused.count(0) == len(refused), "a living consumer was refused its receipt"
    drained = Counter(left)
    for number in range(put):
        again = came[number] + drained[number] - 1
        assert again <= ended[number], f"{number} came {again} times more, {ended[number]} ended"
        assert acked[number] <= 1, f"{number} was acked twice"
    back = [number for number in left if acked[number]]
    assert not back, f"acked and handed out again: {back}"
    # An ack of a killed consumer may have been made and not been noted by it any more.
    missing = [n for n in range(put) if not acked[n] and not drained[n] and not ended[n]]
    assert not missing, f"never came: {missing}"
    assert group.core.outstanding() == []
    counts = group.core.counts()
    assert [counts[name] for name in ("leased", "delayed", "blocked", "ready")] == [0] * 4
    done = sum(map(bool, acked))
    print(f"{kills + CONSUMERS} kills, {put} messages, {done} acked by victims, {len(left)} left")
    assert done > kills


def test_a_hundred_killed_consumers_harm_nobody_else(folder: Path) -> None:
    in_a_small_process(kill_often, folder, 100)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_thousands_of_killed_consumers_harm_nobody_else(folder: Path) -> None:
    in_a_small_process(kill_often, folder, 5000)
