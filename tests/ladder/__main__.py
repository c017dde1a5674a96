"""`python -m tests.ladder T5 --size ci`: runs rungs, says each figure, writes it as JSON and renews
the tables of the page that shows them."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.ladder import tables
from tests.ladder.means import NotRun
from tests.ladder.rungs import RESULTS, ROOT, RUNGS, Earlier, Figure, Rung

SUMS = frozenset({
    "acks", "check_s", "doubles", "failed", "failing", "inputs", "passed", "puts", "record_s",
    "skipped", "states", "unmountable", "workload_failures", "writes",
})  # fmt: skip
"""What is added up when a row stands for several runs; whatever else is the same in each."""
OF_ONE_RUN = frozenset({"commit", "examples", "seed"})


def path_of(rung: Rung, size: str) -> Path:
    return RESULTS / f"{rung.name}-{size}.json"


def before(rung: Rung, size: str) -> dict[str, Any]:
    """The runs that this one adds to: none at size `ci`, none that failed."""
    path = path_of(rung, size)
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found if size == "release" and found.get("runs") and found["is_passed"] else {}


def added(rows: Sequence[dict[str, Any]], more: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows about the same thing become one."""
    sums: dict[str, dict[str, Any]] = {}
    for row in (*rows, *more):
        same = {key: value for key, value in row.items() if not _is_summed(key, value)}
        name = json.dumps({key: same[key] for key in sorted(same.keys() - OF_ONE_RUN)})
        known = sums.setdefault(name, {})
        for key, value in row.items():
            if isinstance(value, dict):
                known[key] = dict(Counter(known.get(key, {})) + Counter(value))
            elif _is_summed(key, value) and key in known:
                known[key] += value
            else:
                known[key] = value
    return [*sums.values()]


def _is_summed(key: str, value: object) -> bool:
    return isinstance(value, dict) or (key in SUMS and isinstance(value, int | float))


def one_run(rung: Rung, size: str) -> Path:
    """Runs it and saves what it found, with what the runs before it did."""
    known, began = before(rung, size), time.monotonic()
    try:
        figure = rung.run(size, Earlier(
            len(known.get("runs", [])), known.get("rows", []), known.get("left", {})
        ))  # fmt: skip
    except NotRun as missing:
        figure = Figure("", not_run=[str(missing)])
    RESULTS.mkdir(parents=True, exist_ok=True)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()
    this = {
        "commit": commit, "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(time.monotonic() - began, 1), "tried": figure.tried,
        "failed": figure.failed,
    }  # fmt: skip
    if known and figure.tried:
        ran = {row["title"] for row in [*known["rows"], *figure.rows] if "title" in row}
        left = {name: why for name, why in figure.left.items() if name not in ran}
        figure = replace(
            figure, tried=figure.tried + known["tried"], rows=added(known["rows"], figure.rows),
            left=left,
        )  # fmt: skip
    told = {
        "rung": rung.name, "question": rung.question, "size": size, "figure": figure.text(),
        "is_passed": figure.is_passed, "commit": commit, "kernel": platform.release(),
        "cores": os.cpu_count(), "runs": [*known.get("runs", []), this],
    }  # fmt: skip
    path = path_of(rung, size)
    path.write_text(json.dumps(told | asdict(figure), indent=1) + "\n")
    return path


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.ladder", description=__doc__)
    parser.add_argument("rungs", nargs="*", help=f"of {', '.join(RUNGS)}; none: all")
    parser.add_argument("--size", choices=("ci", "release"), default="ci")
    chosen = parser.parse_args(arguments)
    if unknown := [name for name in chosen.rungs if name not in RUNGS]:
        parser.error(f"no rung {', '.join(unknown)}; there are {', '.join(RUNGS)}")
    failed = 0
    for name in chosen.rungs or RUNGS:
        rung = RUNGS[name]
        path = one_run(rung, chosen.size)
        found = json.loads(path.read_text())
        print(f"{name:4} {rung.question}?\n     {found['figure']}  ({path.relative_to(ROOT)})")
        sys.stdout.flush()
        tables.renew()
        failed += found["failed"] > 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
