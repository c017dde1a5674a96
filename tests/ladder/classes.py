"""The kinds of faults that were ever found, and the tests of each.

`python -m tests.ladder.classes [LETTERS]` runs the quick tests of each kind and writes how many
cases there were, and how many failed, to `classes.json` among the ladder's figures; `tables` makes
the table of the page from it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from typing import Any

from tests.ladder.rungs import RESULTS, ROOT, Figure, pytest_run

PATH = RESULTS / "classes.json"
OPENERS, ENVIRONMENTS = "tests/engine/test_openers.py", "tests/ladder/test_environments.py"
LEFT, CLOCKS = "tests/crash/test_left_behind.py", "tests/engine/test_clocks.py"
STRANGERS, DELIVERY = "tests/disk/test_strangers.py", "tests/engine/test_delivery.py"


@dataclass(frozen=True)
class Kind:
    """One kind of fault, and where it is looked for."""

    letter: str
    text: str
    tests: tuple[str, ...]
    words: str = ""
    """Which of the tests, as pytest's `-k` says it; empty: all."""


KINDS = [
    Kind("a", "two openers see different boot ids, or none", (OPENERS, ENVIRONMENTS),
         "boot or proc or control_block"),
    Kind("b", "a busy group is taken for idle; the wall clock jumps", (CLOCKS,)),
    Kind("c", "a sync fails, whichever it is",
         ("tests/crash/test_each_sync.py", "tests/crash/test_after_a_failed_sync.py",
          "tests/engine/test_syncing.py", "tests/ladder/test_failing_syncs.py")),
    Kind("d", "one rotten byte, and a kill", (LEFT,), "rotten"),
    Kind("e", "words of the control block are wrong after a kill", (LEFT,),
         "word or tail or control"),
    Kind("f", "a damaged message comes again", (DELIVERY,), "damaged"),
    Kind("g", "a file is cut short under whoever has it mapped",
         ("tests/native/test_cut_short.py",)),
    Kind("h", "a signal handler raises at any moment; a holder is frozen", (OPENERS,),
         "signal or ctrl_c or exception or frozen"),
    Kind("i", "a fork with a bound `put`, or while a thread opens", (OPENERS, ENVIRONMENTS),
         "fork"),
    Kind("j", "a neighbour keeps the interpreter", (OPENERS,), "interpreter"),
    Kind("k", "a request for a sync is lost; a maintenance thread meets an error",
         ("tests/engine/test_maintenance.py",)),
    Kind("l", "a consumer dies beside a backlog", (DELIVERY,), "dead or dies or died"),
    Kind("m", "another time namespace", (ENVIRONMENTS,), "time"),
    Kind("n", "root among the owner's runs, any umask, a shared folder",
         (STRANGERS, ENVIRONMENTS), "root or umask or group_writes"),
    Kind("o", "equal process ids in two containers", (ENVIRONMENTS,), "pid"),
    Kind("p", "a close while a thread is inside gives nobody else's lock back", (OPENERS,),
         "slot or closed"),
    Kind("q", "a power cut, by recorded stores",
         ("tests/crash/test_power_cut.py", "tests/crash/test_power_cut_vqs.py",
          "tests/crash/test_power_cut_beats.py", "tests/crash/test_power_cut_chains.py")),
    Kind("r", "the disk goes back while the machine stays up", (LEFT,), "older or back or stale"),
    Kind("s", "a delay behind what a filter rejects, or before the clock went back",
         (DELIVERY, CLOCKS), "delay"),
    Kind("t", "a file call fails, or does half of what it should",
         ("tests/crash/test_failing_calls.py",)),
    Kind("u", "a cursor above the recovered tail; a list over a power cut", (LEFT,),
         "cursor or list or beyond"),
    Kind("v", "a file is gone, emptied, cut or changed",
         ("tests/ladder/test_each_file.py", "tests/ladder/test_fuzz.py",
          "tests/crash/test_gone_after_a_kill.py")),
    Kind("w", "keys, secrets, forged frames",
         ("tests/engine/test_keys.py", "tests/engine/test_dead_letters.py")),
    Kind("x", "links, pipes, strangers in a folder; what a terminal would obey",
         (STRANGERS, "tests/cli/test_safe_text.py")),
    Kind("y", "memory runs out; dead letters that name no source",
         ("tests/ladder/test_memory.py", DELIVERY), "memory or refused or redrive or source"),
]  # fmt: skip


def tried(kind: Kind) -> dict[str, Any]:
    """Runs its tests."""
    figure = Figure("cases")
    pytest_run(figure, [*(["-k", kind.words] if kind.words else []), *kind.tests])
    head = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(head, cwd=ROOT, capture_output=True, text=True).stdout.strip()
    return asdict(kind) | {
        "tried": figure.tried, "failed": figure.failed, "not_run": figure.not_run,
        "failing": [name for row in figure.rows for name in row["failing"]], "commit": commit,
    }  # fmt: skip


def load() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(PATH.read_text()) if PATH.exists() else {}
    return found


def main() -> int:
    chosen = [kind for kind in KINDS if not sys.argv[1:] or kind.letter in sys.argv[1:]]
    failed = 0
    for kind in chosen:
        known = load() | {kind.letter: tried(kind)}
        PATH.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n")
        row = known[kind.letter]
        failed += row["failed"] or not row["tried"]
        print(f"{kind.letter}  {row['failed']:3} of {row['tried']:4}  {kind.text}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
