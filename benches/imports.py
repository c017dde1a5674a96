"""From `python` to a queue that is open: CPU time over an interpreter that does nothing.

penstock is measured as it is installed: in an environment of its own, with nothing else on the
path. Each program runs in processes of its own, in turn with its bare interpreter, and the best of
the rounds counts. Byte code is compiled before, as an installed package has it. Peers are those of
`benches/against/peers.txt`, in this interpreter, each left out where it is not installed.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import penstock
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
        own = installed(folder / "environment")
        programs = {"bare": (own, BARE)} | {name: (own, text) for name, text in OURS.items()}
        programs["bare, for peers"] = (sys.executable, BARE)
        for name, text in PEERS.items():
            if _has(name):
                programs[f"{name}, open"] = (sys.executable, text)
        best = measured(folder, programs, 5 if quick else ROUNDS)
        bare, bare_of_peers = best.pop("bare"), best.pop("bare, for peers")
        for name, taken in best.items():
            is_ours = name in OURS
            yield Row(case=name, ours=taken - (bare if is_ours else bare_of_peers), unit="ms",
                      peer="bare Python" if is_ours else "", peer_value=bare if is_ours else None,
                      goal=GOAL_MS if is_ours else None)  # fmt: skip


def installed(folder: Path) -> str:
    """The Python of a new environment that has penstock and nothing else."""
    venv.create(folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(penstock.__file__).parent, packages / "penstock", ignore=ignored)
    return str(folder / "bin" / "python")


def measured(folder: Path, programs: dict[str, tuple[str, str]], rounds: int) -> dict[str, float]:
    """CPU milliseconds of each program, the best of the rounds."""
    best: dict[str, float] = {}
    for number in range(rounds + 1):
        for name, (python, text) in programs.items():
            taken = _cpu_ms(python, text.format(folder=str(folder)), folder)
            if number:  # The first round compiles.
                best[name] = min(taken, best.get(name, taken))
    return best


def _cpu_ms(python: str, text: str, folder: Path) -> float:
    given = dict(os.environ) | {"PYTHONPYCACHEPREFIX": str(folder / "byte-code")}
    given.pop("PYTHONDONTWRITEBYTECODE", None)
    if python != sys.executable:
        given.pop("PYTHONPATH", None)
    pid = os.posix_spawn(python, [python, "-c", text], given)
    _, status, usage = os.wait4(pid, 0)
    if status:
        raise RuntimeError(f"this program failed: {text}")
    return (usage.ru_utime + usage.ru_stime) * 1000


def _has(name: str) -> bool:
    return importlib.util.find_spec(name) is not None
