"""What a fresh clone needs before anything is built: the check, the requirements, `make help`."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from tools import preflight, requirements, wheels

ROOT = Path(__file__).parent.parent


def test_preflight_can_be_read_by_an_old_python() -> None:
    ast.parse(Path(preflight.__file__).read_text(), feature_version=(3, 7))


def test_preflight_finds_all_it_needs_where_the_tests_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight, "check_rust", lambda program: preflight.Finding(True, program))
    monkeypatch.setattr(preflight, "FREE_DISK_MIN_BYTES", 1)
    assert preflight.main() == 0
    assert "MISSING" not in capsys.readouterr().out


def test_preflight_names_everything_missing_at_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda program: None)
    monkeypatch.setattr(preflight, "FREE_DISK_MIN_BYTES", 1 << 80)
    assert preflight.main() == 1
    out = capsys.readouterr().out
    assert re.findall(r"MISSING +(\w+)", out) == ["cargo", "rustc", "linker", "free"]
    assert "rustup" in out


@pytest.mark.parametrize(
    ("answer", "is_ok"), [("rustc 1.88.0 (x)", True), ("rustc 1.87.9", False), ("no idea", False)]
)
def test_preflight_compares_the_version_of_rust(answer: str, is_ok: bool, tmp_path: Path) -> None:
    rustc = tmp_path / "rustc"
    rustc.write_text(f"#!/bin/sh\necho '{answer}'\n")
    rustc.chmod(0o755)
    assert preflight.check_rust(str(rustc)).is_ok is is_ok


def test_an_extra_that_names_the_project_is_expanded() -> None:
    project = {
        "name": "penstock",
        "dependencies": ["always"],
        "optional-dependencies": {
            "cli": ["typer>=1"],
            "arrow": ["pyarrow"],
            "dev": ["penstock[cli, arrow]", "pytest==9"],
        },
    }
    assert requirements.expand(project, ["cli"]) == {"always", "typer>=1"}
    assert requirements.expand(project, ["dev"]) == {"always", "typer>=1", "pyarrow", "pytest==9"}


def test_make_alone_prints_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert targets is not None
    printed = subprocess.check_output(["make", "--no-print-directory"], cwd=ROOT, text=True)
    assert re.findall(r"make (\S+)", printed) == targets[1].split()


def test_what_users_build_has_no_recorder_and_what_the_tests_run_has() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["maturin"]
    crate = tomllib.loads((ROOT / "rust" / "Cargo.toml").read_text())
    assert settings["no-default-features"]
    assert "recorder" not in settings["features"]
    assert crate["features"]["default"] == ["recorder"]
    assert "--features pyo3/extension-module,recorder" in (ROOT / "Makefile").read_text()
    assert "record_effects" in wheels.TRIAL
