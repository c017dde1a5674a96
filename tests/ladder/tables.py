"""The tables of `docs/reliability.md`, made from the ladder's figures by this module."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

from tests.ladder.classes import KINDS, load
from tests.ladder.rungs import RESULTS, ROOT, RUNGS

PAGE = ROOT / "docs" / "reliability.md"
PLACE = re.compile(r"(<!-- ladder: begin (\w+) -->\n).*?(<!-- ladder: end -->)", re.S)


def newest(rung: str) -> dict[str, Any] | None:
    """The larger size counts, if it was run."""
    for size in ("release", "ci"):
        if (path := RESULTS / f"{rung}-{size}.json").exists():
            found: dict[str, Any] = json.loads(path.read_text())
            return found
    return None


def commits(found: dict[str, Any]) -> str:
    """Those of all runs that the figure adds up."""
    return ", ".join(dict.fromkeys(run["commit"] for run in found.get("runs", [found])))


def power_cuts(found: dict[str, Any]) -> str:
    """Ours by format, layout and level; the others beside them."""
    rows: dict[tuple[str, str], dict[str, list[int]]] = {}
    for row in found["rows"]:
        ours = " ".join(filter(None, ("penstock:", row.get("format"), row.get("layout"))))
        who = ours if row["product"] == "penstock" else row["product"]
        who = f"{who} ({row['variant']})" if row.get("variant") else who
        level = row.get("durability", "")
        level += ", the machine stays up" if row.get("boot") == "same" else ""
        counts = rows.setdefault((who, level), {})
        kind = counts.setdefault(row.get("file_system", "ext4"), [0, 0])
        kind[0] += row["failing"]
        kind[1] += row["states"]
    systems = [
        s for s in ("ext4", "ext4w", "ext4j", "xfs", "btrfs") if any(s in r for r in rows.values())
    ]
    lines = [
        f"Failing states of those tried, at {commits(found)}, kernel {found['kernel']}.", "",
        f"| | level | {' | '.join(systems)} |",
        f"| --- | --- | {'| '.join('---: ' for _ in systems)}|",
    ]  # fmt: skip
    for (who, level), counts in rows.items():
        cells = [f"{counts[s][0]} of {counts[s][1]}" if s in counts else "" for s in systems]
        lines.append(f"| {who} | {level} | {' | '.join(cells)} |")
    earlier = sorted({row["commit"] for row in found["rows"] if row.get("commit")})
    if earlier:
        lines += ["", f"The rows of other products are of earlier runs, at {', '.join(earlier)}."]
    return "\n".join(lines) + "\n"


def figures() -> str:
    """Every rung, its question and the newest figure."""
    lines = ["| rung | question | figure |", "| --- | --- | --- |"]
    for name, rung in RUNGS.items():
        found = newest(name)
        figure = "not run yet"
        if found is not None:
            parted = found["figure"].split("; not run")
            skipped = ", parts not run" if len(parted) > 1 else ""
            figure = f"{parted[0]}{skipped} ({found['size']}, {commits(found)})"
        lines.append(f"| {name} | {rung.question} | {figure} |")
    return "\n".join(lines) + "\n"


def classes() -> str:
    """Each kind of fault with its cases."""
    found = load()
    lines = ["| | kind of fault | tests | cases | failed |", "| --- | --- | --- | ---: | ---: |"]
    for kind in KINDS:
        row = found.get(kind.letter)
        counts = "not run yet | " if row is None else f"{row['tried']} | {row['failed']}"
        tests = ", ".join(f"`{name}`" for name in kind.tests)
        lines.append(f"| {kind.letter} | {kind.text} | {tests} | {counts} |")
    commits = ", ".join(sorted({row["commit"] for row in found.values()}))
    return "\n".join([*lines, "", f"Run at {commits or 'no commit'}."]) + "\n"


def page(text: str) -> str:
    def table(match: re.Match[str]) -> str:
        if match[2] == "classes":
            return f"{match[1]}{classes()}{match[3]}"
        if match[2] == "all":
            return f"{match[1]}{figures()}{match[3]}"
        found = newest(match[2])
        body = power_cuts(found) if found and found["tried"] else "Not run yet.\n"
        return f"{match[1]}{body}{match[3]}"

    return PLACE.sub(table, text)


def renew() -> None:
    PAGE.write_text(page(PAGE.read_text()))


def main() -> int:
    if "--check" in sys.argv:
        return int(page(PAGE.read_text()) != PAGE.read_text())
    renew()
    return 0


if __name__ == "__main__":
    sys.exit(main())
