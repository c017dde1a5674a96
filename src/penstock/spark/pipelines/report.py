"""Pages in HTML: tables, and plots drawn by matplotlib as SVG inside the page; the audit's page."""

from __future__ import annotations

import html as escaping
import io
from collections.abc import Mapping, Sequence
from typing import Any

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>penstock: {title}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto }}
table {{ border-collapse: collapse; margin: .5rem 0 1.5rem }}
td, th {{ padding: .2rem .8rem; border-bottom: 1px solid #ddd; text-align: left }}
td.n {{ text-align: right; font-variant-numeric: tabular-nums }}
.ok {{ color: #176f2c }} .bad {{ color: #b3261e }} svg {{ max-width: 100%; height: auto }}
</style></head><body>
<h1>{title}: <span class="{state}">{verdict}</span></h1>
{body}
</body></html>
"""


def html(facts: Mapping[str, Any]) -> str:
    """The report as an HTML page."""
    parts = [
        table([{
            "messages": facts["messages"], "bytes": facts["bytes"], "first": facts["first"],
            "last": facts["last"], "corrupt": facts["corrupt"], "unchecked": facts["unchecked"],
        }])
    ]  # fmt: skip
    for title, key in (
        ("Damage", "damage"), ("Missing numbers", "gaps"), ("Ids more than once", "duplicates"),
        ("Queues", "queues"), ("Tags", "tags"),
    ):  # fmt: skip
        if facts[key]:
            parts += [f"<h2>{title}</h2>", table(facts[key])]
    if facts["hours"]:
        parts += ["<h2>Messages per hour</h2>", _plot_hours(facts["hours"])]
    if facts["tags"]:
        parts += ["<h2>Messages per tag</h2>", plot_tags(facts["tags"][:20])]
    state, verdict = ("ok", "all is well") if facts["ok"] else ("bad", "something is wrong")
    return page("Audit", state, verdict, "\n".join(parts))


def page(title: str, state: str, verdict: str, body: str) -> str:
    """A whole page; `state` is `ok` or `bad`."""
    return PAGE.format(title=title, state=state, verdict=verdict, body=body)


def escaped(text: str) -> str:
    """Text that stays text inside a page."""
    return escaping.escape(text)


def _cell(value: object) -> str:
    if isinstance(value, int):
        return f'<td class="n">{value:,}</td>'
    return f"<td>{escaping.escape('-' if value is None else str(value))}</td>"


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows under the names of the first one."""
    head = "".join(f"<th>{escaping.escape(name)}</th>" for name in rows[0])
    body = "".join(f"<tr>{''.join(_cell(v) for v in row.values())}</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def figure(height: float) -> tuple[Any, Any]:
    """A figure and its axes."""
    from matplotlib.figure import Figure  # no pyplot: no windows, no global state

    found = Figure(figsize=(9, height), layout="constrained")
    return found, found.subplots()


def svg(figure: Any) -> str:
    """The figure as text that a page can hold."""
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None})
    text = out.getvalue()
    return text[text.index("<svg") :]


def _plot_hours(rows: Sequence[Mapping[str, Any]]) -> str:
    drawn, axes = figure(3)
    known = [row for row in rows if row["hour"] is not None]
    hours, counts = [row["hour"] for row in known], [row["messages"] for row in known]
    axes.bar(hours, counts, width=1 / 26, align="edge")  # an hour is what follows its name
    axes.set_ylabel("messages")
    axes.set_title("Messages per hour, UTC", loc="left")
    drawn.autofmt_xdate()
    return svg(drawn)


def plot_tags(rows: Sequence[Mapping[str, Any]]) -> str:
    """Messages per tag, as SVG."""
    drawn, axes = figure(1 + 0.25 * len(rows))
    names = ["(none)" if row["tag"] is None else str(row["tag"])[:40] for row in rows]
    names = [name.replace("$", r"\$") for name in names]  # a dollar would begin a formula
    axes.barh(names, [row["messages"] for row in rows])
    axes.invert_yaxis()
    axes.set_xlabel("messages")
    axes.set_title("Messages per tag", loc="left")
    return svg(drawn)
