"""`top`: rates, lag and leases of queues, live."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import about, show
from penstock.cli.opening import Json, command
from penstock.engine import facts as facts_of
from penstock.engine import overview
from penstock.engine.queue import Queue
from penstock.errors import PenstockError
from penstock.options import check_timeout

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

FIGURES = (">messages", ">lag", ">per s", ">leased", ">ready", ">size", ">unsynced")


def register(app: typer.Typer) -> None:
    """Adds `penstock top`."""
    command(
        app,
        "top",
        "penstock top orders",
        "penstock top /var/spool --interval 5",
        "penstock top orders --once --json",
    )(top)


def top(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="PATH", help="Queues, or folders that hold queues."),
    ] = None,
    interval: Annotated[
        float, typer.Option(min=0.05, help="Look again after this many seconds.")
    ] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Look once, then end.")] = False,
    json: Json = None,
) -> None:
    """Watch rates, lag and leases of queues; changes nothing. Ctrl-C ends it."""
    check_timeout(interval, "interval")
    rates = _Rates(paths or [Path()])
    if once:
        rates.look()
        if show.wants_json(json):
            for facts in rates.facts:
                show.emit(facts)
        else:
            out = show.console()
            out.print(rates.draw(out))
        return
    from rich.live import Live

    with Live(auto_refresh=False) as live:
        while True:
            rates.look()
            live.update(rates.draw(live.console), refresh=True)
            time.sleep(interval)


class _Rates:
    """What was seen last time, to tell rates."""

    def __init__(self, paths: list[Path]) -> None:
        self.queues = list(_open(paths))
        self.facts: list[dict[str, Any]] = []
        self.before: dict[str, tuple[float, int]] = {}

    def look(self) -> None:
        """Takes the facts anew."""
        self.facts = []
        for queue in self.queues:
            try:
                self.facts += self.rows(queue)
            except (PenstockError, OSError) as error:
                self.facts.append({"queue": str(queue.path), "error": show.said(error)})

    def rows(self, queue: Queue) -> list[dict[str, Any]]:
        """One row for the queue, one per group."""
        end, name = queue.offsets(), str(queue.path)
        first = {
            "queue": name,
            "group": None,
            "messages": facts_of.messages_from(queue.store, end.head),
            "bytes": queue.store.bytes_between(end.head, end.tail),
            "unsynced_bytes": facts_of.unsynced_bytes(queue.store, end),
            "per_second": self.rate(name, end.next_number),
        }
        rows = [first]
        for group in queue.groups():
            facts = overview.group_facts(queue.store, group)
            done = facts.get("acked") or facts.get("delivered") or 0
            rows.append(
                {
                    "queue": name,
                    "group": group,
                    "lag": facts["lag"],
                    "leased": facts["leased"],
                    "ready": facts["ready"],
                    "paused": facts["paused"],
                    "per_second": self.rate(f"{name}\0{group}", done),
                }
            )
        return rows

    def rate(self, name: str, count: int) -> float | None:
        """Per second since the last look; none at the first."""
        now = time.monotonic()
        before = self.before.get(name)
        self.before[name] = (now, count)
        return None if before is None else max(0, count - before[1]) / max(now - before[0], 1e-9)

    def draw(self, out: Console) -> RenderableType:
        """The table that a terminal shows."""
        columns = ["queue", "group", *FIGURES]
        if any(facts.get("error") or facts.get("paused") for facts in self.facts):
            columns.append("")
        rows = []
        for facts in self.facts:
            remark = facts.get("error") or ("paused" if facts.get("paused") else "")
            cells = (
                "" if facts.get("group") else show.place(facts["queue"]), facts.get("group") or "",
                _count(facts.get("messages")), _count(facts.get("lag")),
                _count(facts.get("per_second")), _count(facts.get("leased")),
                _count(facts.get("ready")), _size(facts.get("bytes")),
                _size(facts.get("unsynced_bytes")), remark,
            )  # fmt: skip
            rows.append(cells[: len(columns)])
        return show.drawn(out, columns, rows)


def _open(paths: list[Path]) -> list[Queue]:
    found = []
    for path in paths:
        try:
            found.append(Queue(path, read_only=True))
        except PenstockError:
            inside = list(about.find(path)) if path.is_dir() else []
            if not inside:
                raise
            found += [Queue(one, read_only=True) for one in inside]
    return found


def _count(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def _size(value: int | None) -> str:
    return "" if value is None else show.size(value)
