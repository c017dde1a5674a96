"""A crowd on one queue, in every format: producers and consumers are killed and replaced, or
stopped for a while, wherever they are. Every message comes to each group; none comes again unless
whoever had it died; each producer's messages come in the order in which it put them.
"""

from __future__ import annotations

import mmap
import os
import random
import re
import select
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import Empty, Queue
from tests import counting
from tests.crash.killing import in_a_small_process

pytestmark = pytest.mark.crash
SEED = int(os.environ.get("PENSTOCK_SEED", "20261119"))
MEMORY = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else Path("/tmp")
BATCH = 100
EACH = int(os.environ.get("PENSTOCK_CROWD_EACH", "1000000"))
"""Messages of each producer in the slow test."""
STALLS_S = 120.0
"""Nobody has put or taken anything for so long: somebody hangs."""
SMALL = {"max_bytes": 32 << 20, "segment_bytes": 4 << 20, "durability": "process"}
KINDS: dict[str, dict[str, Any]] = {
    "penstock": {"format": "penstock", **SMALL},
    "zbus": {"format": "zbus", **SMALL},
    "beats": {"format": "beats", **SMALL},
    "vqs": {"format": "vqs", "max_bytes": 8 << 20, "durability": "process"},
    "mfq": {"format": "mfq", **SMALL},
}
LEASED, ORDERED = 0, 1


@pytest.fixture
def folder() -> Iterator[Path]:
    path = MEMORY / f"penstock-crowd-{os.getpid()}"
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    yield path
    shutil.rmtree(path)


class Book:
    """Shared memory: how many puts of each producer have returned, how often each message came to
    each group, and what each consumer has in hand."""

    def __init__(self, each: int, producers: int, consumers: int) -> None:
        self.each, self.producers = each, producers
        count = producers + consumers * (BATCH + 1) + 2
        self.words = memoryview(mmap.mmap(-1, 8 * count)).cast("Q")
        self.came = [mmap.mmap(-1, each * producers) for _ in (LEASED, ORDERED)]

    def held(self, who: int) -> list[int]:
        at = self.producers + who * (BATCH + 1)
        return list(self.words[at + 1 : at + 1 + self.words[at]])

    def hold(self, who: int, numbers: list[int]) -> None:
        at = self.producers + who * (BATCH + 1)
        self.words[at] = 0
        for index, number in enumerate(numbers):
            self.words[at + 1 + index] = number
        self.words[at] = len(numbers)

    def end(self) -> None:
        """Nothing more will be put."""
        self.words[-1] = 1

    def gets_on(self, many: int) -> None:
        """Somebody has got so many messages; about, for this takes no lock."""
        self.words[-2] += many

    def steps(self) -> int:
        return sum(self.words[: self.producers]) + self.words[-2]

    @property
    def has_ended(self) -> bool:
        return self.words[-1] == 1

    def number_of(self, body: bytes) -> int:
        who, number = divmod(int(body), 10**9)
        assert 0 <= who < self.producers, body
        assert 0 <= number < self.each, body
        return who * self.each + number


def produce(path: Path, book: Book, who: int) -> None:
    queue = Queue(path, **OPTIONS)
    for number in range(book.words[who], book.each):
        queue.put(b"%d" % (who * 10**9 + number))
        book.words[who] = number + 1
    queue.close()


def consume(path: Path, book: Book, who: int) -> None:
    queue = Queue(path, **OPTIONS)
    group = queue.group("leased", visibility_s=3600.0)
    came = book.came[LEASED]
    while (messages := group.get_many(BATCH, 0.2)) or not book.has_ended:
        book.gets_on(len(messages))
        numbers = [book.number_of(message.body) for message in messages]
        book.hold(who, numbers)
        for number, message in zip(numbers, messages, strict=True):
            came[number] = min(came[number] + 1, 255)
            message.ack()
    queue.close()


def follow(path: Path, book: Book, _: int) -> None:
    """Takes in order; nobody kills it."""
    queue = Queue(path, **OPTIONS)
    group = queue.group("ordered", ack="auto")
    came, last = book.came[ORDERED], [-1] * book.producers
    while (messages := group.get_many(BATCH, 0.2)) or not book.has_ended:
        book.gets_on(len(messages))
        for message in messages:
            number = book.number_of(message.body)
            who = number // book.each
            # A producer that died between its put and its note has put the same again.
            assert number >= last[who], f"{number} behind {last[who]}"
            last[who] = number
            came[number] = min(came[number] + 1, 255)
    queue.close()


OPTIONS: dict[str, Any] = {}
Work = Callable[[Path, Book, int], None]


class Crowd:
    """The processes at work; they are forked, each does one thing."""

    def __init__(self, path: Path, book: Book, rng: random.Random) -> None:
        self.path, self.book, self.rng = path, book, rng
        self.at_work: dict[int, tuple[Work, int]] = {}
        self.twice: Counter[int] = Counter()
        """Messages that may have been put once more."""
        self.again: Counter[int] = Counter()
        """Messages whose holder died."""

    def start(self, work: Work, who: int) -> None:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                work(self.path, self.book, who)
                code = 0
            finally:
                os._exit(code)
        self.at_work[pid] = work, who

    def some(self, *works: Work) -> list[int]:
        return [pid for pid, (work, _) in self.at_work.items() if work in works]

    def reap(self, pid: int, *, is_killed: bool = False, wait: bool = True) -> bool:
        """Whether it has ended, as it should."""
        ended, status = os.waitpid(pid, 0 if wait else os.WNOHANG)
        if not ended:
            return False
        work, who = self.at_work.pop(pid)
        is_right = status == 0 or (is_killed and os.WIFSIGNALED(status))
        assert is_right, f"{work.__name__} {who} ended with {status}"
        return True

    def kill(self, pid: int) -> None:
        """And another takes its place."""
        work, who = self.at_work[pid]
        os.kill(pid, signal.SIGKILL)
        self.reap(pid, is_killed=True)
        if work is produce and self.book.words[who] < self.book.each:
            self.twice[who * self.book.each + self.book.words[who]] += 1
        if work is consume:
            self.again.update(self.book.held(who))
            self.book.hold(who, [])
        self.start(work, who)
        counting.count("kills")

    def stop_for_a_while(self, pid: int) -> None:
        os.kill(pid, signal.SIGSTOP)
        self.wait(self.rng.randrange(1, 30))
        os.kill(pid, signal.SIGCONT)
        counting.count("stops")

    def wait(self, milliseconds: int) -> None:
        """So long, or until somebody has ended."""
        poll = select.poll()
        handles = [os.pidfd_open(pid) for pid in self.at_work]
        for handle in handles:
            poll.register(handle, select.POLLIN)
        poll.poll(milliseconds)
        for handle in handles:
            os.close(handle)

    def disturb(self) -> None:
        chance = self.rng.random()
        if chance < 0.5:
            self.stop_for_a_while(self.rng.choice([*self.at_work]))
        elif chance < 0.9:
            self.kill(self.rng.choice(self.some(consume)))
        elif producers := self.some(produce):
            self.kill(self.rng.choice(producers))

    def finish(self, works: tuple[Work, ...], *, disturbed: bool) -> None:
        """Until everyone who does one of these has ended by itself."""
        seen, since = 0, time.monotonic()
        while self.some(*works):
            self.wait(self.rng.randrange(1, 60))
            for pid in self.some(*works):
                self.reap(pid, wait=False)
            if disturbed and self.some(*works):
                self.disturb()
            if seen != (seen := self.book.steps()):
                since = time.monotonic()
            assert time.monotonic() - since < STALLS_S, "nobody gets on"


def crowd(folder: Path, kind: str, each: int, producers: int, consumers: int) -> None:
    print(f"seed {SEED}")
    OPTIONS.update(KINDS[kind])
    path = folder / ("queue.bin" if kind == "vqs" else "queue")
    with Queue(path, **OPTIONS) as queue:
        queue.group("leased", visibility_s=3600.0)
        queue.group("ordered", ack="auto")
    book = Book(each, producers, consumers)
    all_of_them = Crowd(path, book, random.Random(SEED))
    try:
        all_of_them.start(follow, 0)
        for who in range(consumers):
            all_of_them.start(consume, who)
        for who in range(producers):
            all_of_them.start(produce, who)
        all_of_them.finish((produce,), disturbed=True)
        book.end()
        all_of_them.finish((consume, follow), disturbed=False)
    finally:
        for pid in all_of_them.at_work:
            os.kill(pid, signal.SIGKILL)
    counting.count("messages", each * producers)
    check(path, book, all_of_them)


def check(path: Path, book: Book, crowd: Crowd) -> None:
    with Queue(path, **OPTIONS) as queue:
        leased, ordered = queue.group("leased"), queue.group("ordered")
        for message in leased.get_many(10_000):  # Of those who died last.
            book.came[LEASED][book.number_of(message.body)] += 1
            message.ack()
        assert leased.lag_bytes == ordered.lag_bytes == 0
        assert queue.verify().is_ok
        with pytest.raises(Empty):
            ordered.get(0)
    for which, again in ((LEASED, crowd.again + crowd.twice), (ORDERED, crowd.twice)):
        came = bytes(book.came[which])
        lost = came.count(0)
        assert not lost, f"{lost} never came to group {which}"
        more = {at.start(): came[at.start()] for at in re.finditer(rb"[^\x01]", came, re.DOTALL)}
        wrong = {number: count for number, count in more.items() if count > 1 + again[number]}
        assert not wrong, f"came again to group {which}, and nobody had died: {wrong}"
    print(f"{len(crowd.again)} leases and {len(crowd.twice)} puts of the dead")


@pytest.mark.parametrize("kind", KINDS)
def test_a_crowd_loses_nothing_and_gets_nothing_twice(folder: Path, kind: str) -> None:
    in_a_small_process(crowd, folder, kind, 2500, 4, 3)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", KINDS)
def test_sixteen_producers_of_a_million_messages_each(folder: Path, kind: str) -> None:
    in_a_small_process(crowd, folder, kind, EACH, 16, 4)
