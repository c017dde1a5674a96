"""VQS beside our own format: push and pop of 1 KiB, one by one and by the thousand.

The original, measured as a storage engine without its HTTP side, does 132 to 174 thousand pushes
and 58 to 61 thousand pops a second; the goal is five times that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import penstock
from benches.harness import Row, best_cpu_ns, scratch
from penstock.engine import retention

BODY = b"x" * 1024
RING = 128 << 20
PUSH_GOAL = 5 * 174_000
POP_GOAL = 5 * 61_000
MANY = 1000


def run(quick: bool) -> Iterator[Row]:
    """Both formats in turn, in one run."""
    count = 10_000 if quick else 50_000
    with scratch() as folder:
        ours = measure(folder / "ring.bin", count, format="vqs", max_bytes=RING)
        beside = measure(folder / "own", count)
    goals = {"push 1 KiB": PUSH_GOAL, "pop 1 KiB": POP_GOAL}
    for case, rate in ours.items():
        yield Row(
            case=case, ours=rate, unit="msg/s", peer="penstock format", peer_value=beside[case],
            goal=goals.get(case),
        )  # fmt: skip


def measure(path: Path, count: int, **options: Any) -> dict[str, float]:
    """Messages per second of CPU time, at default options, with every body read."""
    with penstock.Queue(path, **options) as queue:
        group = queue.group(ack="auto")

        for _ in range(RING // (MANY * 1300) + 1):  # One lap: later ones fault no pages in.
            queue.put_many([BODY] * MANY)
            group.get_many(MANY)

        def rate(push: Callable[[], object], pop: Callable[[], object]) -> tuple[float, float]:
            pushes, pops = [], []
            for _ in range(5):
                pushes.append(best_cpu_ns(push, count, 1))
                pops.append(best_cpu_ns(pop, count, 1))
                retention.free_consumed(queue)
            return 1e9 / min(pushes), 1e9 / min(pops)

        def push_each() -> None:
            put = queue.put
            for _ in range(count):
                put(BODY)

        def pop_each() -> None:
            get = group.get
            for _ in range(count):
                get(0).body  # noqa: B018  (reading it is part of the cost)

        def push_many() -> None:
            batch = [BODY] * MANY
            for _ in range(count // MANY):
                queue.put_many(batch)

        def pop_many() -> None:
            for _ in range(count // MANY):
                for message in group.get_many(MANY):
                    message.body  # noqa: B018

        one, many = rate(push_each, pop_each), rate(push_many, pop_many)
    names = ("push 1 KiB", "pop 1 KiB", "push 1 KiB by the thousand", "pop 1 KiB by the thousand")
    return dict(zip(names, (*one, *many), strict=True))
