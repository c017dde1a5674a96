"""Names and bodies that others chose: nothing in them reaches the terminal as a command to it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock import Queue
from penstock.cli import app, show

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\x7f\u202e"


def obeyed(text: str) -> list[str]:
    return [char for char in text if not char.isprintable() and char not in "\n\t"]


@pytest.mark.parametrize("how", ["--json", "--no-json"])
def test_no_command_sends_what_a_terminal_would_obey(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    folder = tmp_path / f"q{EVIL}"
    with Queue(folder) as queue:
        queue.put(EVIL.encode(), tag=EVIL, id=EVIL, headers={"h": EVIL})
    (tmp_path / "no\x1b[31m\udcff").mkdir()
    for words in (
        ["cat", str(folder)], ["info", str(folder)], ["ls", str(tmp_path)], ["verify", str(folder)],
        ["groups", "list", str(folder)], ["info", str(tmp_path / "no\x1b[31m\udcff")],
        ["get", str(folder), "--timeout", "0"], ["stats", str(folder)],
    ):  # fmt: skip
        app.run([*words, how])
        out, err = capsys.readouterr()
        assert not obeyed(out), (words, out)
        assert not obeyed(err), (words, err)


def test_an_object_is_the_same_when_it_is_read_back(capsys: pytest.CaptureFixture[str]) -> None:
    show.emit({"name": EVIL})
    assert json.loads(capsys.readouterr().out) == {"name": EVIL}


def test_lines_and_tabs_of_our_own_stay() -> None:
    assert show.safe("a\tb\nc\x1b") == "a\tb\nc\\x1b"
