"""Reading how much of the code the tests met."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.ladder import covered, rungs
from tests.ladder.covered import Covered, Part, Readers
from tests.ladder.means import NotRun

LCOV = """SF:/tree/rust/src/read/scan.rs
FN:3,scan
DA:3,2
DA:4,0
end_of_record
SF:/home/.cargo/registry/src/pyo3/lib.rs
DA:1,1
end_of_record
SF:/tree/rust/src/fuzzing.rs
DA:9,0
end_of_record
"""
TWO_PATHS = """def choose(is_first):
    if is_first:
        return 1
    return 2
"""


def test_the_lines_of_the_crate_are_those_below_its_source() -> None:
    found = dict(covered.lines_met(LCOV, Path("/tree/rust/src")))
    assert found == {"read/scan.rs": {3: 2, 4: 0}, "fuzzing.rs": {9: 0}}


def test_what_the_wheels_do_not_have_is_left_out_of_the_crate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = LCOV.replace("/tree", str(tmp_path))
    monkeypatch.setattr(
        subprocess, "run", lambda words, **_: subprocess.CompletedProcess(words, 0, told)
    )
    found = covered.of_crate(tmp_path, Readers("profdata", "cov"))
    assert found == Covered(50.0, [Part("rust/src/read/scan.rs", 50.0, "4")])


@pytest.mark.usefixtures("_unmeasured")
def test_a_branch_that_was_not_taken_is_missing(tmp_path: Path) -> None:
    (tmp_path / "choice.py").write_text(TWO_PATHS)
    (tmp_path / "pyproject.toml").write_text("[tool.coverage.run]\nbranch = true\n")
    told = "import choice; assert choice.choose(True) == 1"
    (tmp_path / "run.py").write_text(told)
    run = [sys.executable, "-m", "coverage", "run", "-p", "--include=choice.py", "run.py"]
    subprocess.run(run, cwd=tmp_path, check=True)
    (part,) = covered.of_python(tmp_path).parts
    assert (part.name, round(part.percent), part.missing) == ("choice.py", 67, "4, 2->4")


def test_a_machine_without_rust_does_not_measure_the_crate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(NotRun, match="no rustc"):
        covered.readers()


def test_a_machine_without_llvm_is_told_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (rustc := tmp_path / "rustc").write_text(
        '#!/bin/sh\necho "host: x86_64-unknown-linux-gnu"\necho "LLVM version: 97.1.2"\n'
    )
    rustc.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    with pytest.raises(NotRun, match="rustup component add llvm-tools; Debian: llvm-97"):
        covered.readers()


def test_lines_that_follow_each_other_are_told_as_one() -> None:
    assert covered.ranges([3, 4, 5, 9], ["12->14"]) == "3-5, 9, 12->14"


def test_recovery_below_all_of_its_lines_fails_the_rung() -> None:
    figure = rungs.Figure("goals")
    part = Part("src/penstock/formats/past.py", 99.9, "7-9")
    rungs.goal(figure, part.name, part.percent, 100.0, part.missing)
    assert not figure.is_passed
    assert figure.rows[0]["missing"] == "7-9"
