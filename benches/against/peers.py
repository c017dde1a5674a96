"""`python -m benches.against.peers`: penstock beside other Python queues, one message at a time.

Each contestant puts N bodies of 100 bytes one by one, then gets them one by one and says that each
is done, in one process, in a folder of its own. Contestants take turns, round by round, so that
other load on the machine meets all of them alike. Rounds are short, so that some of them are not
disturbed at all; the best and the median round are kept.

Queues that promise different things cost different things: every row says what survives. Chronicle
Queue is measured inside Java and the disk queue of Beats inside Go, whose calls cost a tenth of
Python's.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benches import harness
from benches.against import beats, servers

BODY = b"x" * 100
WARM_UP = 10
MEMORY, KILL, POWER = "nothing", "kill -9", "power loss"
"""What a queue survives once `put` has returned: the process may die, or the machine."""

Put = Callable[[bytes], object]
Get = Callable[[], object]


@dataclass
class Peer:
    """A contestant: how it is opened, and what it promises."""

    name: str
    survives: str
    open: Callable[[Path], Any]
    count: int = 2_000
    """How many messages a round has; fewer where each one waits for the disk."""
    put_ns: list[float] = field(default_factory=list)
    get_ns: list[float] = field(default_factory=list)

    def round(self, folder: Path, count: int) -> None:
        """Fills and drains a fresh queue once."""
        with self.open(folder) as (put, get):
            for _ in range(WARM_UP):  # What only the first message costs is not what is asked.
                put(BODY)
            for _ in range(WARM_UP):
                get()
            self.put_ns.append(_timed(lambda: put(BODY), count))
            self.get_ns.append(_timed(get, count))

    def share_of(self, rounds: int) -> int:
        """Of so many rounds, how many it takes part in."""
        return rounds

    def row(self) -> dict[str, Any]:
        both = [a + b for a, b in zip(self.put_ns, self.get_ns, strict=True)]
        return {
            "name": self.name,
            "survives": self.survives,
            "put_us": round(min(self.put_ns) / 1000, 3),
            "put_median_us": round(statistics.median(self.put_ns) / 1000, 3),
            "get_us": round(min(self.get_ns) / 1000, 3),
            "get_median_us": round(statistics.median(self.get_ns) / 1000, 3),
            "messages_per_second": round(1e9 / min(both)),
        }


class Chronicle(Peer):
    """Measured in Java, by itself: a start takes seconds, so it comes less often and does more."""

    def round(self, folder: Path, count: int) -> None:
        found = servers.chronicle(folder, count * 100, len(BODY))
        self.put_ns.append(found["put_ns"])
        self.get_ns.append(found["get_ns"])

    def share_of(self, rounds: int) -> int:
        return -(-rounds // 8)


class Beats(Peer):
    """Measured in Go, by itself: an event counts as put when the queue has acked it."""

    def round(self, folder: Path, count: int) -> None:
        found = beats.measured(folder, count, 1, len(BODY))
        self.put_ns.append(found["put_ns"])
        self.get_ns.append(found["get_ns"])


def _timed(work: Callable[[], object], count: int) -> float:
    """Wall nanoseconds per call."""
    start = time.perf_counter_ns()
    for _ in range(count):
        work()
    return (time.perf_counter_ns() - start) / count


# ── contestants ────────────────────────────────────────────────────────────────────────────


def penstock_queue(durability: str) -> Callable[[Path], Any]:
    @contextmanager
    def opened(folder: Path) -> Iterator[tuple[Put, Get]]:
        import penstock

        with penstock.Queue(folder / "queue", durability=durability) as queue:  # type: ignore[arg-type]
            yield queue.put, lambda: queue.get(0).ack()

    return opened


@contextmanager
def standard(folder: Path) -> Iterator[tuple[Put, Get]]:
    import queue

    peer: queue.Queue[bytes] = queue.Queue()

    def get() -> None:
        peer.get_nowait()
        peer.task_done()

    yield peer.put, get


@contextmanager
def multi(folder: Path) -> Iterator[tuple[Put, Get]]:
    import multiprocessing

    peer: Any = multiprocessing.Queue()
    yield peer.put, peer.get
    peer.close()
    peer.join_thread()


@contextmanager
def persist_file(folder: Path) -> Iterator[tuple[Put, Get]]:
    import persistqueue

    peer = persistqueue.Queue(str(folder / "queue"))

    def get() -> None:
        peer.get(block=False)
        peer.task_done()

    yield peer.put, get


@contextmanager
def persist_ack(folder: Path) -> Iterator[tuple[Put, Get]]:
    import persistqueue

    peer = persistqueue.SQLiteAckQueue(str(folder / "queue"), auto_commit=True)
    yield peer.put, lambda: peer.ack(peer.get(block=False))
    peer.close()


@contextmanager
def lite(folder: Path) -> Iterator[tuple[Put, Get]]:
    from litequeue import LiteQueue

    peer = LiteQueue(str(folder / "queue.db"))
    yield lambda body: peer.put(body.decode()), lambda: peer.done(peer.pop().message_id)
    peer.close()


@contextmanager
def disk_deque(folder: Path) -> Iterator[tuple[Put, Get]]:
    import diskcache

    peer = diskcache.Deque(directory=str(folder / "queue"))
    yield peer.append, peer.popleft
    peer.cache.close()


@contextmanager
def scrapy_fifo(folder: Path) -> Iterator[tuple[Put, Get]]:
    from queuelib import FifoDiskQueue

    peer = FifoDiskQueue(str(folder / "queue"))
    yield peer.push, peer.pop
    peer.close()


def sqlite_table(synchronous: str) -> Callable[[Path], Any]:
    @contextmanager
    def opened(folder: Path) -> Iterator[tuple[Put, Get]]:
        import sqlite3

        base = sqlite3.connect(folder / "queue.db", isolation_level=None)
        base.execute("PRAGMA journal_mode=WAL")
        base.execute(f"PRAGMA synchronous={synchronous}")
        base.execute("CREATE TABLE queue (id INTEGER PRIMARY KEY, body BLOB)")

        def put(body: bytes) -> None:
            base.execute("INSERT INTO queue (body) VALUES (?)", (body,))

        def get() -> None:
            base.execute(
                "DELETE FROM queue WHERE id = (SELECT min(id) FROM queue) RETURNING body"
            ).fetchone()

        yield put, get
        base.close()

    return opened


@contextmanager
def lmdb_table(folder: Path) -> Iterator[tuple[Put, Get]]:
    import lmdb

    base = lmdb.open(str(folder / "queue"), map_size=1 << 30, sync=False, metasync=False)
    numbers = iter(range(1 << 60))

    def put(body: bytes) -> None:
        with base.begin(write=True) as change:
            change.put(next(numbers).to_bytes(8, "big"), body, append=True)

    def get() -> None:
        with base.begin(write=True) as change:
            cursor = change.cursor()
            cursor.first()
            bytes(cursor.value())
            cursor.delete()

    yield put, get
    base.close()


@contextmanager
def rocks_table(folder: Path) -> Iterator[tuple[Put, Get]]:
    import rocksdict

    options = rocksdict.Options(raw_mode=True)
    base = rocksdict.Rdict(str(folder / "queue"), options)
    to_put, to_get = iter(range(1 << 60)), iter(range(1 << 60))

    def get() -> None:
        key = next(to_get).to_bytes(8, "big")
        bytes(base[key])
        del base[key]

    yield lambda body: base.__setitem__(next(to_put).to_bytes(8, "big"), body), get
    base.close()


@contextmanager
def zero_mq(folder: Path) -> Iterator[tuple[Put, Get]]:
    import zmq

    with zmq.Context() as context, context.socket(zmq.PULL) as ours:
        ours.set_hwm(0)
        ours.bind(f"ipc://{folder}/queue")
        with context.socket(zmq.PUSH) as theirs:
            theirs.set_hwm(0)
            theirs.connect(f"ipc://{folder}/queue")
            yield theirs.send, ours.recv


@contextmanager
def faster(folder: Path) -> Iterator[tuple[Put, Get]]:
    import faster_fifo

    peer = faster_fifo.Queue(max_size_bytes=8 << 20)
    yield peer.put, peer.get
    peer.close()


def peers() -> list[Peer]:
    """Everyone, in the order of the table."""
    return [
        Peer("queue.Queue (standard library)", MEMORY, standard),
        Peer("multiprocessing.Queue", MEMORY, multi),
        Peer("faster-fifo", MEMORY, faster),
        Peer("ZeroMQ push and pull, ipc", MEMORY, zero_mq),
        Peer("Redis list, no AOF", MEMORY, servers.redis_list("--appendonly", "no"), 500),
        Peer("penstock, durability=process", KILL, penstock_queue("process")),
        Peer("penstock, durability=interval", "power loss, but the last 0.1 s",
             penstock_queue("interval")),
        Peer("queuelib FifoDiskQueue", KILL, scrapy_fifo),
        Chronicle("Chronicle Queue, in Java", KILL, standard),
        Peer("RocksDB by hand, WAL unsynced", KILL, rocks_table, 1_000),
        Peer("Redis list, AOF everysec", "power loss, but the last 1 s", servers.redis_list(
            "--appendonly", "yes", "--appendfsync", "everysec"), 500),
        Peer("NATS JetStream, file", KILL, servers.nats_stream, 200),
        Peer("LMDB by hand, no sync", KILL, lmdb_table, 1_000),
        Peer("SQLite by hand, WAL, NORMAL", KILL, sqlite_table("NORMAL"), 1_000),
        Peer("litequeue", KILL, lite, 300),
        Peer("diskcache.Deque", KILL, disk_deque, 300),
        Peer("persist-queue Queue", KILL, persist_file, 200),
        Beats("Beats disk queue, in Go", POWER, standard, 100),
        Peer("persist-queue SQLiteAckQueue", POWER, persist_ack, 100),
        Peer("SQLite by hand, WAL, FULL", POWER, sqlite_table("FULL"), 100),
        Peer("Redis list, AOF always", POWER, servers.redis_list(
            "--appendonly", "yes", "--appendfsync", "always"), 100),
        Peer("penstock, durability=always", POWER, penstock_queue("always"), 100),
    ]  # fmt: skip


# ── the run ────────────────────────────────────────────────────────────────────────────────


def run(rounds: int, share: float = 1.0) -> list[dict[str, Any]]:
    """Rows of all that are installed."""
    running = peers()
    for number in range(rounds):
        for peer in list(running):
            if number >= peer.share_of(rounds):
                continue
            with harness.scratch() as folder:
                try:
                    peer.round(folder, max(10, int(peer.count * share)))
                except Exception as error:  # Whatever it is, the others go on.
                    print(f"  left out: {peer.name}: {error}", file=sys.stderr)
                    running.remove(peer)
                shutil.rmtree(folder, ignore_errors=True)
        print(f"  round {number + 1} of {rounds}", file=sys.stderr)
    return [peer.row() for peer in running]


def draw(rows: list[dict[str, Any]], about: dict[str, Any]) -> None:
    """The table, for a terminal."""
    title = f"one message of {len(BODY)} bytes at a time; {about['cpu']}, load {about['load_1min']}"
    heads = ["queue", "survives", "put µs", "get+ack µs", "messages/s"]
    cells = [
        [r["name"], r["survives"], f"{r['put_us']:.2f} ({r['put_median_us']:.2f})",
         f"{r['get_us']:.2f} ({r['get_median_us']:.2f})", f"{r['messages_per_second']:,}"]
        for r in rows
    ]  # fmt: skip
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        print(title, *("\t".join(line) for line in [heads, *cells]), sep="\n")
        return
    table = Table(title=title, caption="best of the rounds (median)")
    for head in heads:
        table.add_column(head, justify="left" if head in ("queue", "survives") else "right")
    for line in cells:
        table.add_row(*line)
    Console(width=None if sys.stdout.isatty() else 120).print(table)


def main(arguments: list[str] | None = None) -> int:
    return harness.compare(
        "peers",
        "penstock beside other Python queues",
        run,
        draw,
        rounds=25,
        arguments=arguments,
        body_bytes=len(BODY),
    )


if __name__ == "__main__":
    sys.exit(main())
