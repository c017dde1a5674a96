"""Draws docs/images/growth.svg and .png from benches/results/growth.json.

python -m benches growth && python -m tools.plot_growth
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "benches" / "results" / "growth.json"
IMAGES = ROOT / "docs" / "images"
COLOURS = {"put": "#0b6e99", "get": "#d1741f", "get and ack": "#7a4f9a"}

Lines = dict[str, dict[str, list[tuple[int, float]]]]


def lines(rows: list[dict[str, object]]) -> Lines:
    """By what grows, then by what is done: `(size, ns)`."""
    found: Lines = {}
    for row in rows:
        match = re.fullmatch(r"(.+) ([\d,]+): (.+)", str(row["case"]))
        if match is None:
            raise SystemExit(f"{SOURCE}: {row['case']!r} is no point of a line")
        grows, size, what = match.groups()
        point = int(size.replace(",", "")), float(str(row["ours"]))
        found.setdefault(grows, {}).setdefault(what, []).append(point)
    return found


def plot(found: Lines, to: list[Path]) -> None:
    """One small plot for each thing that grows, all with the same kind of axes from 0 on."""
    import matplotlib
    from matplotlib.figure import Figure

    matplotlib.rcParams["svg.hashsalt"] = "penstock"  # The same figures give the same bytes.
    columns = 3
    figure = Figure(figsize=(9, 2.4 * -(-len(found) // columns)), layout="constrained")
    all_axes = list(figure.subplots(-(-len(found) // columns), columns, squeeze=False).flat)
    for axes in all_axes:
        axes.set_axis_off()
    for axes, (grows, by_what) in zip(all_axes, found.items(), strict=False):
        axes.set_axis_on()
        for what, points in by_what.items():
            axes.plot(*zip(*points, strict=True), marker="o", markersize=3, label=what,
                      color=COLOURS.get(what))  # fmt: skip
        axes.set_xscale("log")
        axes.set_ylim(bottom=0)
        axes.set_title(grows, loc="left", fontsize=9)
        axes.set_ylabel("ns a message", fontsize=7)
        axes.tick_params(labelsize=7)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(fontsize=6, frameon=False)
    for path in to:
        no_date = {"Date": None} if path.suffix == ".svg" else {}
        figure.savefig(path, format=path.suffix[1:], metadata=no_date, dpi=150)


def main() -> int:
    found = json.loads(SOURCE.read_text())
    targets = [IMAGES / "growth.svg", IMAGES / "growth.png"]
    plot(lines(found["rows"]), targets)
    print("written:", *targets, file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
