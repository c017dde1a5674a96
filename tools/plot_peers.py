"""Puts the figures of `make bench-peers` into the README: the table, and docs/images/peers.*.

python -m tools.plot_peers [JSON], else benches/results/peers.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
README, IMAGES = ROOT / "README.md", ROOT / "docs" / "images"
RESULT = ROOT / "benches" / "results" / "peers.json"
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
    no_date = {"Date": None} if to.suffix == ".svg" else {}
    figure.savefig(to, format=to.suffix[1:], metadata=no_date, dpi=150)


def section(found: dict[str, Any]) -> str:
    """What the README has between its markers."""
    machine = found["machine"]
    return (
        "<!-- peers: begin -->\n"
        f"One process puts messages of {found['body_bytes']} bytes one by one, then gets and acks "
        f"them one by one. Best of {found.get('rounds', 25)} short rounds, in which the queues "
        f"take turns, on {machine['cores']} cores of an {machine['cpu']} (Linux "
        f"{machine['kernel']}, Python {machine['python']}) with a load of "
        f"{machine['load_1min']}: the order is what matters.\n\n{table(found)}\n"
        "A queue that survives more costs more: compare rows that survive the same. `put_many` and "
        "`get_many` are several times faster in penstock.\n<!-- peers: end -->"
    )


def in_page(page: str, found: dict[str, Any]) -> str:
    """The page with these figures."""
    begin, end = "<!-- peers: begin -->", "<!-- peers: end -->"
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    return before + section(found) + after


def main(arguments: list[str]) -> int:
    found = json.loads((Path(arguments[0]) if arguments else RESULT).read_text())
    for kind in ("svg", "png"):
        plot(found, IMAGES / f"peers.{kind}")
    (IMAGES / "peers.json").write_text(json.dumps(found, indent=1) + "\n")
    README.write_text(in_page(README.read_text(), found))
    print(table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
