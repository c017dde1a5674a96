"""The foundation: the goals of the core, measured through `Queue.put` and `group.get`.

At default options (interval, checksum, lock, number, timestamp), with every body read. Set
`PENSTOCK_BENCH_LARGE=1` for a cold open of 10 GB instead of 1 GB.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

import penstock
from benches import _peers, _processes
from benches._floors import floors
from benches._peers import call_each
from benches.harness import (
    FRAME_OVERHEAD,
    Row,
    best_cpu_ns,
    best_wall_ns,
    bring_memory,
    median,
    percentile,
    scratch,
    settle,
)
from penstock import _core
from penstock.sidecar import prepared

ROLLING_COUNT = 10_000
"""Messages of 100 bytes in a round that fills segments of 64 KiB: 22 of them. To begin one costs as
much as a thousand puts. Of four in a round, one more or a slow one would be half of what is found.
"""


def run(quick: bool) -> Iterator[Row]:
    with scratch() as folder:
        yield from one_by_one(folder, 20_000 if quick else 100_000)
        yield from by_the_thousand(folder, 20 if quick else 100)
        yield from arrow(folder, 20 if quick else 100)
        yield from rolling(folder, 50_000 if quick else 300_000)
        yield from two_processes(folder, 50_000 if quick else 300_000, 500 if quick else 3000)
        yield from durable(folder, 100 if quick else 500)
        yield from large(folder, 200 << 20 if quick else 1 << 30)
        yield from growth(folder, quick)


def put_ns(
    call: Callable[[Any], object], what: object, count: int, each: int = 1, rounds: int = 7
) -> float:
    """CPU ns per message of `count` calls that put `each` messages."""
    fills = count * filled_bytes(what)
    return best_cpu_ns(lambda: call_each(call, what, count), count * each, rounds, fills=fills)


def filled_bytes(what: Any) -> int:
    """About what a body, or a list or Arrow array of bodies, takes of a queue."""
    if isinstance(what, bytes):
        return len(what) + FRAME_OVERHEAD
    if isinstance(what, list):
        return sum(map(filled_bytes, what))
    return int(what.nbytes) + len(what) * FRAME_OVERHEAD


def get_ns(group: penstock.Group, count: int, rounds: int = 7) -> float:
    """CPU ns of a get with its body read."""

    def work() -> None:
        get = group.get
        for _ in range(count):
            get(0).body  # noqa: B018  (reading it is part of the cost)

    return best_cpu_ns(work, count, rounds)


def get_many_ns(group: penstock.Group, rounds: int) -> float:
    """CPU ns per message of `get_many(1000)` with the bodies read."""
    return best_cpu_ns(lambda: [one.body for one in group.get_many(1000)], 1000, rounds)


def filled(path: Path, body: bytes, count: int) -> penstock.Queue:
    """A queue with `count` messages."""
    queue = penstock.Queue(path)
    bodies = [body] * 1000
    for _ in range(-(-count // 1000)):
        queue.put_many(bodies)
    queue.sync()
    settle()
    return queue


def one_by_one(folder: Path, count: int) -> Iterator[Row]:
    theirs_put, theirs_get = _peers.simple_queue_ns(bytes(100), count)
    for size, put_goal, get_goal in ((100, 100, 100), (1024, 160, 190)):
        body = bytes(size)
        with filled(folder / f"one{size}", body, count) as queue:
            put = put_ns(queue.put, body, count)
            read = get_ns(queue.group(ack="auto"), count)
        copy = _peers.memcpy_ns(body, count)
        floor = floors(folder, body, count)
        if size == 100:
            yield Row(case="1 put 100 B", ours=put, peer="SimpleQueue.put", peer_value=theirs_put,
                      goal=put_goal, floor="call, copy to fresh pages",
                      floor_value=floor.call + floor.fresh, floor_goal=2)  # fmt: skip
            yield by_pieces("1 put 100 B", put, floor.call + floor.pieces)
        else:
            yield Row(case="2 put 1 KB", ours=put, peer="memoryview copy", peer_value=copy,
                      goal=put_goal, floor="call, copy to fresh pages",
                      floor_value=floor.call + floor.fresh, floor_goal=1.3)  # fmt: skip
            yield by_pieces("2 put 1 KB", put, floor.call + floor.pieces)
        yield Row(case=f"3 get {size} B, ack=auto", ours=read, peer="SimpleQueue.get",
                  peer_value=theirs_get, goal=get_goal, floor="call, object",
                  floor_value=floor.call + floor.made, floor_goal=2)  # fmt: skip


def by_pieces(case: str, ours: float, floor: float) -> Row:
    """The same put beside pages that are made as quickly as ours are."""
    what = "the same, pages made 128 KiB at a time"
    return Row(case=f"{case}, again", ours=ours, floor=what, floor_value=floor)


def by_the_thousand(folder: Path, batches: int) -> Iterator[Row]:
    for size, put_goal, get_goal in ((100, 25, 35), (1024, 95, 170)):
        bodies = [bytes(size)] * 1000
        their_put, their_get = _peers.lmdb_batch_ns(folder / f"lmdb{size}", bytes(size), 1000)
        with penstock.Queue(folder / f"many{size}") as queue:
            call_each(queue.put_many, bodies, batches)
            put = put_ns(queue.put_many, bodies, 10, 1000, batches // 10)
            read = get_many_ns(queue.group(ack="auto"), batches)
            alone = queue.group("bodies", ack="auto")
            bare = best_cpu_ns(lambda: alone.get_bodies(1000), 1000, batches)  # noqa: B023
        floor = floors(folder, bytes(size), 20_000)
        yield Row(case=f"4 put_many 1000 x {size} B", ours=put, peer="py-lmdb",
                  peer_value=their_put, goal=put_goal, floor="copy to fresh pages",
                  floor_value=floor.fresh, floor_goal=3)  # fmt: skip
        yield by_pieces(f"4 put_many 1000 x {size} B", put, floor.pieces)
        yield Row(case=f"5 get_many 1000 x {size} B", ours=read, peer="py-lmdb",
                  peer_value=their_get, goal=get_goal, floor="list of objects",
                  floor_value=floor.listed, floor_goal=3)  # fmt: skip
        yield Row(case=f"5 get_bodies 1000 x {size} B", ours=bare, peer="py-lmdb",
                  peer_value=their_get, goal=get_goal, floor="list of objects",
                  floor_value=floor.listed, floor_goal=3)  # fmt: skip


@dataclass(frozen=True)
class Ready:
    """A table of one row, as a stream: what any stream costs pyarrow, whatever is in it."""

    table: pa.Table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)


def arrow(folder: Path, batches: int) -> Iterator[Row]:
    for size, read_goal, put_goal in ((100, 16, 16), (1024, 120, 95)):
        bodies = [bytes(size)] * 1000
        array = pa.array(bodies)
        with filled(folder / f"arrow{size}", bytes(size), 1000) as queue:

            def read(queue: penstock.Queue = queue) -> None:
                pa.table(queue.scan(columns=["body"]))

            ours = best_cpu_ns(read, 1000, 300)
            ready = Ready(pa.table({"body": [b""]}))
            call = best_cpu_ns(lambda: pa.table(ready), 1000, 300)  # noqa: B023
            group = queue.group(ack="auto")

            def by_list(group: penstock.Group = group) -> None:
                pa.array([message.body for message in group.get_many(1000)])

            theirs = best_cpu_ns(by_list, 1000, 1)
            put = put_ns(queue.put_many, array, 10, 1000, batches // 10)
        floor = floors(folder, bytes(size), 20_000)
        yield Row(case=f"6 Arrow read 1000 x {size} B", ours=ours, peer="get_many + pa.array",
                  peer_value=theirs, goal=read_goal, floor="table of a stream, copy, warm",
                  floor_value=call + floor.warm, floor_goal=1.5)  # fmt: skip
        yield Row(case=f"7 Arrow put 1000 x {size} B", ours=put, goal=put_goal,
                  floor="copy to fresh pages", floor_value=floor.fresh, floor_goal=1.5)  # fmt: skip
        yield by_pieces(f"7 Arrow put 1000 x {size} B", put, floor.pieces)


def rolling(folder: Path, count: int) -> Iterator[Row]:
    body, now = bytes(1024), time.perf_counter_ns
    with filled(folder / "roll", body, 10_000) as queue:
        warm = put_ns(queue.put, body, 5000)
        put, taken = queue.put, []
        bring_memory(count * filled_bytes(body))
        for _ in range(count):
            start = now()
            put(body)
            taken.append(now() - start)
    yield Row(case="9 put 1 KB over rolls, mean", ours=sum(taken) / count, peer="warm",
              peer_value=warm, ratio_goal=1.5, note="wall, timer included")  # fmt: skip
    yield Row(case="9 p99.9", ours=percentile(taken, 99.9) / 1000, unit="us", goal=50)
    yield Row(case="9 max", ours=max(taken) / 1e6, unit="ms", goal=2)


def two_processes(folder: Path, count: int, ticks: int) -> Iterator[Row]:
    pipe = min(_processes.pipe_passed_us(100, count // 10) for _ in range(3))
    runs = [_processes.passed_us(folder / f"two{n}", 100, count, 1) for n in range(5)]
    yield Row(case="10 two processes 100 B, best", ours=min(runs), unit="us", peer="mp.Pipe",
              peer_value=pipe, goal=0.25)  # fmt: skip
    yield Row(case="10 two processes 100 B, median", ours=median(runs), unit="us", goal=0.5)
    for size, goal in ((100, 0.10), (1024, 0.40)):
        runs = [_processes.passed_us(folder / f"b{size}-{n}", size, count, 1000) for n in range(3)]
        yield Row(case=f"11 two processes x1000 {size} B", ours=min(runs), unit="us", goal=goal)
    p50, p99 = _processes.latencies_us(folder / "spin", ticks, spinning=True)
    yield Row(case="12 latency p50, spinning", ours=p50, unit="us", goal=2)
    yield Row(case="12 latency p99, spinning", ours=p99, unit="us", goal=20)
    their50, their99 = _processes.pipe_latencies_us(ticks)
    p50, p99 = _processes.latencies_us(folder / "block", ticks, spinning=False)
    alone = _processes.futex_hand_overs_us(folder / "futex", ticks)
    least50, least99 = percentile(alone, 50), percentile(alone, 99)
    yield Row(case="13 latency p50, blocking", ours=p50, unit="us", peer="mp.Pipe",
              peer_value=their50, goal=12, ratio_goal=0.9, floor="futex alone",
              floor_value=least50)  # fmt: skip
    yield Row(case="13 latency p99, blocking", ours=p99, unit="us", peer="mp.Pipe",
              peer_value=their99, goal=40, ratio_goal=1, floor="futex alone",
              floor_value=least99)  # fmt: skip


def durable(folder: Path, rounds: int) -> Iterator[Row]:
    with penstock.Queue(folder / "always", durability="always") as queue:
        # Turn by turn, so that both meet the same disk.
        ours, floor = [], []
        for _ in range(5):
            floor.append(_peers.sync_floor_p50_us(folder, 140, rounds // 5))
            ours.append(percentile(timed(lambda: queue.put(bytes(100)), rounds // 5), 50))
        yield Row(case="14 durable put 100 B, p50", ours=median(ours), unit="us",
                  peer="pwrite+fdatasync", peer_value=median(floor), ratio_goal=1.15)  # fmt: skip
        begin_large_segment(queue)
        for size, goal in ((100, 300), (1024, 600)):
            bodies, ours, floor = [bytes(size)] * 1000, [], []
            for _ in range(5):
                floor.append(_peers.sync_floor_p50_us(folder, (size + 40) * 1000, 10))
                ours.append(percentile(timed(lambda: queue.put_many(bodies), 5), 50))  # noqa: B023
            yield Row(case=f"15 durable put_many 1000 x {size} B, p50", ours=median(ours),
                      unit="us", peer="pwrite+fdatasync", peer_value=median(floor), goal=goal,
                      ratio_goal=2)  # fmt: skip
        yield from group_commit(queue, 32, rounds // 5)


def begin_large_segment(queue: penstock.Queue) -> None:
    """Puts until a segment of 64 MiB begins that was made ahead, as it is for whoever does not put
    quicker than the disk takes zeros: its blocks of the disk are in use already. In others each
    sync notes that a few more are."""
    many = [bytes(10_000)] * 10
    for _ in range(2):  # The second is of 8 MiB.
        while not prepared.has_ready(queue.store.sidecar):
            queue.put_many(many)
            time.sleep(0.05)
        base = queue.offsets().segment_base
        while queue.offsets().segment_base == base:
            queue.put_many(many)
    settle()


def timed(call: Callable[[], object], count: int) -> list[float]:
    """Microseconds of each call."""
    taken = []
    for _ in range(count):
        start = time.perf_counter_ns()
        call()
        taken.append((time.perf_counter_ns() - start) / 1000)
    return taken


def group_commit(queue: penstock.Queue, threads: int, each: int) -> Iterator[Row]:
    def produce() -> None:
        call_each(queue.put, bytes(100), each)

    def all_at_once() -> None:
        workers = [threading.Thread(target=produce) for _ in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    total = threads * each
    rate = 1e9 / best_wall_ns(all_at_once, total, 3)
    _core.record_effects(True)
    all_at_once()
    syncs = sum(effect[0] == "sync" for effect in _core.take_effects())
    _core.record_effects(False)
    yield Row(case=f"16 group commit, {threads} threads", ours=rate, unit="msg/s", goal=60_000)
    yield Row(case="16 messages per sync", ours=total / max(syncs, 1), unit="msg/sync",
              goal=0.8 * threads)  # fmt: skip


def large(folder: Path, size: int) -> Iterator[Row]:
    if os.environ.get("PENSTOCK_BENCH_LARGE"):
        size = 10 << 30
    _processes.crashed_queue(folder / "small", 100 << 20)
    _processes.crashed_queue(folder / "large", size)
    crashed = open_ms(folder / "large")
    small = open_ms(folder / "small")
    label = f"{size >> 20} MB"
    yield Row(case=f"17 open {label} after a crash", ours=crashed, unit="ms", peer="100 MB",
              peer_value=small, goal=50, ratio_goal=1.5)  # fmt: skip
    clean = min(open_ms(folder / "large") for _ in range(3))
    small = min(open_ms(folder / "small") for _ in range(3))
    yield Row(case=f"17 open {label}, clean", ours=clean, unit="ms", peer="100 MB",
              peer_value=small, goal=50, ratio_goal=1.5)  # fmt: skip
    with penstock.Queue(folder / "large") as queue:
        end = queue.offsets()
        ns = best_cpu_ns(queue.verify, 1, 3)
        yield Row(case=f"18 verify {label}", ours=(end.tail - end.head) / ns, unit="GB/s", goal=2)


def open_ms(path: Path) -> float:
    """Wall time of one open."""
    start = time.perf_counter_ns()
    queue = penstock.Queue(path)
    taken = (time.perf_counter_ns() - start) / 1e6
    queue.close()
    return taken


def costs(queue: penstock.Queue, count: int = 5000) -> tuple[float, float]:
    """CPU ns of a put and of a get, each at the present backlog."""
    settle()
    put = put_ns(queue.put, bytes(100), count, rounds=5)
    return put, get_ns(queue.group(ack="auto"), count, 5)


def costs_at_the_end(queue: penstock.Queue, count: int) -> tuple[float, float]:
    """CPU ns of a put, and of a get of what was just put, behind whatever the queue has."""
    late = queue.group(f"at-{queue.offsets().tail}", ack="auto", start="latest")
    settle()
    return put_ns(queue.put, bytes(100), count, rounds=5), get_ns(late, count, 5)


def flat(
    case: str, at: str, base: tuple[float, float], now: tuple[float, float], most: float
) -> Iterator[Row]:
    for what, before, after in zip(("put", "get"), base, now, strict=True):
        yield Row(case=f"{case}: {what}", ours=after, peer=at, peer_value=before, ratio_goal=most)


def growth(folder: Path, quick: bool) -> Iterator[Row]:
    deep = 200_000 if quick else 1_000_000
    with filled(folder / "d1", bytes(100), 30_000) as queue:
        base = costs(queue)
    with filled(folder / "d2", bytes(100), deep) as queue:
        yield from flat(f"19 depth {deep:,}", "at 30,000", base, costs(queue), 1.2)
    with filled(folder / "groups", bytes(100), 30_000) as queue:
        for number in range(63):
            queue.group(f"g{number}")
        queue.sync()  # Or what opening them left to do is counted as the cost of a put.
        yield from flat("20 64 groups", "1 group", base, costs(queue), 1.1)
    with penstock.Queue(folder / "segments", segment_bytes=64 << 10) as queue:
        segments = 200 if quick else 1000
        bodies = [bytes(100)] * 100
        while queue.offsets().tail < segments * (60 << 10):
            queue.put_many(bodies)
        many = len(queue.store.segments(fresh=True))
    # Opened again: the maintenance thread's work for what was filled, sealing it, is done by the
    # close.
    with penstock.Queue(folder / "segments", segment_bytes=64 << 10) as queue:
        now = costs_at_the_end(queue, ROLLING_COUNT)
    with penstock.Queue(folder / "few", segment_bytes=64 << 10) as queue:
        few = costs_at_the_end(queue, ROLLING_COUNT)
    yield from flat(f"20 {many} segments", "few segments of 64 KiB", few, now, 1.1)
