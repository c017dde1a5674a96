"""docs/cli.md and docs/convert.md show what the command really does; the former every command."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli import transcripts
from tests.cli.test_command import COMMANDS

PAGE = Path(__file__).parent.parent.parent / "docs" / "cli.md"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cli.md", "convert.md"])
def test_every_transcript_is_true(tmp_path: Path, name: str) -> None:
    for step in transcripts.steps((PAGE.parent / name).read_text()):
        found = transcripts.show(step.command, tmp_path)
        assert transcripts.matches(step.shown, found), f"$ {step.command}\n{found}"


def test_every_command_has_a_section_and_a_transcript() -> None:
    text = PAGE.read_text()
    headings = {line.removeprefix("### ").strip("`") for line in text.splitlines()}
    assert set(COMMANDS) <= headings
    lines = [step.command.partition("penstock ")[2].split() for step in transcripts.steps(text)]
    run = {words[0] for words in lines if words}
    assert set(COMMANDS) <= run


def test_a_wrong_transcript_is_noticed() -> None:
    assert transcripts.matches("a … c\n", "a b c")
    assert not transcripts.matches("a … d\n", "a b c")
    (step,) = transcripts.steps("text\n```console\n$ echo hello\nhello\n```\n")
    assert (step.command, step.shown) == ("echo hello", "hello\n")


def test_transcripts_are_taken_from_a_terminal(tmp_path: Path) -> None:
    assert transcripts.show("test -t 1 && echo yes; pwd", tmp_path) == f"yes\n{tmp_path}"
