"""The runs of pipelines, from the records that they leave: as rows, and as one page."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from penstock.errors import MissingFileError
from penstock.spark.pipelines import report

Row = dict[str, Any]


def runs(folder: str | Path) -> list[Row]:
    """The records of all runs, the newest first. Files that are none are passed over."""
    where = Path(folder)
    if not where.is_dir():
        raise MissingFileError(where, "no folder with records of runs; --runs says where it is")
    return sorted(_records(where), key=lambda one: str(one["started"]), reverse=True)


def _records(folder: Path) -> Iterator[Row]:
    for path in folder.glob("*.json"):
        try:
            found = json.loads(path.read_bytes())
        except (OSError, ValueError):
            continue
        if isinstance(found, dict) and {"id", "pipeline", "started", "outcome"} <= found.keys():
            yield found


def row(record: Row) -> Row:
    """One run as a line of a table. A run that was killed stays `running`: `seen` tells."""
    lag = record.get("lag") or {}
    return {
        "started": str(record["started"])[:19],
        "pipeline": record["pipeline"],
        "outcome": record["outcome"],
        "rows": record.get("rows"),
        "seconds": record.get("seconds"),
        "lag": _total(lag, "messages"),
        "lag_bytes": _total(lag, "bytes"),
        "waited_s": _most(lag, "seconds"),
        "seen": str(record.get("updated", record["started"]))[:19],
        "error": record.get("error") or "",
    }


def _known(lag: dict[str, Row], name: str) -> list[float] | None:
    """The value of every queue; none where one of them does not know it."""
    found = [one.get(name) for one in lag.values()]
    return None if not found or None in found else [float(v) for v in found if v is not None]


def _total(lag: dict[str, Row], name: str) -> int | None:
    known = _known(lag, name)
    return None if known is None else int(sum(known))


def _most(lag: dict[str, Row], name: str) -> float | None:
    known = _known(lag, name)
    return None if known is None else round(max(known), 1)


def html(records: Sequence[Row]) -> str:
    """All runs on one page, with rows per run as a plot for each pipeline."""
    parts = [f"<p>{len(records)} runs</p>"]
    for name in sorted({str(one["pipeline"]) for one in records}):
        own = [one for one in records if one["pipeline"] == name]
        parts += [f"<h2>{report.escaped(name)}</h2>"]
        if len(own) > 1:
            parts.append(_plot(own[:100]))
        parts.append(report.table([row(one) for one in own[:100]]))
    bad = [one for one in records if one["outcome"] in ("failed", "found faults")]
    state, verdict = ("bad", f"{len(bad)} failed") if bad else ("ok", "none failed")
    return report.page("Runs", state, verdict, "\n".join(parts))


def _plot(records: Sequence[Row]) -> str:
    drawn, axes = report.figure(2)
    counts = [int(one.get("rows") or 0) for one in reversed(records)]
    axes.bar(range(len(counts)), counts)
    axes.set_ylabel("rows")
    axes.set_xlabel("runs, the newest on the right")
    return report.svg(drawn)
