"""What others cost, measured in the same run: the anchors of the ratios."""

from __future__ import annotations

import os
import queue
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lmdb

from benches.harness import best_cpu_ns, percentile


def call_each(call: Callable[[Any], object], argument: object, count: int) -> None:
    """`count` calls in a plain loop, as users write it."""
    for _ in range(count):
        call(argument)


def simple_queue_ns(body: bytes, count: int) -> tuple[float, float]:
    """put and get of the standard library's `SimpleQueue`."""
    peer: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    puts = best_cpu_ns(lambda: call_each(peer.put, body, count), count)
    gets = best_cpu_ns(lambda: call_each(peer.get, False, count), count)
    return puts, gets


def memcpy_ns(body: bytes, count: int) -> float:
    """One copy of the body into memory that is already there, called from Python."""
    room = memoryview(bytearray(len(body) * 64))
    parts = [room[i * len(body) : (i + 1) * len(body)] for i in range(64)]
    whole = slice(None)

    def work() -> None:
        for _ in range(count // 64):
            for part in parts:
                part[whole] = body

    return best_cpu_ns(work, count)


def lmdb_batch_ns(folder: Path, body: bytes, count: int) -> tuple[float, float]:
    """put and pop in transactions of `count`, without syncs."""
    folder.mkdir(exist_ok=True)
    env = lmdb.open(str(folder), map_size=4 << 30, sync=False, metasync=False, writemap=True)
    numbers = iter(range(1 << 60))

    def put() -> None:
        with env.begin(write=True) as txn:
            for number in (next(numbers) for _ in range(count)):
                txn.put(number.to_bytes(8, "big"), body, append=True)

    def pop() -> None:
        with env.begin(write=True) as txn:
            cursor = txn.cursor()
            cursor.first()
            for _ in range(count):
                bytes(cursor.value())
                cursor.delete()

    puts = best_cpu_ns(put, count, 20, fills=2 * count * len(body))
    gets = best_cpu_ns(pop, count, 15)
    env.close()
    return puts, gets


def sync_floor_us(folder: Path, size: int, rounds: int, now: Callable[[], int]) -> list[float]:
    """`pwrite` of `size` bytes into a file that was written before, then `fdatasync`."""
    path = folder / "floor"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    os.pwrite(descriptor, bytes(size * rounds), 0)
    os.fsync(descriptor)
    data, taken = os.urandom(size), []
    for number in range(rounds):
        start = now()
        os.pwrite(descriptor, data, number * size)
        os.fdatasync(descriptor)
        taken.append((now() - start) / 1000)
    os.close(descriptor)
    return taken


def sync_floor_p50_us(folder: Path, size: int, rounds: int) -> float:
    return percentile(sync_floor_us(folder, size, rounds, time.perf_counter_ns), 50)
