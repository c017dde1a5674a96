"""What every benchmark shares: rows, timers, the machine's name, the table and the file.

A benchmark is a module of this folder with `run(quick: bool) -> Iterable[Row]`. Figures are the
best of several rounds: other load on the machine only ever adds. A goal is a figure on one
machine and a ratio to something measured in the same run; where there is a ratio, it counts.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results"
HELPERS = {"__init__", "__main__", "harness"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure, what it is compared with, and what it should be."""

    case: str
    ours: float
    unit: str = "ns"
    """`ns`, `us`, `ms`, `s`: less is better; `msg/s`, `GB/s`, `msg/sync`: more is better."""
    peer: str = ""
    """What `peer_value` belongs to, measured in the same run and unit."""
    peer_value: float | None = None
    goal: float | None = None
    """The figure wanted, in `unit`."""
    ratio_goal: float | None = None
    """`ours / peer_value` wanted: at most this where less is better, else at least."""
    floor: str = ""
    """What the machine itself needs for the same: `floor_value`, in the same run and unit."""
    floor_value: float | None = None
    floor_goal: float | None = None
    """`ours / floor_value` wanted at most."""
    note: str = ""

    @property
    def floor_ratio(self) -> float | None:
        return self.ours / self.floor_value if self.floor_value else None

    @property
    def more_is_better(self) -> bool:
        return "/" in self.unit

    @property
    def ratio(self) -> float | None:
        return self.ours / self.peer_value if self.peer_value else None

    @property
    def met(self) -> bool | None:
        """None: there is no goal. The multiple of the floor counts where there is one, else the
        ratio, else the figure."""
        if self.floor_goal is not None and self.floor_ratio is not None:
            return self.floor_ratio <= self.floor_goal
        value, wanted = self.ours, self.goal
        if self.ratio_goal is not None and self.ratio is not None:
            value, wanted = self.ratio, self.ratio_goal
        if wanted is None:
            return None
        return value >= wanted if self.more_is_better else value <= wanted

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {
            "ratio": self.ratio,
            "floor_ratio": self.floor_ratio,
            "met": self.met,
        }


# ── timing ─────────────────────────────────────────────────────────────────────────────────


def best_cpu_ns(
    work: Callable[[], object], count: int, rounds: int = 7, *, fills: int = 0
) -> float:
    """CPU time per operation of `work`, which does `count` of them; the best of the rounds, each
    of which `fills` so many bytes of new memory."""
    return _best(time.process_time_ns, work, count, rounds, fills)


def best_wall_ns(work: Callable[[], object], count: int, rounds: int = 7) -> float:
    """Wall time per operation: for whatever waits for a disk or another process."""
    return _best(time.perf_counter_ns, work, count, rounds)


def _best(
    clock: Callable[[], int],
    work: Callable[[], object],
    count: int,
    rounds: int,
    fills: int = 0,
) -> float:
    best = float("inf")
    # Before short rounds not each time: what it leaves in the processor's caches is no queue.
    at_once = max(1, SPARE_BYTES // max(fills, 1))
    gc_was_on = gc.isenabled()
    gc.disable()
    try:
        for number in range(rounds):
            if fills and number % at_once == 0:
                bring_memory(fills * min(at_once, rounds))
            start = clock()
            work()
            best = min(best, (clock() - start) / count)
    finally:
        if gc_was_on:
            gc.enable()
    return best


def settle() -> None:
    """Waits until the other threads of this process have nothing left to do, for two seconds at
    most. CPU time is the whole process's: what the maintenance thread still does for messages that
    were put before would count as the cost of what follows."""
    quiet = 0
    for _ in range(200):
        before = time.process_time_ns()
        time.sleep(0.01)
        quiet = quiet + 1 if time.process_time_ns() - before < 500_000 else 0
        if quiet == 3:
            return


FRAME_OVERHEAD = 40
"""Bytes that a frame has beside the body, at most."""
MOST_MEMORY = 1 << 30
"""What `bring_memory` brings at most."""
PAGE_BYTES = 4096
PIECES = (256 << 10, 128 << 10, 128 << 10, 64 << 10, PAGE_BYTES)
"""So many bytes of pages are made together: by a queue 64 to 256 KiB, by a floor one page."""
SPARE_BYTES = 64 << 20
"""What a queue may make ahead meanwhile."""


def bring_memory(wanted: int) -> float:
    """Fills pages of a file, twice as many as the bytes that are wanted need, and gives them back;
    the processor time of a page, in nanoseconds.

    The host of a virtual machine may take back memory that is free. Then the first use of a page
    waits for the host, which takes five to ten microseconds where the page itself takes one, and
    counts as processor time of whoever touches it. So memory is brought before a round that puts,
    or is the floor of one. The kernel has free memory in blocks of many sizes, and takes many pages
    that are made together from other blocks than a single one. So they are made here as queues and
    floors make them: 91 to 100 % of what a round then fills is of this memory.
    """
    folder = os.environ.get("PENSTOCK_BENCH_DIR") or tempfile.gettempdir()
    spared = min(_available_bytes(), shutil.disk_usage(folder).free) // 4
    size = min(2 * (wanted + SPARE_BYTES), MOST_MEMORY, spared)
    block = max(PIECES)
    start = time.process_time_ns()
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        for number in range(size // block):
            piece = bytes(PIECES[number % len(PIECES)])
            for _ in range(block // len(piece)):
                file.write(piece)
    pages = size // block * block // PAGE_BYTES
    return (time.process_time_ns() - start) / pages if pages else 0


def _available_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable"):
            return int(line.split()[1]) << 10
    return 0


def percentile(values: Iterable[float], percent: float) -> float:
    """The value that `percent` of all stay below."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def median(values: Iterable[float]) -> float:
    return statistics.median(values)


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder on the disk under test (`PENSTOCK_BENCH_DIR`, else the usual temporary one)."""
    root = os.environ.get("PENSTOCK_BENCH_DIR")
    folder = Path(tempfile.mkdtemp(prefix="penstock-bench-", dir=root))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# ── the machine ────────────────────────────────────────────────────────────────────────────


def machine() -> dict[str, Any]:
    """What was measured on, so that no figure travels without it."""
    model = "unknown"
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_1min": round(os.getloadavg()[0], 1),
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
    }


# ── running and showing ────────────────────────────────────────────────────────────────────


def names() -> list[str]:
    """The benchmarks there are."""
    found = sorted(path.stem for path in FOLDER.glob("*.py"))
    return [name for name in found if name not in HELPERS and not name.startswith("_")]


def load(name: str) -> Callable[[bool], Iterable[Row]]:
    """A benchmark's `run`."""
    run: Callable[[bool], Iterable[Row]] = importlib.import_module(f"benches.{name}").run
    return run


def save(name: str, rows: list[Row], about: dict[str, Any], folder: Path = RESULTS) -> Path:
    """Writes `<name>.json`."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.json"
    value = {"benchmark": name, "machine": about, "rows": [row.as_dict() for row in rows]}
    path.write_text(json.dumps(value, indent=1) + "\n")
    return path


def publish(name: str, rows: list[Row], about: dict[str, Any]) -> None:
    """Writes the page anew that shows these figures, where a benchmark has one of its own."""
    work = getattr(importlib.import_module(f"benches.{name}"), "publish", None)
    if work is not None:
        work(rows, about)


def shown(value: float | None) -> str:
    """A figure with as many digits as mean something."""
    if value is None:
        return ""
    if abs(value) >= 100_000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def cells(row: Row) -> list[str]:
    """A row as text, in the order of `HEADS`."""
    sign = "≥" if row.more_is_better else "≤"
    goal = f"{sign} {shown(row.goal)}" if row.goal is not None else ""
    if row.ratio_goal is not None:
        goal = f"{goal} and {sign} {shown(row.ratio_goal)}x".removeprefix(" and ")
    if row.floor_goal is not None:
        goal = f"≤ {shown(row.floor_goal)} floors"
    floor = f"{row.floor} {shown(row.floor_value)}" if row.floor else ""
    times = f"{row.floor_ratio:.2f}" if row.floor_ratio is not None else ""
    met = {None: "", True: "yes", False: "NO"}[row.met]
    peer = f"{row.peer} {shown(row.peer_value)}".strip()
    ratio = f"{row.ratio:.2f}x" if row.ratio is not None else ""
    return [row.case, shown(row.ours), row.unit, peer, ratio, floor, times, goal, met, row.note]


def compare(
    name: str,
    about_it: str,
    work: Callable[[int, float], list[dict[str, Any]]],
    show: Callable[[list[dict[str, Any]], dict[str, Any]], None],
    *,
    rounds: int,
    arguments: list[str] | None = None,
    **more: Any,
) -> int:
    """The command of a benchmark whose contestants take turns: `work` gets how many rounds and
    which share of their length. Writes `<name>.json` with `more` in it, and shows the rows."""
    parser = argparse.ArgumentParser(description=about_it)
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--to", type=Path, default=RESULTS / f"{name}.json")
    chosen = parser.parse_args(arguments)
    about = machine()
    rounds = 1 if chosen.quick else chosen.rounds
    rows = work(rounds, 0.02 if chosen.quick else 1.0)
    chosen.to.parent.mkdir(parents=True, exist_ok=True)
    value = {"benchmark": name, "machine": about, **more, "rounds": rounds, "rows": rows}
    chosen.to.write_text(json.dumps(value, indent=1) + "\n")
    show(rows, about)
    print(f"written: {chosen.to}")
    return 0


HEADS = ["case", "ours", "unit", "beside", "ratio", "floor", "floors", "goal", "met", "note"]


def draw(title: str, rows: list[Row]) -> None:
    """A table, by rich where it is installed."""
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        print(title)
        print("\n".join("\t".join(line) for line in [HEADS, *map(cells, rows)]))
        return
    table = Table(title=title)
    for head in HEADS:
        table.add_column(head, justify="right" if head in ("ours", "ratio", "floors") else "left")
    for row in rows:
        style = "red" if row.met is False else None
        table.add_row(*cells(row), style=style)
    width = None if os.isatty(1) else 160
    Console(width=width).print(table)
