"""Measures, and writes the figures into the pages that show them.

    python -m tools.bench_pages imports tasks

runs `python -m benches` with these names, and fills what stands between `<!-- imports -->` or
`<!-- tasks -->` and `<!-- end -->` on their pages from the results. `--no-run` only fills. Tasks
are measured in an environment of their own, with Debian's servers in `build/debian`: both are made
when they are missing.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benches.harness import RESULTS, shown
from tools import servers

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"


def imports(found: dict[str, Any]) -> str:
    """Milliseconds over bare Python, the quickest first."""
    rows = sorted(found["rows"], key=lambda row: float(row["ours"]))
    lines = [
        f"CPU time over an interpreter that does nothing, best of 20 rounds in turn. {on(found)} "
        "Other work on the machine makes all of them larger alike: compare the rows.",
        "",
        "| | ms over bare Python |",
        "| --- | ---: |",
    ]
    for row in rows:
        name = f"**penstock**: {row['case']}" if row["peer"] else f"{row['case']}".replace("_", "")
        lines.append(f"| {name} | {max(0.0, row['ours']):.1f} |")
    return "\n".join(lines)


def tasks(found: dict[str, Any]) -> str:
    """A column for each broker."""
    cases: dict[str, dict[str, str]] = {}
    for row in found["rows"]:
        case, _, peer = row["case"].rpartition(", beside ")
        unit = " ms" if row["unit"] == "ms" else ""
        cells = cases.setdefault(case, {"penstock": f"{shown(row['ours'])}{unit}"})
        cells[peer] = f"{shown(row['peer_value'])}{unit}"
    names = list(next(iter(cases.values()), {"penstock": ""}))
    lines = [
        f"{on(found)} penstock `interval`, Redis with its append-only file synced every second, "
        "RabbitMQ with durable queues and persistent messages. Four rounds in turn. Rates are the "
        "best of the rounds, 1,000 tasks each; times to start are those of all single tasks, 250 a "
        "round, and 20 a round of the last two, which take so long.",
        "",
        "| " + " | ".join(["", *names]) + " |",
        "| --- |" + " ---: |" * len(names),
    ]
    for case, cells in cases.items():
        lines.append("| " + " | ".join([case, *(cells.get(name, "") for name in names)]) + " |")
    return "\n".join(lines)


def log_records(found: dict[str, Any]) -> str:
    """A column for each kind of queue."""
    lines = [f"{on(found)} Best of five rounds in turn, 10,000 records each.", ""]
    lines += ["| | penstock | multiprocessing.Queue |", "| --- | ---: | ---: |"]
    for row in found["rows"]:
        unit = " µs" if row["unit"] == "us" else ""
        ours, peer = (f"{shown(row[key])}{unit}" for key in ("ours", "peer_value"))
        case = row["case"] if unit else f"{row['case']}, a second"
        lines.append(f"| {case} | {ours} | {peer} |")
    return "\n".join(lines)


def on(found: dict[str, Any]) -> str:
    """The machine, in a sentence."""
    machine = found["machine"]
    return (
        f"{machine['cpu']}, {machine['cores']} cores, Linux {machine['kernel']}, Python "
        f"{machine['python']}, load {machine['load_1min']}, {machine['when'][:10]}."
    )


PAGES: dict[str, tuple[Path, Callable[[dict[str, Any]], str]]] = {
    "imports": (DOCS / "figures.md", imports),
    "log_records": (DOCS / "howto" / "logging.md", log_records),
    "tasks": (DOCS / "howto" / "celery.md", tasks),
}


def python_for(name: str) -> tuple[str, dict[str, str]]:
    """The interpreter that measures, and its environment."""
    if name != "tasks":
        return sys.executable, dict(os.environ)
    for server in ("redis", "rabbitmq"):
        try:
            servers.fetch(server)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"{server}: left out unless it is installed: {error}", file=sys.stderr)
    folder = ROOT / "build" / "tasks-env"
    own = str(folder / "bin" / "python")
    venv.create(folder, with_pip=True)
    wanted = ROOT / "benches" / "against" / "tasks.txt"
    pip = [own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", str(wanted)]
    subprocess.run(pip, check=True)
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    return own, dict(os.environ) | {"PYTHONPATH": paths}


def filled(page: str, name: str, text: str) -> str:
    """The page with `text` in its place."""
    found, count = re.subn(
        rf"<!-- {name} -->\n.*?<!-- end -->",
        lambda _: f"<!-- {name} -->\n{text}\n<!-- end -->",
        page,
        flags=re.DOTALL,
    )
    if count != 1:
        raise SystemExit(f"the page has {count} places for {name}, expected one")
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.bench_pages", description=__doc__)
    parser.add_argument("names", nargs="+", choices=sorted(PAGES))
    parser.add_argument("--no-run", action="store_true", help="only fill the pages")
    chosen = parser.parse_args(arguments)
    for name in chosen.names:
        if not chosen.no_run:
            python, environment = python_for(name)
            subprocess.run([python, "-m", "benches", name], check=True, env=environment)
        page, drawn = PAGES[name]
        text = drawn(json.loads((RESULTS / f"{name}.json").read_text()))
        page.write_text(filled(page.read_text(), name, text))
        print(f"written: {page}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
