"""The alternation at length, with a record of it: `python -m tests.originals RUNS [NAME ...]`.

NAME is a twin (`vqs-doc`, `zbus-crc`, …) or a release of Beats and a layout of it
(`beats-8.17-2-released`); without one everything is run. Prints a line of JSON for each, with every
seed that failed and its story, and writes them to `benches/results/originals.json`.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.originals.alternation import Alternation
from tests.originals.beats.beat import RELEASES
from tests.originals.beats.parties import Turns
from tests.originals.test_twins import MEMORY, PARTIES, one_run

RESULTS = Path(__file__).parent.parent.parent / "benches" / "results" / "originals.json"
TURNS = 8
BEATS = {f"beats-{r}-{layout}": (r, layout) for r in RELEASES for layout in RELEASES[r]}


def beats_run(folder: Path, name: str, seed: int) -> dict[str, int]:
    release, layout = BEATS[name]
    run = Turns(release, folder / "q", layout, seed)
    run.run(TURNS)
    killed = sum(line.endswith("killed") for line in run.story)
    return {"turns": len(run.story), "killed": killed, "messages": run.maker.serial}


def twins_run(folder: Path, name: str, seed: int) -> dict[str, int]:
    run: Alternation = one_run(folder, name, seed)
    killed = sum(line.endswith("killed") for line in run.facts.story)
    return {"turns": len(run.facts.story), "killed": killed, "messages": len(run.facts.put)}


def measure(name: str, runs: int) -> dict[str, Any]:
    """So many runs; what each of them comes to is lost or repeated messages, or an error."""
    folder = MEMORY / f"penstock-originals-{os.getpid()}"
    total = {"runs": runs, "turns": 0, "killed": 0, "messages": 0}
    failed: dict[int, str] = {}
    one = beats_run if name in BEATS else twins_run
    for seed in range(runs):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        try:
            for what, count in one(folder, name, seed).items():
                total[what] += count
        except AssertionError as error:
            failed[seed] = str(error)
    shutil.rmtree(folder, ignore_errors=True)
    return total | {"failed": failed, "day": time.strftime("%Y-%m-%d")}


def main() -> None:
    runs, names = int(sys.argv[1]), sys.argv[2:] or [*PARTIES, *BEATS]
    for name in names:
        try:
            found = measure(name, runs)
        except pytest.skip.Exception as reason:
            found = {"runs": 0, "skipped": str(reason)}
        print(json.dumps({name: found}), flush=True)
        known: dict[str, Any] = {}
        with contextlib.suppress(FileNotFoundError):
            known = json.loads(RESULTS.read_text())
        RESULTS.write_text(json.dumps(known | {name: found}, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
