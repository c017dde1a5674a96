"""Does a ring gain from huge pages? 4 KiB pages beside 2 MiB ones, first touch and later laps.

The file is on tmpfs mounted as usual; huge pages are asked for with MADV_HUGEPAGE, which the kernel
honours for shared memory only where `shmem_enabled` says so. Where it does not, both rows measure
small pages, and the fault counts tell.
"""

from __future__ import annotations

import mmap
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benches.harness import Row

RING = 128 << 20
RECORD = 1280
SHMEM = Path("/sys/kernel/mm/transparent_hugepage/shmem_enabled")


def run(quick: bool) -> Iterator[Row]:
    """A ring filled record by record: the first lap faults its pages in, the second does not."""
    size = RING // 4 if quick else RING
    small, huge = lap(size, mmap.MADV_NOHUGEPAGE), lap(size, mmap.MADV_HUGEPAGE)
    allowed = SHMEM.read_text().strip() if SHMEM.exists() else "unknown"
    for case in ("first lap, per record", "second lap, per record"):
        faults = f"{huge['page faults']:.0f} faults, {small['page faults']:.0f} with 4 KiB"
        title = f"{case}, huge pages ({faults}; shmem_enabled {allowed})"
        yield Row(
            case=title, ours=huge[case], unit="ns", peer="4 KiB pages", peer_value=small[case]
        )


def lap(size: int, advice: int) -> dict[str, float]:
    """Nanoseconds per record, and faults."""
    with tempfile.TemporaryFile(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as file:
        file.truncate(size)
        with mmap.mmap(file.fileno(), size) as ring:
            ring.madvise(advice)
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            first = fill(ring, size)
            faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
            second = fill(ring, size)
    names = ("first lap, per record", "second lap, per record", "page faults")
    return dict(zip(names, (first, second, float(faults)), strict=True))


def fill(ring: mmap.mmap, size: int) -> float:
    """Stores records over the whole ring."""
    record, count = b"x" * RECORD, size // RECORD
    start = time.process_time_ns()
    for at in range(0, count * RECORD, RECORD):
        ring[at : at + RECORD] = record
    return (time.process_time_ns() - start) / count
