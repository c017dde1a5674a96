"""What people see: panels of commands, completion, times with their zone, narrow terminals."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from penstock import Queue
from penstock.cli import demo, panels, show
from penstock.cli.app import app
from penstock.errors import StorageError
from tests.cli.conftest import Run

NOON_NS = 1_750_000_000_123_000_000


@pytest.fixture
def kolkata(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A zone of five and a half hours, and no summer time."""
    monkeypatch.setenv("TZ", "IST-5:30")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_every_command_has_a_panel_and_a_short_line() -> None:
    shown = {name: text for rows in panels.PANELS.values() for name, text in rows.items()}
    group = typer.main.get_command(app)
    assert set(shown) == set(group.commands)  # type: ignore[attr-defined]
    assert all(len(text) <= 60 for text in shown.values())


def test_help_shows_the_panels(run: Run) -> None:
    text = run("--help").text
    assert [text.index(f"─ {panel} ─") for panel in panels.PANELS] == sorted(
        text.index(f"─ {panel} ─") for panel in panels.PANELS
    )


def complete(folder: Path, line: str) -> list[str]:
    """What bash would offer at the end of `line`."""
    environment = os.environ | {
        "_PENSTOCK_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split(" ")) - 1),
    }
    code = "import sys; from penstock.cli import main; sys.argv[0] = 'penstock'; main()"
    ran = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=folder, capture_output=True, check=True
    )
    return ran.stdout.decode().split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("penstock cat or", ["orders"]),
        ("penstock get orders --group b", ["billing"]),
        ("penstock put new x --format z", ["zbus"]),
        ("penstock groups delete orders a", ["audit"]),
        ("penstock pipeline run br", ["bronze"]),
        ("penstock cat nowhere/", []),
    ],
)
def test_tab_completes_what_is_there(orders: Path, line: str, offered: list[str]) -> None:
    assert complete(orders.parent, line) == offered


def test_grep_prints_only_bodies_that_match(run: Run, orders: Path) -> None:
    for command in (["cat"], ["tail"], ["peek", "--limit", 9]):
        found = run(command[0], orders, *command[1:], "--grep", "body [13]$").lines
        assert [line["id"] for line in found] == ["o-1", "o-3"], command
    assert run("tail", orders, "-n", 1, "--grep", "[02]$").one["id"] == "o-2"
    assert "a regular expression" in run("cat", orders, "--grep", "(", code=2).err


def test_the_last_messages_are_counted_behind_the_filter(run: Run, orders: Path) -> None:
    found = run("tail", orders, "-n", 2, "--tags", "us.#").lines
    assert [line["id"] for line in found] == ["o-1", "o-3"]


def test_json_has_the_text_where_the_body_is_text(run: Run, tmp_path: Path) -> None:
    with Queue(tmp_path / "q") as queue:
        queue.put_many(["größer".encode(), b"\xff\x00"])
    text, binary = run("cat", tmp_path / "q").lines
    assert (text["text"], text["body"]) == ("größer", "Z3LDtsOfZXI=")
    assert "text" not in binary
    assert binary["body"] == "/wA="


def test_no_character_of_a_text_ends_a_line_of_json(run: Run, tmp_path: Path) -> None:
    text = "a\x85b\u2028c\u2029d\ne\x1cf"
    with Queue(tmp_path / "q") as queue:
        queue.put(text.encode())
    assert run("cat", tmp_path / "q").one["text"] == text


def test_count_is_still_taken_for_limit(run: Run, orders: Path) -> None:
    assert len(run("peek", orders, "--count", 2).lines) == 2
    assert len(run("tail", orders, "--count", 3).lines) == 3
    assert len(run("get", orders, "--count", 4).lines) == 4
    assert "--count" not in run("get", "--help").text


@pytest.mark.usefixtures("kolkata")
def test_times_are_local_with_their_zone_and_utc_when_asked(run: Run, tmp_path: Path) -> None:
    with Queue(tmp_path / "q") as queue:
        queue.put(b"x", timestamp_ns=NOON_NS)
    assert "2025-06-15 20:36:40.123+05:30" in run("cat", tmp_path / "q", "--no-json").text
    assert "2025-06-15 15:06:40.123Z" in run("cat", tmp_path / "q", "--no-json", "--utc").text
    assert "2025-06-15 20:36:40.123+05:30" in run("cat", tmp_path / "q", "--no-json").text


@pytest.mark.usefixtures("kolkata")
def test_a_time_that_was_shown_is_taken_as_a_place(run: Run, tmp_path: Path) -> None:
    with Queue(tmp_path / "q") as queue:
        queue.put(b"before", timestamp_ns=NOON_NS - 10**9)
        queue.put(b"then", timestamp_ns=NOON_NS)
    shown = show.moment(NOON_NS)
    assert run("cat", tmp_path / "q", "--from", shown).one["text"] == "then"


def test_people_see_paths_from_here_on(
    run: Run, orders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(orders.parent)
    assert run("info", "orders", "--no-json").text.startswith("path        orders\n")
    for command in (["ls"], ["top", "orders", "--once"]):
        assert str(orders.parent) not in run(*command, "--no-json").text
    assert run("ls", orders.parent, "--no-json").text.split().count("orders") == 1


def on_a_terminal(folder: Path, command: str, columns: int = 80) -> list[str]:
    from tests.cli import transcripts

    return transcripts.show(command, folder, columns).splitlines()


@pytest.mark.parametrize(
    "command",
    [
        "penstock top orders --once",
        "penstock info orders",
        "penstock ls",
        "penstock groups list orders",
        "penstock bench --messages 1000",
    ],
)
def test_nothing_is_cut_or_folded_at_80_columns(orders: Path, command: str) -> None:
    lines = on_a_terminal(orders.parent, command)
    text = "\n".join(lines)
    drawn = [line for line in lines if not line.startswith("path ")]  # As long as the path is.
    assert max(map(len, drawn)) <= 80
    assert "…" not in text, text
    headed = [line for line in lines if re.search(r"\b(queue|segment|name|path|what)\b", line)]
    assert headed, text


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("penstock top orders --once", "messages  5"),
        ("penstock info orders", "segment   00000000000000000000.seg"),
        ("penstock ls", "format    penstock"),
        ("penstock groups list orders", "name     billing"),
    ],
)
def test_a_narrow_terminal_shows_lists_in_place_of_tables(
    orders: Path, command: str, said: str
) -> None:
    lines = on_a_terminal(orders.parent, command, columns=40)
    text = "\n".join(lines)
    assert said in [line.rstrip() for line in lines], text
    assert "…" not in text, text
    assert "─" not in text, text


def test_a_demo_takes_as_long_as_its_workers_get_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "STALL_S", 0.0)
    course, steps = demo._Demo(tmp_path / "queue", 1), itertools.count()
    monkeypatch.setattr(course, "counted", lambda: next(steps))
    course.wait(lambda: next(steps) > 20)
    monkeypatch.setattr(course, "counted", lambda: 7)
    with pytest.raises(StorageError, match="no process of the demo has put or acked anything"):
        course.wait(lambda: False)
