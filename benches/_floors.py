"""What the machine itself needs for the same bytes, measured in the same run.

A put is at least one call from Python and one copy into the pages of a file; a get is at least one
call and one object of the body's size. A list or an Arrow array saves the calls. Nothing that does
the work can be below these; how often they fit into a figure says how much is left to gain.
"""

from __future__ import annotations

import mmap
import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benches._peers import call_each
from benches.harness import FRAME_OVERHEAD, best_cpu_ns, bring_memory

BLOCK = 16 << 20
LISTED = 1000
PIECE = 128 << 10
"""So much is made at a time, as by a quick writer of ours."""

Block = npt.NDArray[np.uint8]
Copy = Callable[[int, Block, Block], None]


@dataclass(frozen=True)
class Floors:
    """Nanoseconds of one message."""

    call: float
    """One call of a native method with one argument, and the loop around it."""
    made: float
    """One bytes object of the body's size, made anew in the place of the one before."""
    listed: float
    """One of a thousand such objects in a list, each of other pages of a file."""
    fresh: float
    """The copy of a frame into pages of a file that nobody has touched yet."""
    pieces: float
    """The same, where the pages are made a piece at a time, by a write of zeros: the store to each
    one makes them at four times the cost."""
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
    listed = _listed(folder / "floor-list", len(body))
    return Floors(call, made, listed, *_copies(folder / "floor-pages", len(body) + FRAME_OVERHEAD))


def _listed(path: Path, size: int) -> float:
    path.write_bytes(bytes(LISTED * (size + FRAME_OVERHEAD)))
    places = [slice(at, at + size) for at in range(0, path.stat().st_size, size + FRAME_OVERHEAD)]
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as pages:
        listed = best_cpu_ns(lambda: [pages[place] for place in places], LISTED, 100)
    path.unlink()
    return listed


def _copies(path: Path, size: int) -> tuple[float, float, float]:
    """Of `size` bytes, as a share of a large block: no calls are counted."""
    best = [float("inf")] * 3
    for _ in range(5):
        fresh, warm = _round(path, _copy)
        pieces, _ = _round(path, _copy_in_pieces)
        best = [min(pair) for pair in zip(best, (fresh, pieces, warm), strict=True)]
    fresh, pieces, warm = (ns * size / BLOCK for ns in best)
    return fresh, pieces, warm


def _round(path: Path, copy: Copy) -> tuple[float, float]:
    """Nanoseconds of one block, into pages that nobody has touched and into the same ones again."""
    bring_memory(BLOCK)
    block = np.ones(BLOCK, np.uint8)
    with path.open("w+b") as file:
        os.posix_fallocate(file.fileno(), 0, BLOCK)
        with mmap.mmap(file.fileno(), BLOCK) as pages:
            there = np.frombuffer(pages, np.uint8)
            fresh, warm = (_ns(how, file.fileno(), there, block) for how in (copy, _copy))
            del there
    path.unlink()
    return fresh, warm


def _ns(copy: Copy, file: int, there: Block, block: Block) -> float:
    return best_cpu_ns(lambda: copy(file, there, block), 1, 1)


def _copy(_: int, there: Block, block: Block) -> None:
    np.copyto(there, block)


def _copy_in_pieces(file: int, there: Block, block: Block) -> None:
    zeros = bytes(PIECE)
    for at in range(0, BLOCK, PIECE):
        os.pwrite(file, zeros, at)
        np.copyto(there[at : at + PIECE], block[at : at + PIECE])
