"""Who is put under the power cut: penstock in every format, and what others use for the same work.

Each has producers and consumers that say what they were promised, and a `drain` that opens what a
cut left and answers everything that is there and what each group is still owed.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from tests.ladder import means

TRYING, PUT, ACKING, ACKED, END, READY = 5, 1, 2, 3, 4, 6
"""Words of a workload. A put says the last number and how many; an ack the number and its sender.

A message is its sender and its number."""
Name = tuple[int, int]
Say = Callable[[int, int, int], None]
SIZES = (1, 40, 200, 700, 1500, 3000)


def body_of(sender: int, number: int, size: int) -> bytes:
    head = b"%02d:%08d:%06d:" % (sender, number, size)
    return head + ((b"%d." % (number * 7919 + sender)) * (size // 4 + 8))[:size]


def name_of(body: bytes) -> Name | None:
    """Whose message it is; None: no message that anyone put."""
    try:
        sender, number, size = int(body[0:2]), int(body[3:11]), int(body[12:18])
    except ValueError:
        return None
    return (sender, number) if body == body_of(sender, number, size) else None


@dataclass(frozen=True)
class Case:
    """What is put under the cut."""

    product: str = "penstock"
    format: str = "penstock"
    layout: str = ""
    variant: str = ""
    durability: str = "always"
    file_system: str = "ext4"
    states: int = 60
    double: int = 0
    messages: int = 60
    producers: int = 2
    seed: int = 1
    seconds: float = 40.0
    boot: str = "new"
    """`same`: the disk goes back to what a cut would leave while the machine stays up."""

    @property
    def deletes(self) -> bool:
        return self.product == "penstock" and self.format in ("beats", "vqs")

    @property
    def title(self) -> str:
        parts = (self.product, self.format, self.layout, self.variant, self.durability)
        boot = "" if self.boot == "new" else f"{self.boot} boot"
        return " ".join(dict.fromkeys(part for part in (*parts, self.file_system, boot) if part))


class Drained(Exception):
    """What is wrong with a queue after the cut, seen while draining it."""


Left = tuple[list[Name | None], dict[str, list[Name | None]]]
"""Everything that is there, and what each group gets."""


class Penstock:
    """Two producers, a group that leases and one that acks with the get."""

    groups: ClassVar[dict[str, str]] = {"default": "lease", "side": "auto"}

    def __init__(self, case: Case) -> None:
        self.case = case

    def need(self) -> None:
        """Nothing more."""

    def options(self) -> dict[str, Any]:
        case = self.case
        options: dict[str, Any] = {"durability": case.durability}
        if case.format == "penstock" and case.variant == "lz4":
            options["compression"] = "lz4"
        if case.format == "penstock" and case.variant == "key":
            options["key"] = bytes(range(32))
        if case.format == "beats" and case.layout in ("2", "3"):
            options |= {"key": bytes(range(16)), "tamper_evident": case.variant == "seal"}
        if case.format == "vqs":  # Small: the ring goes round.
            return options | {"max_bytes": 131072, "put_timeout_s": 30.0}
        return options | {"segment_bytes": 65536}

    def open(self, folder: Path, create: bool = True) -> Any:
        import penstock

        case = self.case
        path = folder / ("q.bin" if case.format == "vqs" and case.layout != "stage4" else "q")
        options = self.options()
        if create:
            options |= {"format": case.format, "layout": case.layout or None}
        return penstock.Queue(path, create=create, **options)

    def prepare(self, folder: Path) -> None:
        with self.open(folder) as queue:
            for name, ack in self.groups.items():
                queue.group(name, ack=ack)

    def produce(self, folder: Path, say: Say, sender: int) -> None:
        case, number = self.case, 0
        rng = random.Random(case.seed + sender)
        with self.open(folder) as queue:
            while number < case.messages:
                if rng.random() < 0.15:
                    count = min(rng.randint(2, 6), case.messages - number)
                    sizes = [rng.randint(1, 900) for _ in range(count)]
                    bodies = [body_of(sender, number + n, s) for n, s in enumerate(sizes)]
                    say(TRYING, number + count - 1, count)
                    queue.put_many(bodies)
                else:
                    count = 1
                    say(TRYING, number, 1)
                    queue.put(body_of(sender, number, rng.choice(SIZES)))
                number += count
                say(PUT, number - 1, count)

    def consume(self, folder: Path, say: Say, group_name: str) -> None:
        import penstock

        case, ack, seen = self.case, self.groups[group_name], 0
        rng = random.Random(case.seed + len(group_name))
        until = time.monotonic() + case.seconds
        some = int(case.messages * case.producers * 0.8)
        with self.open(folder) as queue:
            group = queue.group(group_name, ack=ack)
            say(READY, 0, 0)
            while seen < some and time.monotonic() < until:
                try:
                    is_one = rng.random() < 0.7
                    found = [group.get(0.5)] if is_one else group.get_many(rng.randint(1, 5), 0.5)
                except penstock.Empty:
                    continue
                rng.shuffle(found)
                for message in found:
                    name = name_of(message.body)
                    assert name is not None, "a wrong body while nothing is wrong"
                    if ack == "lease" and rng.random() < 0.1:
                        message.nack()
                        continue
                    if ack == "lease":
                        say(ACKING, name[1], name[0])
                        message.ack()
                    say(ACKED, name[1], name[0])
                    seen += 1

    def drain(self, folder: Path) -> Left:
        """Reads, takes, puts three more and finds them after reopening."""
        owed: dict[str, list[Name | None]] = {}
        with self.open(folder, create=False) as queue:
            if self.case.layout and queue.store.layout != self.case.layout:
                raise Drained(f"goes on as another layout: {queue.store.layout}")
            verdict = queue.verify()
            if verdict.corrupt:
                raise Drained(f"verify: corrupt: {verdict.corrupt[0]}")
            there = [name_of(message.body) for message in queue.scan()]
            for name, ack in self.groups.items():
                group, got = queue.group(name, ack=ack), []
                while found := group.get_many(1000, 0):
                    got += [name_of(message.body) for message in found]
                owed[name] = got
            for number in range(3):
                queue.put(body_of(90, number, 50))
        with self.open(folder, create=False) as queue:
            tail = [name_of(message.body) for message in queue.scan()][-3:]
            if tail != [(90, 0), (90, 1), (90, 2)]:
                raise Drained(f"three puts after recovery: the tail is {tail}")
        return there, owed


class Anchor:
    """Another product: one producer; everything is drained after the cut."""

    groups: ClassVar[dict[str, str]] = {"default": "lease"}
    module: ClassVar[str] = ""

    def __init__(self, case: Case) -> None:
        self.case = case

    def need(self) -> None:
        if self.module:
            means.need_module(self.module)

    def open(self, folder: Path) -> Any:
        raise NotImplementedError

    def put(self, queue: Any, body: bytes) -> None:
        queue.put(body)

    def all_of(self, queue: Any) -> list[bytes]:
        raise NotImplementedError

    def prepare(self, folder: Path) -> None:
        """Made by its first producer."""

    def produce(self, folder: Path, say: Say, sender: int) -> None:
        rng = random.Random(self.case.seed + sender)
        queue = self.open(folder)
        for number in range(self.case.messages):
            say(TRYING, number, 1)
            self.put(queue, body_of(sender, number, rng.choice(SIZES)))
            say(PUT, number, 1)
        os._exit(0)  # None of them is asked to close: the cut comes first.

    def consume(self, folder: Path, say: Say, group_name: str) -> None:
        """Nobody does."""

    def drain(self, folder: Path) -> Left:
        names = [name_of(body) for body in self.all_of(self.open(folder))]
        return names, {"default": names}


class Sqlite(Anchor):
    """SQLite in WAL mode as a queue; an ack is a committed update."""

    def open(self, folder: Path) -> Any:
        import sqlite3

        base = sqlite3.connect(str(folder / "q.db"), timeout=30, isolation_level=None)
        base.execute("pragma journal_mode=wal")
        base.execute(f"pragma synchronous={self.case.durability}")
        base.execute(
            "create table if not exists m(id integer primary key, body blob, done int default 0)"
        )
        return base

    def put(self, queue: Any, body: bytes) -> None:
        queue.execute("insert into m(body) values(?)", (body,))

    def consume(self, folder: Path, say: Say, group_name: str) -> None:
        base, seen, until = self.open(folder), 0, time.monotonic() + self.case.seconds
        some, pause = int(self.case.messages * self.case.producers * 0.8), threading.Event()
        while seen < some and time.monotonic() < until:
            find = "select id, body from m where done=0 order by id limit 1"
            row = base.execute(find).fetchone()
            if row is None:
                pause.wait(0.02)
                continue
            name = name_of(row[1])
            assert name is not None
            say(ACKING, name[1], name[0])
            base.execute("update m set done=1 where id=?", (row[0],))
            say(ACKED, name[1], name[0])
            seen += 1

    def drain(self, folder: Path) -> Left:
        rows = self.open(folder).execute("select body, done from m order by id").fetchall()
        owed: list[Name | None] = [name_of(body) for body, done in rows if not done]
        return [name_of(body) for body, _ in rows], {"default": owed}


class PersistFile(Anchor):
    """persist-queue's files."""

    module = "persistqueue"

    def open(self, folder: Path) -> Any:
        import persistqueue  # type: ignore[import-not-found,unused-ignore]

        return persistqueue.Queue(str(folder / "q"), autosave=True)

    def all_of(self, queue: Any) -> list[bytes]:
        return [queue.get(block=False) for _ in range(queue.qsize())]


class PersistSqlite(PersistFile):
    """persist-queue on SQLite."""

    def open(self, folder: Path) -> Any:
        import persistqueue

        return persistqueue.SQLiteQueue(str(folder / "q"), auto_commit=True)


class Litequeue(Anchor):
    """litequeue, as its page shows it."""

    module = "litequeue"

    def open(self, folder: Path) -> Any:
        import litequeue  # type: ignore[import-not-found,unused-ignore]

        return litequeue.LiteQueue(str(folder / "q.db"))

    def put(self, queue: Any, body: bytes) -> None:
        queue.put(body.decode())

    def all_of(self, queue: Any) -> list[bytes]:
        return [queue.pop().data.encode() for _ in range(queue.qsize())]


class Diskcache(Anchor):
    """diskcache's Deque."""

    module = "diskcache"

    def open(self, folder: Path) -> Any:
        import diskcache  # type: ignore[import-not-found,unused-ignore]

        return diskcache.Deque(directory=str(folder / "q"))

    def put(self, queue: Any, body: bytes) -> None:
        queue.append(body)

    def all_of(self, queue: Any) -> list[bytes]:
        return list(queue)


class Queuelib(Anchor):
    """queuelib's FIFO queue on disk."""

    module = "queuelib"

    def open(self, folder: Path) -> Any:
        import queuelib  # type: ignore[import-not-found,unused-ignore]

        return queuelib.FifoDiskQueue(str(folder / "q"))

    def put(self, queue: Any, body: bytes) -> None:
        queue.push(body)

    def all_of(self, queue: Any) -> list[bytes]:
        return [queue.pop() for _ in range(len(queue))]


PRODUCTS: dict[str, type[Penstock] | type[Anchor]] = {
    "penstock": Penstock, "sqlite": Sqlite, "persist-queue file": PersistFile,
    "persist-queue sqlite": PersistSqlite, "litequeue": Litequeue, "diskcache": Diskcache,
    "queuelib": Queuelib,
}  # fmt: skip
