"""Log records between processes: the standard library's recipe, on two kinds of queues.

Two processes log through a `QueueHandler` each, a third has the `QueueListener`, all begun with
nothing on the way. penstock is a `StandardQueue` with `codec="logrecord"`, whose records survive a
kill; its peer is `multiprocessing.Queue`, whose records do not.
"""

from __future__ import annotations

import logging
import logging.handlers
import multiprocessing
import time
from collections.abc import Iterator
from typing import Any

import penstock
from benches.harness import Row, scratch

SENDERS = 2
COUNT = 5000
ROUNDS = 5
SPAWN = multiprocessing.get_context("spawn")


class Counting(logging.Handler):
    """Counts what comes, as a handler that writes would have it."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += bool(record.getMessage())


def send(records: Any, count: int, ready: Any, told: Any) -> None:
    """Logs, once everyone is ready, and tells the CPU seconds it took."""
    log = logging.getLogger("bench")
    log.addHandler(logging.handlers.QueueHandler(records))
    log.propagate = False
    ready.wait()
    began = time.process_time()
    for number in range(count):
        log.warning("order %s of %s was paid", number, "a customer")
    records.close()
    if hasattr(records, "join_thread"):
        records.join_thread()  # A thread of the queue's does part of the work.
    told.put(time.process_time() - began)


def measure(records: Any, count: int) -> tuple[float, float, float]:
    """Records a second, and CPU microseconds to send one and to have one received."""
    ready, told = SPAWN.Barrier(SENDERS + 1), SPAWN.SimpleQueue()
    given = (records, count, ready, told)
    senders = [SPAWN.Process(target=send, args=given) for _ in range(SENDERS)]
    for sender in senders:
        sender.start()
    counting = Counting()
    listener = logging.handlers.QueueListener(records, counting)
    ready.wait()
    began, began_cpu = time.perf_counter(), time.process_time()
    listener.start()
    while counting.count < SENDERS * count:
        time.sleep(0.001)
    took_s, cpu_s = time.perf_counter() - began, time.process_time() - began_cpu
    listener.stop()
    sent_s = sum(told.get() for _ in senders)
    for sender in senders:
        sender.join()
    total = SENDERS * count
    return total / took_s, sent_s / total * 1e6, cpu_s / total * 1e6


CASES = (
    ("records through two senders and a listener", "record/s"),
    ("CPU to send a record", "us"),
    ("CPU to receive a record", "us"),
)


def run(quick: bool) -> Iterator[Row]:
    """A row for each case; the best of the rounds, in turn."""
    best: dict[str, list[float]] = {}
    with scratch() as folder:
        for turn in range(2 if quick else ROUNDS):
            own = penstock.StandardQueue(folder / f"logs-{turn}", codec="logrecord")
            for name, records in (("penstock", own), ("multiprocessing.Queue", SPAWN.Queue())):
                rate, *costs = measure(records, 1000 if quick else COUNT)
                known = best.setdefault(name, [rate, *costs])
                known[:] = [max(rate, known[0]), *map(min, costs, known[1:])]
                records.close()
    for (case, unit), ours, peer in zip(CASES, *best.values(), strict=True):
        yield Row(case=case, ours=ours, unit=unit, peer="multiprocessing.Queue", peer_value=peer)
