"""Draws docs/images/peers.svg from docs/images/peers.json, which `make bench-peers` writes.

python -m tools.plot_peers [JSON] [SVG]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
OURS, THEIRS = "#0b6e99", "#b8c4cc"


def table(found: dict[str, Any]) -> str:
    """The rows as a Markdown table, as the README shows it."""
    lines = [
        "| queue | survives | put | get and ack | messages/s |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    for row in found["rows"]:
        name = f"**{row['name']}**" if row["name"].startswith("penstock") else row["name"]
        lines.append(
            f"| {name} | {row['survives']} | {_us(row['put_us'])} | {_us(row['get_us'])} "
            f"| {row['messages_per_second']:,} |"
        )
    return "\n".join(lines) + "\n"


def _us(value: float) -> str:
    return f"{value:.2f} µs" if value < 10 else f"{value:,.0f} µs"


def plot(found: dict[str, Any], to: Path) -> None:
    """Bars of messages per second, on a scale of powers of ten."""
    import matplotlib
    from matplotlib.figure import Figure

    matplotlib.rcParams["svg.hashsalt"] = "penstock"  # The same figures give the same bytes.
    rows = sorted(found["rows"], key=lambda row: row["messages_per_second"])
    figure = Figure(figsize=(8.5, 0.34 * len(rows) + 1.2), layout="constrained")
    axes = figure.subplots()
    names = [f"{row['name']}\nsurvives {row['survives']}" for row in rows]
    rates = [row["messages_per_second"] for row in rows]
    colours = [OURS if row["name"].startswith("penstock") else THEIRS for row in rows]
    bars = axes.barh(names, rates, color=colours)
    axes.bar_label(bars, [f"{rate:,}" for rate in rates], padding=3, fontsize=8)
    axes.set_xscale("log")
    axes.set_xlim(right=max(rates) * 4)
    axes.tick_params(axis="y", labelsize=6.5)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("messages per second: put, get and ack, one by one, 100 bytes each")
    axes.set_title("One message at a time, one process", loc="left", fontsize=11)
    figure.savefig(to, format="svg", metadata={"Date": None})


def main(arguments: list[str]) -> int:
    source = Path(arguments[0]) if arguments else IMAGES / "peers.json"
    target = Path(arguments[1]) if len(arguments) > 1 else IMAGES / "peers.svg"
    found = json.loads(source.read_text())
    plot(found, target)
    print(table(found))
    print(f"written: {target}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
