"""Two processes: how many messages pass between them, and how long one takes."""

from __future__ import annotations

import ctypes
import mmap
import multiprocessing
import os
import signal
import time
from multiprocessing.connection import Connection
from pathlib import Path

import penstock
from benches.harness import FRAME_OVERHEAD, bring_memory, percentile

CONTEXT = multiprocessing.get_context("spawn")
NOW = time.perf_counter_ns  # The monotonic clock: the same in every process.


def _produce(path: str, body: bytes, count: int, batch: int, ready: Connection) -> None:
    with penstock.Queue(path) as queue:
        ready.send(True)
        ready.recv()
        if batch == 1:
            put = queue.put
            for _ in range(count):
                put(body)
        else:
            bodies = [body] * batch
            for _ in range(count // batch):
                queue.put_many(bodies)
        ready.recv()


def passed_us(path: Path, size: int, count: int, batch: int) -> float:
    """Wall time per message from a producer in another process to bodies read here."""
    ours, theirs = CONTEXT.Pipe()
    with penstock.Queue(path) as queue:
        group = queue.group(ack="auto")
        args = (str(path), bytes(size), count, batch, theirs)
        producer = CONTEXT.Process(target=_produce, args=args)
        producer.start()
        ours.recv()
        bring_memory(count * (size + FRAME_OVERHEAD))
        got, start = 0, NOW()
        ours.send(True)
        if batch == 1:
            get = group.get
            while got < count:
                _ = get(10).body
                got += 1
        else:
            while got < count:
                got += len([message.body for message in group.get_many(batch, 10)])
        taken = NOW() - start
        ours.send(True)
        producer.join()
    return taken / count / 1000


def _send(pipe: Connection, body: bytes, count: int) -> None:
    for _ in range(count):
        pipe.send_bytes(body)


def pipe_passed_us(size: int, count: int) -> float:
    """The same through `multiprocessing.Pipe`."""
    ours, theirs = CONTEXT.Pipe(duplex=False)
    producer = CONTEXT.Process(target=_send, args=(theirs, bytes(size), count))
    producer.start()
    ours.recv_bytes()
    start = NOW()
    for _ in range(count - 1):
        ours.recv_bytes()
    taken = NOW() - start
    producer.join()
    return taken / (count - 1) / 1000


def _pace(count: int) -> None:
    """Between two messages at 2500 a second, without hogging a core."""
    time.sleep(0.0004)


def _tick(path: str, count: int, ready: Connection) -> None:
    with penstock.Queue(path) as queue:
        ready.send(True)
        ready.recv()
        put = queue.put
        for _ in range(count):
            put(NOW().to_bytes(8, "little") + bytes(92))
            _pace(count)
        ready.recv()


def latencies_us(path: Path, count: int, *, spinning: bool) -> tuple[float, float]:
    """One-way p50 and p99 of 100-byte messages at about 2500 a second."""
    found = hand_overs_us(path, count, spinning=spinning)
    return percentile(found, 50), percentile(found, 99)


def hand_overs_us(path: Path, count: int, *, spinning: bool = False) -> list[float]:
    """How long each message was on its way, but for the first tenth of them."""
    ours, theirs = CONTEXT.Pipe()
    found: list[float] = []
    with penstock.Queue(path) as queue:
        group = queue.group(ack="auto")
        producer = CONTEXT.Process(target=_tick, args=(str(path), count, theirs))
        producer.start()
        ours.recv()
        bring_memory(count * (100 + FRAME_OVERHEAD))
        ours.send(True)
        while len(found) < count:
            got = group.get_many(1, 0 if spinning else 10)
            found += [(NOW() - int.from_bytes(one.body[:8], "little")) / 1000 for one in got]
        ours.send(True)
        producer.join()
    return found[len(found) // 10 :]


def _tick_pipe(pipe: Connection, count: int) -> None:
    for _ in range(count):
        pipe.send_bytes(NOW().to_bytes(8, "little") + bytes(92))
        _pace(count)


def pipe_latencies_us(count: int) -> tuple[float, float]:
    """The same through `multiprocessing.Pipe`."""
    found = pipe_hand_overs_us(count)
    return percentile(found, 50), percentile(found, 99)


def pipe_hand_overs_us(count: int) -> list[float]:
    """How long each was on its way through `multiprocessing.Pipe`, but for the first tenth."""
    ours, theirs = CONTEXT.Pipe(duplex=False)
    producer = CONTEXT.Process(target=_tick_pipe, args=(theirs, count))
    producer.start()
    found = []
    for _ in range(count):
        stamp = int.from_bytes(ours.recv_bytes()[:8], "little")
        found.append((NOW() - stamp) / 1000)
    producer.join()
    return found[len(found) // 10 :]


FUTEX = {"x86_64": 202, "aarch64": 98}.get(os.uname().machine)
"""The number of the system call; none where we do not know it."""
WAIT, WAKE = 0, 1


class Bell:
    """A word and a stamp in memory that two processes share, and the futex on the word: the least
    that wakes a process which waits."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), mmap.PAGESIZE)
        self._word = ctypes.c_uint32.from_buffer(self._memory, 0)
        self._stamp = ctypes.c_uint64.from_buffer(self._memory, 8)
        self._at = ctypes.addressof(self._word)
        self._call = ctypes.CDLL(None).syscall
        self._call.argtypes = [ctypes.c_long, ctypes.c_void_p, *[ctypes.c_int] * 2, ctypes.c_void_p]

    def ring(self) -> None:
        """Stamps it with the time, and wakes who waits."""
        self._stamp.value = NOW()
        self._word.value += 1
        self._call(FUTEX, self._at, WAKE, 1, None)

    def waited_us(self, seen: int) -> tuple[int, float]:
        """Waits until it has rung more than `seen` times: how often it has, and how long ago."""
        while self._word.value == seen:
            self._call(FUTEX, self._at, WAIT, seen, None)
        return self._word.value, (NOW() - self._stamp.value) / 1000


def _ring(path: str, count: int, ready: Connection) -> None:
    bell = Bell(Path(path))
    ready.send(True)
    ready.recv()
    for _ in range(count):
        bell.ring()
        _pace(count)
    ready.recv()


def futex_hand_overs_us(path: Path, count: int) -> list[float]:
    """The same with nothing but a futex, but for the first tenth."""
    path.write_bytes(bytes(mmap.PAGESIZE))
    ours, theirs = CONTEXT.Pipe()
    producer = CONTEXT.Process(target=_ring, args=(str(path), count, theirs))
    producer.start()
    ours.recv()
    bell, seen, found = Bell(path), 0, []
    ours.send(True)
    while seen < count:
        seen, taken = bell.waited_us(seen)
        found.append(taken)
    ours.send(True)
    producer.join()
    return found[len(found) // 10 :]


def _fill_and_die(path: str, size: int) -> None:
    queue = penstock.Queue(path)
    bodies = [bytes(1000)] * 1000
    while queue.offsets().tail < size:
        queue.put_many(bodies)
    os.kill(os.getpid(), signal.SIGKILL)


def crashed_queue(path: Path, size: int) -> None:
    """A queue of about `size` bytes whose only process was killed."""
    process = CONTEXT.Process(target=_fill_and_die, args=(str(path), size))
    process.start()
    process.join()
