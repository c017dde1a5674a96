"""Format zbus beside our own: put, batches, reading, filtered reading, 100-byte bodies.

The peer of each row is format penstock in the same run. The original program (zbus 1.0, layout
crc, warm JVM, one thread, CPU time) is named in the note: 1.93 us a put, 0.32 us a message in
batches of 100, 0.24 us a message read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from benches.harness import Row, best_cpu_ns, scratch
from penstock import Queue

BODY = b"x" * 100
ORIGINAL_NS = {"put": 1930.0, "batch of 100": 320.0, "read": 240.0}
LAYOUTS = ("doc000", "crc")
ROUNDS = 5


def _put_one(queue: Queue, count: int) -> Callable[[], None]:
    def work() -> None:
        put = queue.put
        for _ in range(count):
            put(BODY, id="0123456789abcdef")

    return work


def _put_many(queue: Queue, count: int) -> Callable[[], None]:
    batch = [BODY] * 100

    def work() -> None:
        for _ in range(count // 100):
            queue.put_many(batch)

    return work


def _read(queue: Queue, count: int) -> Callable[[], None]:
    group = queue.group("bench", ack="auto")

    def work() -> None:
        group.seek("earliest")
        left = count
        while left > 0:
            left -= len(group.get_many(1000))

    return work


def _filtered(queue: Queue, tags: str) -> Callable[[], None]:
    def work() -> None:
        for _ in queue.scan(tags=tags):
            pass

    return work


def measure(path: Path, format: str, layout: str | None, count: int) -> dict[str, float]:
    """CPU ns per message of each case."""
    found = {}
    with Queue(path / "put", format=format, layout=layout, durability="process") as queue:
        found["put"] = best_cpu_ns(_put_one(queue, count), count, ROUNDS)
    with Queue(path / "many", format=format, layout=layout, durability="process") as queue:
        found["batch of 100"] = best_cpu_ns(_put_many(queue, count), count, ROUNDS)
    with Queue(path / "read", format=format, layout=layout, durability="process") as queue:
        for number in range(count):
            tag = "rare" if number % 100 == 0 else "half" if number % 2 else "rest"
            queue.put(BODY, tag=tag)
        found["read"] = best_cpu_ns(_read(queue, count), count, ROUNDS)
        found["filtered read, 1 % match"] = best_cpu_ns(_filtered(queue, "rare"), count, ROUNDS)
        found["filtered read, 50 % match"] = best_cpu_ns(_filtered(queue, "half"), count, ROUNDS)
    return found


def run(quick: bool) -> Iterable[Row]:
    """One row per case and layout, against format penstock."""
    count = 20_000 if quick else 100_000
    with scratch() as folder:
        ours = measure(folder / "penstock", "penstock", None, count)
        for layout in LAYOUTS:
            found = measure(folder / layout, "zbus", layout, count)
            for case, value in found.items():
                original = ORIGINAL_NS.get(case)
                yield Row(
                    case=f"zbus {layout}: {case}", ours=value, peer="format penstock",
                    peer_value=ours[case], goal=original,
                    note=f"original {original:.0f} ns" if original else "",
                )  # fmt: skip
