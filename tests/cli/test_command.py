"""The command itself: help, completion, version, missing libraries, bench and demo."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from penstock import Queue, cli
from penstock.cli.app import app
from tests.cli.conftest import Run

COMMANDS = [
    "put", "get", "peek", "tail", "cat", "ls", "info", "groups", "seek", "move", "purge",
    "trim", "verify", "repair", "inspect", "export", "import", "convert", "bench", "top",
    "doctor", "demo", "set", "show", "labels", "resize", "pipeline", "ship", "work", "serve",
]  # fmt: skip


def command_names() -> list[str]:
    group = typer.main.get_command(app)
    return sorted(group.commands)  # type: ignore[attr-defined]


def test_every_command_of_the_design_is_there() -> None:
    assert command_names() == sorted(COMMANDS)


@pytest.mark.parametrize(
    "name",
    [
        *(name for name in COMMANDS if name not in ("groups", "labels", "pipeline")),
        *("groups create", "labels set", "pipeline run"),
    ],
)
def test_help_has_examples_and_exit_codes(run: Run, name: str) -> None:
    text = run(*name.split(), "--help").text
    assert f"$ penstock {name}" in text
    assert "Exit codes" in text


def test_no_arguments_are_a_wish_for_help(run: Run) -> None:
    assert "Usage" in run(code=2).text
    assert "penstock 0" in run("--version").text


def test_wrong_usage_is_exit_code_2(run: Run) -> None:
    run("nonsense", code=2)
    run("cat", code=2)
    run("cat", "q", "--limit", "many", code=2)


def test_python_dash_m_is_the_same_command(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "penstock"]
    done = subprocess.run([*command, "cat", tmp_path / "no"], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("penstock: ")


def test_importing_penstock_imports_no_library_of_the_command_line() -> None:
    code = "import penstock, sys; print(*({'typer', 'rich', 'penstock.cli'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_its_libraries_the_command_says_what_to_install(missing: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None\nimport penstock.cli\npenstock.cli.main()"
    code = f"{code.replace('penstock.cli.main()', 'sys.exit(penstock.cli.main())')}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2
    assert "pip install 'penstock[cli]'" in done.stderr


def test_a_mistake_of_our_own_is_not_called_a_missing_library(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "penstock.cli.app", None)
    with pytest.raises(ModuleNotFoundError):
        cli.main([])


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_there_for_the_usual_shells(shell: str) -> None:
    environment = os.environ | {"_PENSTOCK_COMPLETE": f"source_{shell}"}
    done = subprocess.run(
        [sys.executable, "-m", "penstock"], capture_output=True, text=True, env=environment
    )
    assert "_PENSTOCK_COMPLETE" in done.stdout


def test_colours_are_off_when_piped_and_with_no_color(run: Run, orders: Path) -> None:
    assert b"\x1b[" not in run("info", orders, "--no-json").out
    assert b"\x1b[" not in run("cat", "--help").out


def test_bench_measures_every_way_in_and_out(run: Run, tmp_path: Path) -> None:
    lines = run("bench", "--folder", tmp_path, "--messages", 1000).lines
    assert len(lines) == 5
    assert all(line["messages"] >= 1000 and line["per_second"] > 0 for line in lines)
    assert list(tmp_path.iterdir()) == []
    assert "messages/s" in run("bench", "-n", 1000, "--no-json").text


@pytest.mark.crash
def test_the_demo_loses_nothing_to_kill_9(run: Run) -> None:
    facts = run("demo", "--messages", 20000, "--json").one
    assert facts["ok"]
    assert (facts["missing"], facts["out_of_order"], facts["unhandled"]) == (0, 0, 0)
    assert [worker["fate"] for worker in facts["workers"]].count("kill -9") == 2
    assert facts["messages"] >= sum(worker["put"] for worker in facts["workers"])


@pytest.mark.parametrize(
    ("closed", "words", "code", "said"),
    [
        (1, ["put", "q", "twice"], 2, "standard output is closed"),
        (1, ["info", "q", "--json"], 2, "standard output is closed"),
        (2, ["verify", "q"], 0, ""),
        (2, ["cat", "missing"], 2, ""),
        (0, ["put", "q", "-"], 2, "standard input is closed"),
        (0, ["put", "q", "--lines"], 2, "standard input is closed"),
        (0, ["cat", "q"], 0, ""),
    ],
)
def test_a_command_without_one_of_the_standard_streams_says_so_or_does_without(
    tmp_path: Path, closed: int, words: list[str], code: int, said: str
) -> None:
    with Queue(tmp_path / "q") as queue:
        queue.put(b"once")
    line = f'exec "$0" -m penstock "$@" {closed}>&-'
    command = ["sh", "-c", line, sys.executable, *words]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == code
    assert said in ran.stderr
    assert "defect" not in ran.stderr
    with Queue(tmp_path / "q", read_only=True) as queue:
        assert [message.body for message in queue.scan()] == [b"once"]
