"""From `python` to a queue that is open: CPU time over an interpreter that does nothing.

Each program runs in processes of its own, in turn with the bare interpreter, and the best of the
rounds counts. Byte code is compiled before, as an installed package has it. Peers are those of
`benches/against/peers.txt`, each left out where it is not installed.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from benches.harness import Row, scratch

ROUNDS = 20
GOAL_MS = 25.0
BARE = "pass"
OURS = {
    "import penstock": "import penstock",
    "import until a Queue is open": "import penstock; penstock.Queue({folder!r} + '/ours')",
    "import until a message was put and got": (
        "import penstock; q = penstock.Queue({folder!r} + '/used'); q.put(b'x'); q.get().ack()"
    ),
}
PEERS = {
    "queuelib": "from queuelib import FifoDiskQueue; FifoDiskQueue({folder!r} + '/queuelib')",
    "diskcache": "from diskcache import Deque; Deque(directory={folder!r} + '/diskcache')",
    "litequeue": "from litequeue import LiteQueue; LiteQueue({folder!r} + '/lite.db')",
    "persistqueue": "from persistqueue import Queue; Queue({folder!r} + '/persist')",
}


def run(quick: bool) -> Iterator[Row]:
    """A row for each program; the goal is in milliseconds over the bare interpreter."""
    with scratch() as folder:
        peers = {f"{name}, open": text for name, text in PEERS.items() if _has(name)}
        programs = {"bare": BARE} | OURS | peers
        best = measured(folder, programs, 5 if quick else ROUNDS)
        bare = best.pop("bare")
        for name, taken in best.items():
            is_ours = name in OURS
            yield Row(case=name, ours=taken - bare, unit="ms",
                      peer="bare Python" if is_ours else "", peer_value=bare if is_ours else None,
                      goal=GOAL_MS if is_ours else None)  # fmt: skip


def measured(folder: Path, programs: dict[str, str], rounds: int) -> dict[str, float]:
    """CPU milliseconds of each program, the best of the rounds."""
    best: dict[str, float] = {}
    for number in range(rounds + 1):
        for name, text in programs.items():
            taken = _cpu_ms(text.format(folder=str(folder)), folder)
            if number:  # The first round compiles.
                best[name] = min(taken, best.get(name, taken))
    return best


def _cpu_ms(text: str, folder: Path) -> float:
    given = dict(os.environ) | {"PYTHONPYCACHEPREFIX": str(folder / "byte-code")}
    given.pop("PYTHONDONTWRITEBYTECODE", None)
    pid = os.posix_spawn(sys.executable, [sys.executable, "-c", text], given)
    _, status, usage = os.wait4(pid, 0)
    if status:
        raise RuntimeError(f"this program failed: {text}")
    return (usage.ru_utime + usage.ru_stime) * 1000


def _has(name: str) -> bool:
    return importlib.util.find_spec(name) is not None
