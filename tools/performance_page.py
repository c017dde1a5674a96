"""Writes the figures of `benches/results/` into docs/performance.md, between its markers.

python -m benches foundation delivery && python -m tools.performance_page
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benches.against.crossings import FIGURES
from benches.against.peers import KILL, MEMORY, POWER
from benches.harness import shown

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "performance.md"
RESULTS = ROOT / "benches" / "results"


def table(found: dict[str, Any]) -> str:
    """The rows of one benchmark, with the machine that they were measured on."""
    lines = [
        about(found["machine"]) + ":",
        "",
        "| case | ours | beside | ratio | floor | x floor | goal |",
        "| --- | ---: | --- | ---: | --- | ---: | --- |",
    ]
    lines += [line(row) for row in found["rows"]]
    return "\n".join(lines) + "\n"


def line(row: dict[str, Any]) -> str:
    """One row."""
    peer = f"{row['peer']} {shown(row['peer_value'])}" if row["peer"] else ""
    floor = f"{row['floor']} {shown(row['floor_value'])}" if row["floor"] else ""
    met = {None: "", True: "met", False: "missed"}[row["met"]]
    ratio = shown(row["ratio"]) + " x" if row["ratio"] else ""
    times = shown(row["floor_ratio"]) + " x" if row["floor_ratio"] else ""
    ours = f"{shown(row['ours'])} {row['unit']}"
    return f"| {row['case']} | {ours} | {peer} | {ratio} | {floor} | {times} | {met} |"


def crossings(found: dict[str, Any]) -> str:
    """A row for each queue; of those that survive as much, the quickest stands out."""
    rows = found["rows"]
    heads = ["queue", "survives", *FIGURES.values()]
    lines = [
        f"µs a message of 100 bytes, the best of {found['rounds']} rounds in turn; of the queues "
        "that survive as much, the quickest is bold. " + about(found["machine"]) + ":",
        "",
        f"| {' | '.join(heads)} |",
        f"| --- | --- |{' ---: |' * len(FIGURES)}",
    ]
    for row in rows:
        same = [other for other in rows if _class(other) == _class(row)]
        cells = []
        for name in FIGURES:
            least = min((other[name] for other in same if name in other), default=None)
            text = shown(row.get(name))
            cells.append(f"**{text}**" if text and row[name] == least else text)
        lines.append(f"| {' | '.join([row['name'], row['survives'], *cells])} |")
    return "\n".join(lines) + "\n"


def _class(row: dict[str, Any]) -> str:
    return str(row["survives"]) if row["survives"] in (MEMORY, POWER) else KILL


def about(machine: dict[str, Any]) -> str:
    """The machine, in a few words."""
    return (
        f"{machine['cpu']}, {machine['cores']} cores, Linux {machine['kernel']}, Python "
        f"{machine['python']}, load {machine['load_1min']}, {machine['when'][:10]}"
    )


TABLES: dict[str, Callable[[dict[str, Any]], str]] = {"crossings": crossings}
"""Tables of results that have no goals."""


def filled(page: str, results: Path = RESULTS) -> str:
    """The page with the tables of all benchmarks that it has a place for."""

    def replace(match: re.Match[str]) -> str:
        path = results / f"{match[1]}.json"
        if not path.exists():
            return match[0]
        text = TABLES.get(match[1], table)(json.loads(path.read_text()))
        return f"<!-- {match[1]} -->\n{text}<!-- end -->"

    return re.sub(r"<!-- (\w+) -->\n.*?<!-- end -->", replace, page, flags=re.DOTALL)


def main() -> int:
    PAGE.write_text(filled(PAGE.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
