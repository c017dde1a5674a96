"""Tails: the slowest puts and hand-overs of many, beside Chronicle Queue and a pipe.

A producer at full speed while segments roll, retention trims and syncs run; then two processes, one
of which is handed a message now and then. Every single time counts: they are kept as they are and
put into a histogram of three digits afterwards, so that counting takes nothing from what is
measured. `PENSTOCK_BENCH_LARGE=1` puts ten million messages instead of one.
"""

from __future__ import annotations

import math
import os
import sys
import time
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import penstock
from benches import _processes
from benches.against import servers
from benches.harness import FRAME_OVERHEAD, Row, bring_memory, scratch

Quantiles = dict[float, float]
PERCENTILES = (50.0, 99.0, 99.9, 99.99, 99.999, 100.0)
SIZE = 100
TURNS = 5
SEGMENT_BYTES, KEPT_BYTES = 16 << 20, 64 << 20
"""Small enough that a million messages of 100 bytes roll eight times and are trimmed."""


def run(quick: bool) -> Iterator[Row]:
    large = bool(os.environ.get("PENSTOCK_BENCH_LARGE"))
    count = 100_000 if quick else 10_000_000 if large else 1_000_000
    with scratch() as folder:
        yield from puts(folder, count)
        yield from hand_overs(folder, 500 if quick else 100_000 if large else 10_000)


def times_ns(work: Any, count: int) -> array[int]:
    """Nanoseconds of each of `count` calls."""
    now, taken = time.perf_counter_ns, array("q")
    add = taken.append
    for _ in range(count):
        start = now()
        work()
        add(now() - start)
    return taken


def puts(folder: Path, count: int) -> Iterator[Row]:
    """One process puts as fast as it can, at default durability; what is old is trimmed."""
    body = bytes(SIZE)
    bring_memory(count * (SIZE + FRAME_OVERHEAD))
    with penstock.Queue(
        folder / "puts", segment_bytes=SEGMENT_BYTES, retention_bytes=KEPT_BYTES
    ) as queue:
        put = queue.put
        taken = times_ns(lambda: put(body), count)
        rolled, left = queue.offsets().tail // SEGMENT_BYTES, len(queue.store.segments(fresh=True))
    timer = quantiles(times_ns(lambda: None, min(count, 1_000_000)))
    note = f"{count:,} puts, {rolled} rolls, {left} segments left"
    found = quantiles(taken)
    for row in rows("put", found, *chronicle(folder, count), goal_ms=2, note=note):
        yield replace(row, floor="timer", floor_value=timer[percent_of(row)] / 1000)


def hand_overs(folder: Path, count: int) -> Iterator[Row]:
    """One process puts 2,500 a second, another blocks in get: the same through a pipe, and by a
    futex alone. Turn by turn, so that all meet the same machine."""
    ours, theirs, least = [], [], []
    for turn in range(TURNS):
        ours += _processes.hand_overs_us(folder / f"hand{turn}", count // TURNS)
        theirs += _processes.pipe_hand_overs_us(count // TURNS)
        least += _processes.futex_hand_overs_us(folder / f"futex{turn}", count // TURNS)
    mine, other, floor = (
        quantiles(int(one * 1000) for one in some) for some in (ours, theirs, least)
    )
    for row in rows("hand-over", mine, "mp.Pipe", other, goal_us=200, note=f"{count:,} of them"):
        yield replace(row, floor="futex alone", floor_value=floor[percent_of(row)] / 1000)


def chronicle(folder: Path, count: int) -> tuple[str, Quantiles]:
    """Appends of Chronicle Queue, in Java, if that is there (`make bench-servers`)."""
    try:
        found = servers.chronicle(folder, min(count, 5_000_000), SIZE)
    except ImportError as error:
        print(f"  tails: left out: {error}", file=sys.stderr)
        return "", {}
    return "Chronicle Queue", {percent: found[f"p{percent:g}"] for percent in PERCENTILES}


def rows(
    what: str,
    mine: Quantiles,
    peer: str,
    other: Quantiles,
    *,
    note: str,
    goal_ms: float | None = None,
    goal_us: float | None = None,
) -> Iterator[Row]:
    """A row for each percentile; the goal is the longest one's in ms, or the p99.9's in µs."""
    for percent in PERCENTILES:
        name = "max" if percent == 100 else f"p{percent:g}"
        goal = goal_us if percent == 99.9 else goal_ms * 1000 if goal_ms and name == "max" else None
        theirs = other[percent] / 1000 if other else None
        yield Row(case=f"{what} {name}", ours=mine[percent] / 1000, unit="us", peer=peer,
                  peer_value=theirs, goal=goal, note=note)  # fmt: skip


def percent_of(row: Row) -> float:
    name = row.case.split()[-1]
    return 100.0 if name == "max" else float(name[1:])


def quantiles(values_ns: Iterable[int]) -> Quantiles:
    """Of a histogram with three digits, as HDR histograms have: each value counts for the upper end
    of its bucket. By the library where it is installed, and the same without."""
    values = np.maximum(np.asarray(list(values_ns), np.int64), 1)
    try:
        from hdrh.histogram import HdrHistogram
    except ImportError:
        return {percent: _quantile(values, percent) for percent in PERCENTILES}
    histogram = HdrHistogram(1, 3_600_000_000_000, 3)
    for value, count in zip(*np.unique(values, return_counts=True), strict=True):
        histogram.record_value(int(value), int(count))
    return {percent: histogram.get_value_at_percentile(percent) for percent in PERCENTILES}


def _quantile(values: np.ndarray, percent: float) -> float:
    rank = min(len(values) - 1, max(0, math.ceil(len(values) * percent / 100) - 1))
    return float(np.partition(values, rank)[rank])
