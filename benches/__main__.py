"""`python -m benches [names]`: runs benchmarks, shows a table each, writes their results."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable

from benches import harness
from benches.harness import Row


def collect(name: str, rows: Iterable[Row]) -> list[Row]:
    """All rows, each said on stderr as it comes: some take minutes."""
    found = []
    for row in rows:
        found.append(row)
        print(f"  {name}: {row.case}: {harness.shown(row.ours)} {row.unit}", file=sys.stderr)
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benches", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(harness.names())}; none: all")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, smaller queues")
    parser.add_argument("--list", action="store_true", help="say which there are, and stop")
    parser.add_argument("--gate", action="store_true", help="exit 1 if a goal is not met")
    chosen = parser.parse_args(arguments)
    if chosen.list:
        print("\n".join(harness.names()))
        return 0
    unknown = [name for name in chosen.names if name not in harness.names()]
    if unknown:
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(harness.names())}")
    missed = 0
    for name in chosen.names or harness.names():
        about = harness.machine()
        rows = collect(name, harness.load(name)(chosen.quick))
        harness.draw(
            f"{name} on {about['cpu']}, {about['cores']} cores, load {about['load_1min']}", rows
        )
        print(f"written: {harness.save(name, rows, about)}")
        if not chosen.quick:
            harness.publish(name, rows, about)
        missed += sum(row.met is False for row in rows)
    return 1 if chosen.gate and missed else 0


if __name__ == "__main__":
    sys.exit(main())
