"""`python -m benches.against.crossings`: lists, two processes and sixteen, beside other queues.

Every contestant is a way from some processes to others (`benches._parties`, and servers here). Four
questions: lists of a thousand put and got in one process; one process sends and another receives,
one by one and by the thousand; how long one message of 2,500 a second is on its way; eight
processes send while eight others compete for what comes. Contestants take turns, round by round;
the best round counts. What a queue does not have, or can't do, stays empty.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benches import _parties, harness, mfq
from benches._limits import Unfinished, within
from benches._parties import CONTEXT, MANY, Party, Receive, ReceiveMany, Send, SendMany
from benches.against import beats, servers
from benches.against.peers import KILL, MEMORY, POWER

SIZE, SIDES = 100, 8
LAST = b"last" + bytes(SIZE - 4)
LIMIT_S = 30.0
NOW = time.perf_counter_ns
STARTED = ExitStack()
"""Servers of this process; whoever ends it ends them too."""


class Process(_parties.Penstock):
    """What survives a killed process."""

    name, durability = "penstock, durability=process", "process"

    def _open(self, stack: ExitStack) -> Any:
        import penstock

        return stack.enter_context(penstock.Queue(self.address, durability=self.durability))  # type: ignore[arg-type]


class Interval(Process):
    name, durability = "penstock, durability=interval", "interval"


class Always(Process):
    name, durability = "penstock, durability=always", "always"


class MpQueue(Party):
    """`multiprocessing.Queue`."""

    name = "multiprocessing.Queue"

    def __init__(self, folder: Path) -> None:
        self.address = CONTEXT.Queue()

    def send(self, stack: ExitStack) -> Send:
        return self.address.put  # type: ignore[no-any-return]

    def receive(self, stack: ExitStack, *, spinning: bool | None) -> Receive:
        return self.address.get  # type: ignore[no-any-return]


class SharedLmdb(_parties.Lmdb):
    """With a number that every sender takes from the tree."""

    name = "LMDB by hand, no sync"

    def send_many(self, stack: ExitStack) -> SendMany:
        env = self._open(stack)

        def send(bodies: list[bytes]) -> None:
            with env.begin(write=True) as change:
                cursor = change.cursor()
                last = int.from_bytes(cursor.key(), "big") + 1 if cursor.last() else 0
                for number, body in enumerate(bodies, last):
                    change.put(number.to_bytes(8, "big"), body, append=True)

        return send


class Sqlite(Party):
    """A table by hand; whoever receives looks again and again."""

    name, synchronous = "SQLite by hand, WAL, NORMAL", "NORMAL"

    def _open(self, stack: ExitStack) -> Any:
        import sqlite3

        base = sqlite3.connect(f"{self.address}.db", isolation_level=None, timeout=60)
        stack.callback(base.close)
        base.execute("PRAGMA journal_mode=WAL")
        base.execute(f"PRAGMA synchronous={self.synchronous}")
        base.execute("CREATE TABLE IF NOT EXISTS queue (id INTEGER PRIMARY KEY, body BLOB)")
        return base

    def send(self, stack: ExitStack) -> Send:
        base = self._open(stack)
        return lambda body: base.execute("INSERT INTO queue (body) VALUES (?)", (body,))

    def receive(self, stack: ExitStack, *, spinning: bool | None) -> Receive:
        take = self._taker(stack, 1)
        return lambda: take()[0]

    has_lists = True

    def send_many(self, stack: ExitStack) -> SendMany:
        base = self._open(stack)

        def send(bodies: list[bytes]) -> None:
            base.execute("BEGIN IMMEDIATE")
            base.executemany("INSERT INTO queue (body) VALUES (?)", [(body,) for body in bodies])
            base.execute("COMMIT")

        return send

    def receive_many(self, stack: ExitStack) -> ReceiveMany:
        take = self._taker(stack, MANY)
        return lambda: len(take())

    def _taker(self, stack: ExitStack, most: int) -> Callable[[], list[Any]]:
        base = self._open(stack)
        look, first = "SELECT 1 FROM queue LIMIT 1", "SELECT id FROM queue ORDER BY id LIMIT ?"
        change = f"DELETE FROM queue WHERE id IN ({first}) RETURNING body"

        def take() -> list[Any]:
            while True:
                if base.execute(look).fetchone() is None:
                    continue  # Who only looks is in nobody's way.
                if found := base.execute(change, (most,)).fetchall():
                    return [body for (body,) in found]

        return take


class SqliteFull(Sqlite):
    name, synchronous = "SQLite by hand, WAL, FULL", "FULL"


class Redis(Party):
    """A list; the server is started by whoever makes the party, and ends with it."""

    name, needs = "Redis list, AOF everysec", "redis"
    persistence: tuple[str, ...] = ("--appendonly", "yes", "--appendfsync", "everysec")

    def __init__(self, folder: Path) -> None:
        self.address = str(folder / "redis.sock")
        options = ["--port", "0", "--unixsocket", self.address, "--dir", str(folder), "--save", ""]
        STARTED.enter_context(
            servers.started(servers.program("redis-server"), *options, *self.persistence)
        )
        servers.patiently(self._client().ping)

    @classmethod
    def missing(cls) -> str:
        try:
            servers.program("redis-server")
        except ImportError as error:
            return f"{cls.name} is left out: {error}"
        return super().missing()

    def _client(self) -> Any:
        return _parties.load("redis").Redis(unix_socket_path=self.address)

    def send(self, stack: ExitStack) -> Send:
        client = self._client()
        return lambda body: client.lpush("queue", body)

    def receive(self, stack: ExitStack, *, spinning: bool | None) -> Receive:
        client = self._client()
        return lambda: client.brpop("queue", 0)[1]

    has_lists = True

    def send_many(self, stack: ExitStack) -> SendMany:
        client = self._client()
        return lambda bodies: client.lpush("queue", *bodies)

    def receive_many(self, stack: ExitStack) -> ReceiveMany:
        client = self._client()

        def take() -> int:
            while not (found := client.rpop("queue", MANY)):
                pass
            return len(found)

        return take


class RedisMemory(Redis):
    name, persistence = "Redis list, no AOF", ("--appendonly", "no")


class RedisAlways(Redis):
    name, persistence = "Redis list, AOF always", ("--appendonly", "yes", "--appendfsync", "always")


# ── measurements, each in a process group of its own ───────────────────────────────────────────


def by_the_thousand(kind: type[Party], folder: Path, count: int) -> tuple[float, ...]:
    """Microseconds per message of lists put, then got, in one process."""
    party = _made(kind, folder)
    with ExitStack() as stack:
        send, take, bodies = party.send_many(stack), party.receive_many(stack), [LAST] * MANY
        send(bodies)
        take()
        start = NOW()
        for _ in range(count // MANY):
            send(bodies)
        put, left, start = NOW() - start, count // MANY * MANY, NOW()
        while left > 0:
            left -= take()
        return put / count / 1000, (NOW() - start) / count / 1000


def crossing(kind: type[Party], folder: Path, count: int, batch: int) -> tuple[float, ...]:
    """Microseconds per message from one process to another."""
    return mfq.passed_us(kind, folder, SIZE, count, batch)[:1]


def latencies(kind: type[Party], folder: Path, count: int) -> tuple[float, ...]:
    """Microseconds that a message is on its way to one who waits: half of them, and 99 of 100."""
    return mfq.latencies_us(kind, folder, count, False)


def _made(kind: type[Party], folder: Path) -> Party:
    folder.mkdir()
    return kind(folder)


def _sends(party: Party, count: int, ready: Connection) -> None:
    with ExitStack() as stack:
        send = party.send(stack)
        ready.send(True)
        ready.recv()
        body = bytes(SIZE)
        for _ in range(count):
            send(body)
        ready.send(True)
        ready.recv()


def _receives(party: Party, ready: Connection) -> None:
    with ExitStack() as stack:
        receive = party.receive(stack, spinning=None)
        ready.send(True)
        ready.recv()
        while receive() != LAST:
            pass
        ready.send(True)
        ready.recv()


def crowd(kind: type[Party], folder: Path, count: int) -> tuple[float, ...]:
    """Microseconds per message with `SIDES` processes on each side, until all have arrived."""
    party, each = _made(kind, folder), count // SIDES
    with ExitStack() as stack:
        send = party.send(stack)
        takers = [_begun(_receives, party) for _ in range(SIDES)]
        senders = [_begun(_sends, party, each) for _ in range(SIDES)]
        start = NOW()
        for pipe in (*takers, *senders):
            pipe.send(True)
        for pipe in senders:
            pipe.recv()
        for _ in takers:
            send(LAST)
        for pipe in takers:
            pipe.recv()
        taken = NOW() - start
        for pipe in (*takers, *senders):
            pipe.send(True)
    return (taken / (each * SIDES) / 1000,)


def _begun(work: Callable[..., None], *arguments: Any) -> Connection:
    ours, theirs = CONTEXT.Pipe()
    CONTEXT.Process(target=work, args=(*arguments, theirs), daemon=True).start()
    ours.recv()
    return ours


def beats_lists(kind: Any, folder: Path, count: int) -> tuple[float, ...]:
    found = beats.measured(folder, count, MANY, SIZE)
    return found["put_ns"] / 1000, found["get_ns"] / 1000


# ── contestants ────────────────────────────────────────────────────────────────────────────────


@dataclass
class Contestant:
    """A way, what survives on it, and how many messages it gets for each question."""

    kind: type[Party]
    survives: str
    singly: int = 50_000
    lists: int = 200_000
    has_crowd: bool = True
    has_two: bool = True
    name: str = ""
    best: dict[str, float] = field(default_factory=dict)
    failed: str = ""

    def questions(self, share: float) -> Iterator[tuple[tuple[str, ...], Callable[..., Any], Any]]:
        """Which figures, how they are found, with what."""
        singly = max(200, int(self.singly * share))
        lists = max(5 * MANY, int(self.lists * share))
        if self.kind is Party:
            yield ("put_list_us", "get_list_us"), beats_lists, (lists,)
            return
        if self.kind.has_lists:
            yield ("put_list_us", "get_list_us"), by_the_thousand, (lists,)
        if self.has_two:
            yield ("crossing_us",), crossing, (singly, 1)
            if self.kind.has_lists:
                yield ("crossing_list_us",), crossing, (lists, MANY)
            yield ("p50_us", "p99_us"), latencies, (max(100, int(1500 * share)),)
        if self.has_crowd:
            yield ("crowd_us",), crowd, (singly,)

    def row(self) -> dict[str, Any]:
        name = self.name or self.kind.name
        return {"name": name, "survives": self.survives, "failed": self.failed} | self.best


def contestants() -> list[Contestant]:
    """Everyone, in the order of the table."""
    within_01, within_1 = "power loss, but the last 0.1 s", "power loss, but the last 1 s"
    return [
        Contestant(_parties.Pipe, MEMORY, has_crowd=False),
        Contestant(MpQueue, MEMORY, singly=20_000),
        Contestant(_parties.FasterFifo, MEMORY, singly=20_000),
        Contestant(_parties.Zmq, MEMORY, has_crowd=False),
        Contestant(_parties.Iceoryx, MEMORY, singly=20_000, has_crowd=False),
        Contestant(RedisMemory, MEMORY, singly=4_000, lists=100_000),
        Contestant(Process, KILL),
        Contestant(Interval, within_01),
        Contestant(SharedLmdb, KILL, singly=20_000),
        Contestant(Sqlite, KILL, singly=2_000, lists=50_000),
        Contestant(Redis, within_1, singly=4_000, lists=100_000),
        Contestant(Party, POWER, lists=20_000, name="Beats disk queue, in Go"),
        Contestant(SqliteFull, POWER, singly=1_000, lists=20_000),
        Contestant(RedisAlways, POWER, singly=1_000, lists=20_000),
        Contestant(Always, POWER, singly=1_000, lists=20_000),
    ]


# ── the run ────────────────────────────────────────────────────────────────────────────────────


def run(rounds: int, share: float = 1.0) -> list[dict[str, Any]]:
    """Rows of all that are installed."""
    running = []
    for one in contestants():
        why = one.kind.missing() if one.kind is not Party else beats.missing()
        print(f"  {why}", file=sys.stderr) if why else running.append(one)
    with harness.scratch() as root:
        for number in range(rounds):
            for one in running:
                _round(one, root, share)
            print(f"  round {number + 1} of {rounds}", file=sys.stderr)
    return [one.row() for one in running]


def _round(one: Contestant, root: Path, share: float) -> None:
    for names, work, arguments in one.questions(share):
        with _folder(root) as folder:
            try:
                found = within(LIMIT_S, work, one.kind, folder, *arguments)
            except Unfinished as error:
                one.failed = f"{names[0]}: {error}"
                print(f"  {one.name or one.kind.name}: {one.failed}", file=sys.stderr)
                continue
        for name, value in zip(names, found, strict=True):
            one.best[name] = round(min(value, one.best.get(name, value)), 3)


@contextmanager
def _folder(root: Path) -> Iterator[Path]:
    folder = root / f"round-{NOW():x}"
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def draw(rows: list[dict[str, Any]], about: dict[str, Any]) -> None:
    """The table, for a terminal."""
    print(f"µs per message of {SIZE} bytes; {about['cpu']}, load {about['load_1min']}")
    print("\t".join(["queue", "survives", *FIGURES.values()]))
    for row in rows:
        cells = [harness.shown(row.get(name)) or "-" for name in FIGURES]
        print("\t".join([row["name"], row["survives"], *cells]))


FIGURES = {
    "put_list_us": f"put x{MANY}", "get_list_us": f"get x{MANY}", "crossing_us": "2 processes",
    "crossing_list_us": f"2 processes x{MANY}", "p50_us": "on its way p50",
    "p99_us": "on its way p99", "crowd_us": f"{2 * SIDES} processes",
}  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    return harness.compare(
        "crossings", "lists, two processes and sixteen", run, draw, rounds=2, arguments=arguments
    )


if __name__ == "__main__":
    sys.exit(main())
