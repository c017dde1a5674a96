"""Small programs whose effects are recorded, and what they were promised at each point."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from penstock import ManualClock, Queue, _core
from penstock.options import AckMode
from tests.crash.disk import Effect
from tests.opening import small_segments

KEY = bytes(range(32))
SEGMENT_BYTES = 16384


@dataclass(frozen=True)
class Facts:
    """What holds once an operation has returned."""

    put: int = 0
    """Messages that were put, or were about to be."""
    durable: int = 0
    """Messages that must survive a power cut."""
    trimmed: int = 0
    """Messages below may be gone because someone asked for it."""
    acked: frozenset[int] = frozenset()
    """Acked durably: never handed out again."""
    maybe_acked: frozenset[int] = frozenset()
    is_list: bool = False
    """Whether the last of them were put together, in a list that fits into half a segment."""


@dataclass
class Recording:
    """Effects, and after which of them what holds."""

    name: str
    root: Path
    options: dict[str, Any]
    effects: list[Effect] = field(default_factory=list)
    facts: list[tuple[int, Facts]] = field(default_factory=list)
    ack: AckMode | None = None
    """How the group acks; none: no group."""
    group: str = "g"


@lru_cache(1000)
def body(number: int, size: int) -> bytes:
    """The body of a message: its number, then bytes that no compression makes smaller."""
    return b"%06d" % number + random.Random(number).randbytes(size)


class Work:
    """A queue whose effects are recorded."""

    def __init__(self, root: Path, **options: Any) -> None:
        self.root, self.options = root, options
        self.clock = ManualClock()
        self.facts = Facts()
        self.log: list[Facts] = []
        self.is_always = options.get("durability") == "always"
        self.table: Path | None = None
        self.first_offsets: dict[int, int | None] = {}
        self.queue = self.open()

    def open(self) -> Queue:
        queue = Queue(self.root, clock=self.clock, **self.options)
        if queue._maintenance is not None:
            queue._maintenance.stop()  # Its work is done in turn, so that a recording is repeated.
        self.say(self.facts)
        return queue

    def keep(self) -> None:
        """What a maintenance thread does; at level `process` there is none."""
        if self.queue._maintenance is not None:
            self.queue.store.prepare_ahead()
            self.queue.store.format.tend()

    def say(self, facts: Facts) -> None:
        """An operation has returned: from here on `facts` hold."""
        self.note_table()
        self.facts = facts
        self.log.append(facts)
        _core.mark_effect(str(len(self.log) - 1))

    def note_table(self) -> None:
        """A group's table is stored to without a record: what it has now, as one store."""
        if self.table is not None:
            with self.table.open("rb") as stream:
                head = stream.read(4096)
            _core.mark_effect(f"table {self.table.stat().st_ino} {head.hex()}")

    def put(self, size: int, count: int = 1) -> None:
        first = self.facts.put
        numbers = range(first, first + count)
        bodies = [body(number, size) for number in numbers]
        if count == 1:
            self.first_offsets[first] = self.queue.put(bodies[0])
        else:
            self.first_offsets[first] = self.queue.put_many(bodies)
        self.keep()
        total = first + count
        durable = total if self.is_always else self.facts.durable
        is_list = count > 1 and count * (size + 200) < SEGMENT_BYTES // 2
        self.say(replace(self.facts, put=total, durable=durable, is_list=is_list))

    def sync(self) -> None:
        self.queue.sync()
        facts = self.facts
        self.say(replace(facts, durable=facts.put, acked=facts.maybe_acked))

    def reopen(self) -> None:
        self.queue.close()
        facts = self.facts
        self.say(replace(facts, durable=facts.put))
        self.queue = self.open()

    def trim(self, number: int) -> None:
        self.queue.trim(self.first_offsets[number])
        self.say(replace(self.facts, trimmed=number))

    def join(self, ack: AckMode, name: str = "g") -> None:
        self.group = self.queue.group(name, ack=ack)
        self.table = self.group.folder / "table"
        self.say(self.facts)

    def take(self, count: int) -> list[tuple[int, Any]]:
        """Gets; with `ack="auto"` that is the ack."""
        found = [(int(message.body[:6]), message) for message in self.group.get_many(count)]
        is_auto = self.group.options.ack == "auto"
        self.acked({number for number, _ in found} if is_auto else set())
        return found

    def ack(self, number: int, message: Any) -> None:
        message.ack()
        self.acked({number})

    def acked(self, numbers: set[int]) -> None:
        surely = self.facts.acked | (numbers if self.is_always else set())
        maybe, trimmed = self.facts.maybe_acked | numbers, self.facts.trimmed
        if self.queue.store.capabilities.deletes_consumed:
            trimmed = next(n for n in range(self.facts.put + 1) if n not in maybe)
        self.say(replace(self.facts, maybe_acked=maybe, acked=surely, trimmed=trimmed))

    def consume(self, count: int) -> None:
        """Takes and acks in order."""
        for number, message in self.take(count):
            self.ack(number, message)

    def checkpoint(self) -> None:
        self.group.core.checkpoint()
        # A checkpoint is synced as a whole: everything acked before it is durable.
        self.say(replace(self.facts, acked=self.facts.maybe_acked))


def appends(work: Work) -> None:
    for size in (10, 100, 5000, 1, 300):
        work.put(size)
    work.put(200, count=6)
    work.sync()
    work.put(2000, count=5)
    work.put(30)
    work.sync()
    work.put(4090)
    work.put(1)


def rolls(work: Work) -> None:
    for _ in range(4):
        work.put(3000)
        work.put(700, count=3)
        work.put(20)
    work.sync()
    for _ in range(3):
        work.put(3500)
    work.sync()
    work.put(3500)
    work.put(10)


def trims(work: Work) -> None:
    for _ in range(9):
        work.put(3500)
    work.sync()
    work.trim(5)
    work.put(3500)
    work.sync()
    work.trim(8)
    for _ in range(3):
        work.put(3500)


def reopens(work: Work) -> None:
    work.put(100)
    work.reopen()
    work.put(200)
    work.put(300)
    work.sync()
    work.reopen()
    work.put(3000)
    work.put(3000)
    work.sync()
    work.put(50)


def leases(work: Work) -> None:
    work.join("lease")
    for _ in range(6):
        work.put(30)
    work.sync()
    held = work.take(4)
    work.ack(*held[1])
    work.ack(*held[0])
    held[2][1].nack()
    held[3][1].nack(5)
    work.say(work.facts)
    work.put(30, count=3)
    held = work.take(3)
    work.ack(*held[0])
    work.sync()
    work.checkpoint()
    work.ack(*held[2])
    held = work.take(9)
    held[0][1].extend(50)
    work.ack(*held[0])
    work.sync()


def gets(work: Work) -> None:
    work.join("auto")
    for _ in range(5):
        work.put(30)
    work.sync()
    work.take(2)
    work.put(30)
    work.take(3)
    work.sync()
    work.take(1)


def laps(work: Work) -> None:
    """More than a ring of four pages holds: what was consumed is overwritten, time and again."""
    work.join("auto")
    for size in (3000, 700, 3900, 2500, 4080, 1200):
        work.put(size)
        work.put(size // 3, count=3)
        work.take(3)
        if size % 500 == 0:
            work.sync()
    work.take(9)
    work.put(4000)
    work.sync()
    work.put(10)


def consumes(work: Work) -> None:
    """The default group, which formats have a place of their own for; whole segments go."""
    work.join("lease", "default")
    work.put(3500, count=4)
    work.consume(2)
    work.sync()
    work.put(3500, count=3)
    work.consume(3)
    work.sync()
    work.put(30)


def resizes(work: Work) -> None:
    """A ring gets other sizes and other settings while messages wait in it."""
    for size in (3000, 700, 3900):
        work.put(size)
    for pages in (24, 8):
        work.sync()
        work.queue.store.resize(16384 + pages * 4096)
        work.say(work.facts)
        work.put(2500)
        work.queue.set_meta(labels={"pages": str(pages)}, delay_seconds=0)
        work.say(work.facts)
        work.put(100, count=3)
    work.sync()
    work.put(10)


WORKLOADS: dict[str, Callable[[Work], None]] = {
    "appends": appends, "rolls": rolls, "trims": trims, "reopens": reopens,
    "leases": leases, "gets": gets, "laps": laps,
    "consumes": consumes, "resizes": resizes,
}  # fmt: skip


ACKS: dict[str, AckMode] = {
    "leases": "lease", "consumes": "lease", "gets": "auto", "laps": "auto",
}  # fmt: skip
"""How the group of a workload acks."""


def record(name: str, root: Path, **options: Any) -> Recording:
    """Runs a workload and answers its effects."""
    shutil.rmtree(root.parent, ignore_errors=True)
    root.parent.mkdir(parents=True)
    options = small_segments(options.get("format", "penstock"), SEGMENT_BYTES) | options
    _core.take_effects()
    _core.record_effects(True)
    try:
        work = Work(root, **options)
        WORKLOADS[name](work)
        _core.record_effects(False)
        work.queue.close()
    finally:
        _core.record_effects(False)
    group = "default" if name == "consumes" else "g"
    recording = Recording(name, root, options, ack=ACKS.get(name), group=group)
    synced: set[int] = set()
    for effect in _core.take_effects():
        if effect[0] != "mark":
            recording.effects.append(effect)
            if effect[0] == "sync":
                synced.add(effect[1])
        elif effect[1].startswith("table "):
            _, inode, head = effect[1].split()
            recording.effects.append(("store", int(inode), 0, bytes.fromhex(head)))
            if int(inode) in synced:
                recording.effects.append(("sync", int(inode)))
                synced.clear()
        else:
            recording.facts.append((len(recording.effects), work.log[int(effect[1])]))
    shutil.rmtree(root.parent)
    return recording
