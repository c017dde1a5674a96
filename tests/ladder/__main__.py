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
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from tests.ladder import tables
from tests.ladder.means import NotRun
from tests.ladder.rungs import RESULTS, ROOT, RUNGS, Figure, Rung


def climb(rung: Rung, size: str) -> Figure:
    try:
        return rung.run(size)
    except NotRun as missing:
        return Figure("", not_run=[str(missing)])


def save(rung: Rung, size: str, figure: Figure, seconds: float) -> Path:
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{rung.name}-{size}.json"
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True
    )
    known = {
        "rung": rung.name, "question": rung.question, "size": size, "figure": figure.text(),
        "is_passed": figure.is_passed, "seconds": round(seconds, 1),
        "when": datetime.now(UTC).isoformat(timespec="seconds"), "commit": commit.stdout.strip(),
        "kernel": platform.release(), "cores": os.cpu_count(),
    }  # fmt: skip
    path.write_text(json.dumps(known | asdict(figure), indent=1) + "\n")
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
        rung, began = RUNGS[name], time.monotonic()
        figure = climb(rung, chosen.size)
        path = save(rung, chosen.size, figure, time.monotonic() - began)
        print(f"{name:4} {rung.question}?\n     {figure.text()}  ({path.relative_to(ROOT)})")
        sys.stdout.flush()
        tables.renew()
        failed += figure.failed > 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
