"""The Beats format beside the original's own figures, per CPU second.

Events of one 200-byte `message`, 65,536 distinct ones, in batches of 2048 as the original writes
them: encode, frame, write; then read, check, decode, into Arrow. The originals' figures were
measured on a machine of the same kind (Go, tmpfs, 1 M events); our own format runs beside them.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

import penstock
from benches.harness import Row, scratch

KEY = bytes(range(16))
BATCH = 2048
ORIGINAL = {
    "1": (222_000, 122_000), "2": (481_000, 151_000), "3": (332_000, 127_000),
    "0": (213_000, 146_000), "2-released": (541_000, 164_000), "2-released-lz4": (643_000, 549_000),
}  # fmt: skip
"""Events per CPU second: written, read."""
GOALS = {"1": (2.0, 5.0), "2": (2.0, 5.0), "3": (2.0, 5.0)}


def run(quick: bool) -> Iterator[Row]:
    batches = 25 if quick else 250
    bodies = messages()
    with scratch() as folder:
        measure(folder / "warm", bodies, 2, {})
        ours = measure(folder / "ours", bodies, batches, {})
        for layout, original in ORIGINAL.items():
            key = KEY if layout in ("2", "3") else None
            options = {"format": "beats", "layout": layout, "key": key}
            figures = measure(folder / "q", bodies, batches, options)
            goals = GOALS.get(layout, (None, None))
            for verb, figure, peer, goal, own in zip(
                ("write", "read"), figures, original, goals, ours, strict=False
            ):
                yield Row(
                    case=f"{verb} layout {layout}", ours=figure, unit="msg/s",
                    peer="the original", peer_value=peer, ratio_goal=goal,
                    note=f"{figure * figures[2] / 1e6:.0f} MB/s; format penstock {own:,.0f}",
                )  # fmt: skip


def messages() -> list[bytes]:
    """JSON objects with a `message` of 200 bytes."""
    chance = random.Random(1)
    words = [
        f"{word}{n}" for word in ("alpha", "bravo", "delta", "echo", "golf") for n in range(999)
    ]
    texts = (" ".join(chance.choices(words, k=40))[:200] for _ in range(65_536))
    return [b'{"message":"%s"}' % text.encode() for text in texts]


def measure(
    path: Path, bodies: list[bytes], batches: int, options: dict[str, Any]
) -> tuple[float, float, float]:
    """Events per CPU second written and read, and bytes per frame."""
    with penstock.Queue(path, durability="process", **options) as queue:
        start = time.process_time()
        for number in range(batches):
            first = number * BATCH % len(bodies)
            queue.put_many(bodies[first : first + BATCH])
        written = time.process_time() - start
        count = batches * BATCH
        start = time.process_time()
        rows = len(pa.table(queue.scan(columns=["timestamp_ns", "body"])))
        read = time.process_time() - start
        assert rows == count
        size = queue.stats()["bytes"] / count
    shutil.rmtree(path)
    return count / written, count / read, size
