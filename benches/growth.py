"""Growth: what one message costs while something else gets large; it should stay flat.

Messages and bytes in the queue, segments, groups, open leases, busy keys, what was acked before,
and processes that put or get at once. `python -m tools.plot_growth` draws it.
`PENSTOCK_BENCH_LARGE=1` goes to a hundred million messages, ten gigabytes and ten thousand
segments, and needs 30 GB of disk.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import penstock
from benches._processes import CONTEXT
from benches.delivery import lease_ns
from benches.foundation import ROLLING_COUNT, costs, costs_at_the_end, filled
from benches.harness import Row, bring_memory, scratch

BODY = bytes(100)
SMALL_SEGMENT = 64 << 10
SECONDS = 0.5
"""How long processes put or get against each other."""
PUT_AT_ONCE_BYTES = 256 << 20
"""More than they put meanwhile."""


def run(quick: bool) -> Iterator[Row]:
    large = bool(os.environ.get("PENSTOCK_BENCH_LARGE"))
    with scratch() as folder:
        deepest = 100_000 if quick else 100_000_000 if large else 1_000_000
        yield from messages(folder, deepest)
        yield from megabytes(folder, 10 if quick else 10_000 if large else 1000)
        yield from segments(folder, 100 if quick else 10_000 if large else 1000)
        yield from groups(folder, 4 if quick else 64)
        yield from leases(folder, 1000 if quick else 100_000)
        yield from keys(folder, 1000 if quick else 100_000)
        yield from acked(folder, 10_000 if quick else 1_000_000)
        for what in ("producers", "consumers"):
            yield from processes(folder, what, 2 if quick else 16)


def up_to(first: int, most: int, times: int = 10) -> Iterator[int]:
    while first <= most:
        yield first
        first *= times


def flat(name: str, all_ns: dict[int, float], most: float) -> Iterator[Row]:
    """Rows of one line of the plot, each beside the first."""
    dimension, what = name.split(": ")
    first = next(iter(all_ns.values()))
    for size, ns in all_ns.items():
        yield Row(case=f"{dimension} {size:,}: {what}", ours=ns, peer="the first",
                  peer_value=first, ratio_goal=most)  # fmt: skip


def both(name: str, found: dict[int, tuple[float, float]], most: float) -> Iterator[Row]:
    for index, what in enumerate(("put", "get")):
        line = {size: pair[index] for size, pair in found.items()}
        yield from flat(f"{name}: {what}", line, most)


def messages(folder: Path, most: int) -> Iterator[Row]:
    found, there = {}, 0
    with filled(folder / "messages", BODY, 1000) as queue:
        for size in up_to(10_000, most):
            while there < size:
                queue.put_many([BODY] * 1000)
                there += 1000
            queue.sync()
            found[size] = costs(queue, 2000)
    yield from both("messages", found, 1.2)


def megabytes(folder: Path, most: int) -> Iterator[Row]:
    """A queue that is filled with large messages; what is measured are small ones behind them."""
    found, large = {}, [bytes(10_000)] * 100
    with penstock.Queue(folder / "megabytes") as queue:
        for size in up_to(10, most):
            while queue.offsets().tail < size * 1_000_000:
                queue.put_many(large)
            queue.sync()
            found[size] = costs_at_the_end(queue, 2000)
    yield from both("megabytes", found, 1.2)


def segments(folder: Path, most: int) -> Iterator[Row]:
    found = {}
    for size in up_to(10, most):
        path = folder / f"segments{size}"
        with penstock.Queue(path, segment_bytes=SMALL_SEGMENT) as queue:
            while queue.offsets().tail < size * (SMALL_SEGMENT - 4096):
                queue.put_many([BODY] * 100)
        # Opened again: what is left to do for those that were filled is done by the close.
        with penstock.Queue(path, segment_bytes=SMALL_SEGMENT) as queue:
            found[size] = costs_at_the_end(queue, ROLLING_COUNT)
    yield from both("segments", found, 1.2)


def groups(folder: Path, most: int) -> Iterator[Row]:
    found = {}
    with filled(folder / "groups", BODY, 100_000) as queue:
        for size in up_to(1, most, 4):
            for number in range(size - 1):
                queue.group(f"g{number}")
            queue.sync()  # Or what opening them left to do is counted as the cost of a put.
            found[size] = costs(queue, 2000)
    yield from both("groups", found, 1.2)


def leases(folder: Path, most: int) -> Iterator[Row]:
    found = {}
    with filled(folder / "leases", BODY, most + 200_000) as queue:
        group, kept = queue.group(max_in_flight=1 << 20), []
        for size in [1, *up_to(1000, most)]:
            kept += group.get_many(size - len(kept))
            found[size] = lease_ns(group, 1000, 9)
    yield from flat("open leases: get and ack", found, 1.2)


def keys(folder: Path, most: int) -> Iterator[Row]:
    """Every message has a key of its own; those that are out keep theirs busy."""
    found, rounds = {}, 9
    with penstock.Queue(folder / "keys") as queue:
        for number in range(most + 1000 * rounds * 5):
            queue.put(BODY, key=f"key-{number}")
        group, kept = queue.group(max_in_flight=1 << 20), []
        for size in [1, *up_to(1000, most)]:
            kept += group.get_many(size - len(kept))
            found[size] = lease_ns(group, 1000, rounds)
    yield from flat("busy keys: get and ack", found, 1.2)


def acked(folder: Path, most: int) -> Iterator[Row]:
    """The journal of a group grows by every lease and ack, until it is written anew."""
    found, done = {}, 0
    with filled(folder / "acked", BODY, most + 100_000) as queue:
        group = queue.group()
        for size in up_to(1000, most):
            while done < size:
                for message in group.get_many(1000):
                    message.ack()
                done += 1000
            found[size] = lease_ns(group, 1000, 9)
    yield from flat("acked before: get and ack", found, 1.2)


# ── processes ──────────────────────────────────────────────────────────────────────────────


def _work(path: str, what: str, pipe: Connection) -> None:
    """Puts, or gets and acks, for a while; says how many."""
    with penstock.Queue(path) as queue:
        group = queue.group() if what == "consumers" else None
        pipe.send(0)
        pipe.recv()
        count, end = 0, time.monotonic() + SECONDS
        while time.monotonic() < end:
            if group is None:
                queue.put(BODY)
            elif got := group.get_many(1):
                got[0].ack()
            else:
                break  # The rest of the time would count nothing.
            count += 1
        pipe.send(count)


def processes(folder: Path, what: str, most: int) -> Iterator[Row]:
    """All at once on one queue: what a message takes of the machine, and how evenly they share."""
    found, shares = {}, {}
    for size in up_to(1, most, 2):
        path = folder / f"{what}{size}"
        with filled(path, BODY, 2_000_000 if what == "consumers" else 1000):
            pipes = [CONTEXT.Pipe() for _ in range(size)]
            workers = [
                CONTEXT.Process(target=_work, args=(str(path), what, there)) for _, there in pipes
            ]
            for worker in workers:
                worker.start()
            for here, _ in pipes:
                here.recv()
            bring_memory(PUT_AT_ONCE_BYTES)
            for here, _ in pipes:
                here.send(True)
            counts = [here.recv() for here, _ in pipes]
            for worker in workers:
                worker.join()
        found[size] = SECONDS * 1e9 / sum(counts)
        shares[size] = min(counts) / max(counts)
    what_for = "put" if what == "producers" else "get and ack"
    first = found[1]
    for size, ns in found.items():
        note = f"the slowest did {shares[size]:.0%} of what the quickest did"
        yield Row(case=f"{what} {size:,}: {what_for}", ours=ns, peer="the first", peer_value=first,
                  ratio_goal=3, note=note)  # fmt: skip
