"""The ladder's own rules: every rung can be climbed alone, and what was not run has not passed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.ladder import __main__ as ladder
from tests.ladder import rungs, tables
from tests.ladder.classes import KINDS
from tests.ladder.means import NotRun, need_programs
from tests.ladder.rungs import RUNGS, Earlier, Figure, Rung


def test_there_are_eighteen_rungs_each_with_its_question() -> None:
    assert list(RUNGS) == [f"T{n}" for n in range(1, 19)]
    assert len({rung.question for rung in RUNGS.values()}) == 18


def test_every_selected_test_is_there() -> None:
    named = {
        word
        for word in Path(rungs.__file__).read_text().replace("{CRASH}", "tests/crash/").split('"')
        if word.startswith("tests/") and word.endswith(".py") and "{" not in word
    }
    assert len(named) > 10
    assert [name for name in sorted(named) if not (rungs.ROOT / name).exists()] == []


def test_what_was_not_run_has_not_passed() -> None:
    assert not Figure("states", not_run=["no root"]).is_passed
    assert Figure("states", not_run=["no root"]).text() == "not run: no root"
    assert not Figure("states", tried=5, failed=1).is_passed
    assert Figure("states", tried=5).is_passed


def test_a_figure_says_what_its_tests_have_counted() -> None:
    rows = [{"counted": {"vqs steps": 2000, "vqs histories": 40}}, {"counted": {"vqs steps": 500}}]
    figure = Figure("tests", tried=2, rows=rows, not_run=["no root"])
    wanted = "passed: 0 of 2 tests fail (vqs 2,500 steps, 40 histories); not run: no root"
    assert figure.text() == wanted
    figure.rows.append({"counted": {"full disks": 3000}})
    assert figure.counts() == " (vqs 2,500 steps, 40 histories; 3,000 full disks)"


def test_missing_means_are_said_with_what_to_install() -> None:
    with pytest.raises(NotRun, match="no qemu-storage-daemonx"):
        need_programs("qemu-storage-daemonx")


THREE = """
import pytest

@pytest.mark.parametrize("number", range(3))
def test_a_number_is_itself(number):
    assert number == number
"""


@pytest.fixture
def three(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A suite of three tests, in a project of its own."""
    (tmp_path / "test_three.py").write_text(THREE)
    monkeypatch.setenv("PYTHONPATH", str(rungs.ROOT))
    monkeypatch.setattr(rungs, "ROOT", tmp_path)
    monkeypatch.setattr(ladder, "RESULTS", tmp_path)
    return "test_three.py"


def test_tests_that_a_rung_has_no_time_for_are_not_run(three: str) -> None:
    figure = Figure("tests")
    rungs.pytest_run(figure, [three], limit_s=1e-6)
    assert (figure.tried, figure.failed) == (1, 0)
    assert figure.missing() == ["2 tests: no time left"]


def test_a_rung_with_time_runs_all_of_its_tests(three: str) -> None:
    figure = Figure("tests")
    rungs.pytest_run(figure, [three], limit_s=1000)
    assert (figure.tried, figure.failed, figure.missing()) == (3, 0, [])


def test_the_next_run_begins_with_what_the_last_had_no_time_for(
    three: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rungs, "RUNG_MINUTES", 1e-9)
    rung = Rung("T0", "are all run", rungs.selection(three))
    for tried in (1, 2, 3):
        found = json.loads(ladder.one_run(rung, "release").read_text())
        assert (found["tried"], len(found["left"])) == (tried, 3 - tried)
    assert [run["tried"] for run in found["runs"]] == [1, 1, 1]
    assert found["figure"] == "passed: 0 of 3 tests fail"


def test_runs_add_up_until_one_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ladder, "RESULTS", tmp_path)
    begun: list[int] = []

    def run(size: str, earlier: Earlier) -> Figure:
        begun.append(earlier.runs)
        failed = int(len(begun) == 2)
        rows = [{"title": "beats", "states": 5, "seed": len(begun), "kinds": {}}]
        return Figure("states", tried=5, failed=failed, rows=rows)

    rung = Rung("T0", "is there a figure", run)
    for tried in (5, 10, 5, 10):
        found = json.loads(ladder.one_run(rung, "release").read_text())
        assert found["tried"] == found["rows"][0]["states"] == tried
    assert begun == [0, 1, 0, 1]


def test_a_rung_leaves_its_figure_as_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ladder, "RESULTS", tmp_path)
    rung = Rung("T0", "is there a figure", lambda size, earlier: Figure("tries", tried=3))
    saved = json.loads(ladder.one_run(rung, "ci").read_text())
    assert saved["figure"] == "passed: 0 of 3 tries fail"
    assert (saved["rung"], saved["size"], saved["tried"]) == ("T0", "ci", 3)


def test_the_table_of_the_page_is_that_of_the_figures() -> None:
    text = tables.PAGE.read_text()
    assert tables.page(text) == text, "run `python -m tests.ladder.tables` and commit"


def test_every_kind_of_fault_has_a_letter_and_tests_that_are_there() -> None:
    assert "".join(kind.letter for kind in KINDS) == "abcdefghijklmnopqrstuvwxy"
    assert [name for kind in KINDS for name in kind.tests if not (rungs.ROOT / name).exists()] == []


def test_the_page_names_every_rung() -> None:
    named = [line.split("|")[1].strip() for line in tables.PAGE.read_text().splitlines()
             if line.startswith("| T")]  # fmt: skip
    assert named == list(RUNGS)
