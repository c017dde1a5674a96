"""A twin of an original program and penstock, in turn on one folder, with orderly and killed ends.

Every turn is a process of its own. It says what it is about to do and what it has done through a
pipe, so whatever becomes of it, what it was promised is known. After each turn the folder is read
as the original would read it; at the end one of the two takes everything that is left.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from penstock import PenstockError, Queue
from tests.originals.zbus_twin import Broken

Say = Callable[[str, int], None]
Point = Callable[[str], None]
TURNS = 10
SPIN_NS = 400_000


class Wrong(AssertionError):
    """What neither program may ever do to the other's messages."""


class Twin(Protocol):
    """The original's side: what the alternation asks of it."""

    deletes: bool
    """Whether what was taken is gone from the folder."""
    alone_after: frozenset[str]
    """Where the original, killed, leaves what it would itself go wrong with: we come next."""

    def put(self, path: Path, bodies: list[bytes], said: Say, point: Point) -> None: ...

    def take(self, path: Path, count: int, about: Callable[[bytes], None]) -> Iterator[bytes]: ...

    def everything(self, path: Path) -> list[bytes]: ...

    def points(self) -> tuple[str, ...]: ...

    def can_go_on(self, path: Path) -> bool:
        """Whether the original can open what a killed program left. Where it can't, it leaves the
        same itself when it is killed there, or even closed."""


def body_of(number: int, is_large: bool = True) -> bytes:
    """Never 238 bytes more than a multiple of 256, which the original of mfq can't read."""
    rng = random.Random(number)
    size = rng.choice((1, 9, 60, 300, 900, 2500 if is_large else 40))
    body = b"%06d:" % number + bytes([65 + number % 26]) * size
    return body + b"!" if len(body) % 256 == 238 else body


def number_of(body: bytes) -> int:
    try:
        number = int(body[:6])
    except ValueError:
        raise Wrong(f"a body that nobody put: {body[:40]!r}") from None
    if body not in (body_of(number), body_of(number, is_large=False)):
        raise Wrong(f"another body under number {number}: {body[:40]!r}")
    return number


@dataclass
class Facts:
    """What the two have been promised."""

    tried: list[int] = field(default_factory=list)
    put: set[int] = field(default_factory=set)
    acked: set[int] = field(default_factory=set)
    maybe_acked: set[int] = field(default_factory=set)
    story: list[str] = field(default_factory=list)

    def hear(self, word: str, number: int) -> None:
        if word == "trying":
            self.tried.append(number)
        elif word == "put":
            self.put.add(number)
        elif word == "got":
            if number not in self.tried:
                raise Wrong(f"message {number} was never put")
            if number in self.acked:
                raise Wrong(f"message {number} came again after it was acked")
        elif word == "acking":
            self.maybe_acked.add(number)
        elif word == "acked":
            self.acked.add(number)

    def check_there(self, found: list[bytes], who: str, deletes: bool) -> None:
        """Nothing that must be there is missing, nothing is out of place or there twice."""
        numbers = [number_of(body) for body in found]
        place = {number: index for index, number in enumerate(self.tried)}
        strangers = [number for number in numbers if number not in place]
        if strangers:
            raise Wrong(f"{who} finds {strangers}, which nobody put")
        if [place[n] for n in numbers] != sorted({place[n] for n in numbers}):
            raise Wrong(f"{who} finds them out of order or twice: {numbers}")
        missing = self.put - set(numbers) - (self.maybe_acked if deletes else set())
        if missing:
            raise Wrong(f"{who} finds no {sorted(missing)[:5]} ({len(missing)} of {len(self.put)})")


def in_a_child(
    work: Callable[[Say], None], heard: Callable[[str, int], None], kill_after: int | None,
    rng: random.Random,
) -> str:  # fmt: skip
    """Runs `work`, told what it says; killed after so many words, if at all. How it ended."""
    here, there = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(here)
            work(lambda word, number: _write(there, f"{word} {number}\n"))
            code = 0
        except BaseException as failure:
            text = f"error {type(failure).__name__}: {failure}"
            _write(there, text.replace("\n", " ") + "\n")
        finally:
            os._exit(code)
    os.close(there)
    error, words, rest, status = "", 0, b"", 0
    try:
        while data := os.read(here, 65536):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                word, _, text = line.decode().partition(" ")
                if word == "error":
                    error = text
                    continue
                heard(word, int(text))
                words += 1
                if words == kill_after:
                    spin(rng.randrange(SPIN_NS))
                    os.kill(pid, signal.SIGKILL)
    except Wrong:
        os.kill(pid, signal.SIGKILL)
        raise
    finally:
        os.close(here)
        _, status = os.waitpid(pid, 0)
    if error:
        raise Wrong(error)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) != signal.SIGKILL:
        raise Wrong(f"signal {os.WTERMSIG(status)}")
    return "killed" if os.WIFSIGNALED(status) else "ended"


def spin(nanoseconds: int) -> None:
    until = time.perf_counter_ns() + nanoseconds
    while time.perf_counter_ns() < until:
        pass


def _write(descriptor: int, text: str) -> None:
    os.write(descriptor, text.encode())


class Alternation:
    """One run: a folder, two programs, `TURNS` turns."""

    def __init__(self, path: Path, twin: Twin, options: dict[str, Any], seed: int) -> None:
        self.path, self.twin, self.options, self.rng = path, twin, options, random.Random(seed)
        self.facts, self.number, self.seed = Facts(), 0, seed
        self.must_put = False
        """The original left what only a put clears away."""

    def run(self, first: str) -> None:
        shutil.rmtree(self.path.parent, ignore_errors=True)
        self.path.parent.mkdir(parents=True)
        who = first
        try:
            turns = 0
            while turns < TURNS or self.must_put:
                who, turns = self.turn(who), turns + 1
            self.finish()
        except (Wrong, Broken, PenstockError) as error:
            story = "\n  ".join(self.facts.story)
            raise Wrong(f"seed {self.seed}: {type(error).__name__}: {error}\n  {story}") from error

    def turn(self, who: str) -> str:
        """One program's turn, and who comes next."""
        rng = self.rng
        # The original's own kill points are told apart by name: what it leaves at each is known.
        kill_after = rng.randrange(1, 25) if who == "penstock" and rng.random() < 0.3 else None
        leaves = rng.random() < 0.3  # Ends without a close, as kill -9 between two calls does.
        puts = [self.next() for _ in range(rng.choice((1, 3) if self.must_put else (0, 1, 3, 8)))]
        takes = rng.choice((0, 0, 1, 4, 12))
        point = rng.choice(self.twin.points()) if who == "twin" and rng.random() < 0.25 else ""
        die_at = (point, rng.randrange(1, 4)) if point else None
        steps = [("put", puts), ("take", takes)]
        rng.shuffle(steps)
        level = rng.choice(("process", "interval", "always"))
        self.facts.story.append(
            f"{who}: {steps} {level if who == 'penstock' else die_at} "
            f"{'leaves' if leaves else 'closes'}, killed after {kill_after}"
        )
        seed = rng.randrange(1 << 30)
        work: Callable[[Say], None]
        if who == "twin":
            work = lambda say: self.twins_turn(steps, say, die_at)  # noqa: E731
        else:
            work = lambda say: self.our_turn(steps, say, level, leaves, seed)  # noqa: E731
        last = ""

        def heard(word: str, number: int) -> None:
            nonlocal last
            last = word
            self.facts.hear(word, number)

        ended = in_a_child(work, heard, kill_after, rng)
        self.facts.story[-1] += f" -> {ended}"
        is_alone = who == "twin" and point in self.twin.alone_after
        if ended == "killed" and (is_alone or not self.twin.can_go_on(self.path)):
            self.must_put = True
            return "penstock"
        if self.must_put and not self.facts.put.issuperset(puts):
            return "penstock"  # It was killed before it put anything.
        self.must_put = False
        if ended != "killed":
            self.look(f"the original after {who}")
        return rng.choice(("penstock", "twin"))

    def next(self) -> int:
        self.number += 1
        return self.number

    def twins_turn(self, steps: list[Any], say: Say, die_at: tuple[str, int] | None) -> None:
        left = die_at[1] if die_at else 0

        def point(name: str) -> None:
            nonlocal left
            if die_at is not None and name == die_at[0]:
                left -= 1
                if not left:
                    os.kill(os.getpid(), signal.SIGKILL)

        for step, what in steps:
            if step == "put":
                if not what:
                    continue
                self.twin.put(self.path, [body_of(number) for number in what], say, point)
                continue
            for body in self.twin.take(self.path, what, lambda b: say("acking", number_of(b))):
                say("got", number_of(body))
                say("acked", number_of(body))

    def our_turn(
        self, steps: list[Any], say: Say, level: str, leaves: bool, seed: int
    ) -> None:  # fmt: skip
        rng = random.Random(seed)
        queue = Queue(self.path, **(self.options | {"durability": level}))
        say("opened", 0)
        for step, what in steps:
            if step == "put":
                put_ours(queue, what, say, rng)
            elif what:
                take_ours(queue, what, say, rng)
        if rng.random() < 0.3:
            verdict = queue.verify()
            if verdict.corrupt:
                raise Wrong(f"verify: {verdict.corrupt[0]}")
        if leaves:
            os.kill(os.getpid(), signal.SIGKILL)
        queue.close()

    def look(self, who: str) -> None:
        self.facts.check_there(self.twin.everything(self.path), who, self.twin.deletes)

    def finish(self) -> None:
        """One of the two takes what is left; before, both find the same."""
        in_a_child(lambda say: self.our_turn([], say, "process", False, 0), noted, None, self.rng)
        self.look("the original at the end")
        found: list[bytes] = []
        with Queue(self.path, create=False, read_only=True) as queue:
            found += [message.body for message in queue.scan()]
        self.facts.check_there(found, "penstock at the end", self.twin.deletes)
        theirs = self.twin.everything(self.path)
        more = {number_of(body) for body in theirs[len(found) :]}
        if theirs[: len(found)] != found or more & self.facts.put:
            raise Wrong("the two find different messages")
        who, got = self.rng.choice(("penstock", "twin")), []
        self.facts.story.append(f"{who} takes what is left")

        def heard(word: str, number: int) -> None:
            self.facts.hear(word, number)
            if word == "got":
                got.append(number)

        steps = [("take", 1_000_000)]
        if who == "twin":
            in_a_child(lambda say: self.twins_turn(steps, say, None), heard, None, self.rng)
        else:
            work = lambda say: self.our_turn(steps, say, "process", False, 1)  # noqa: E731
            in_a_child(work, heard, None, self.rng)
        missing = self.facts.put - self.facts.maybe_acked - set(got)
        if missing:
            raise Wrong(f"{who} never got {sorted(missing)[:5]} ({len(missing)}), which nobody had")


def noted(word: str, number: int) -> None:
    """Nothing to remember."""


def put_ours(queue: Queue, numbers: list[int], say: Say, rng: random.Random) -> None:
    while numbers:
        count = rng.choice((1, 1, 3))
        batch, numbers = numbers[:count], numbers[count:]
        for number in batch:
            say("trying", number)
        bodies = [body_of(number) for number in batch]
        if count == 1:
            queue.put(bodies[0])
        else:
            queue.put_many(bodies)
        for number in batch:
            say("put", number)


def take_ours(queue: Queue, count: int, say: Say, rng: random.Random) -> None:
    """In order; at times the last ones are handed back unacked by the end of the process."""
    is_all = count > 1000
    while count > 0 and (found := queue.group().get_many(min(count, 20), 0)):
        count -= len(found)
        keep = len(found) if is_all or rng.random() < 0.8 else rng.randrange(len(found))
        for message in found:
            say("got", number_of(message.body))
        for message in found[:keep]:
            number = number_of(message.body)
            say("acking", number)
            message.ack()
            say("acked", number)
        if keep < len(found):
            return
