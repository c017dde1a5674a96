"""What the machine itself needs for the same bytes, measured in the same run.

A put is at least one call from Python and one copy into the pages of a file; a get is at least one
call and one object of the body's size. A list or an Arrow array saves the calls. Nothing that does
the work can be below these; how often they fit into a figure says how much is left to gain.
"""

from __future__ import annotations

import mmap
import os
from collections import deque
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benches._peers import call_each
from benches.harness import FRAME_OVERHEAD, best_cpu_ns, bring_memory

BLOCK = 16 << 20


@dataclass(frozen=True)
class Floors:
    """Nanoseconds of one message."""

    call: float
    """One call of a native method with one argument, and the loop around it."""
    made: float
    """One bytes object of the body's size, made anew."""
    fresh: float
    """The copy of a frame into pages of a file that nobody has touched yet."""
    warm: float
    """The same into pages that were written before."""


def floors(folder: Path, body: bytes, count: int) -> Floors:
    """Measured with this body, on the disk under test."""
    seen: deque[bytes] = deque(maxlen=1)
    call = best_cpu_ns(lambda: call_each(seen.append, body, count), count)
    rest = slice(1, None)

    def make() -> None:
        for _ in range(count):
            body[rest]

    made = best_cpu_ns(make, count)
    fresh, warm = _copies(folder / "floor-pages", len(body) + FRAME_OVERHEAD)
    return Floors(call, made, fresh, warm)


def _copies(path: Path, size: int) -> tuple[float, float]:
    """Of `size` bytes, as a share of a large block: no calls are counted."""
    block, messages = np.ones(BLOCK, np.uint8), BLOCK / size
    best_fresh = best_warm = float("inf")
    for _ in range(5):
        bring_memory(BLOCK)
        with path.open("w+b") as file:
            os.posix_fallocate(file.fileno(), 0, BLOCK)
            pages = mmap.mmap(file.fileno(), BLOCK)
            there = np.frombuffer(pages, np.uint8)
            best_fresh = min(best_fresh, _copy_ns(there, block) / messages)
            best_warm = min(best_warm, _copy_ns(there, block) / messages)
            del there
            pages.close()
    path.unlink()
    return best_fresh, best_warm


def _copy_ns(there: np.ndarray, block: np.ndarray) -> float:
    return best_cpu_ns(lambda: np.copyto(there, block), 1, 1)
