"""What penstock is built from: the audit notices what it is there for."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tools import audit

KNOWN = {"MIT", "Apache-2.0"}


@pytest.mark.parametrize(
    ("licence", "is_allowed"),
    [("MIT", True), ("GPL-3.0", False), ("MIT OR GPL-3.0", True), ("MIT AND GPL-3.0", False),
     ("MIT/Apache-2.0", True), ("(MIT OR GPL-3.0) AND Apache-2.0", True),
     ("(MIT AND GPL-3.0) OR LGPL-3.0", False), ("none", False)],
)  # fmt: skip
def test_a_licence_is_taken_where_it_can_be_met(licence: str, is_allowed: bool) -> None:
    assert audit.is_allowed(licence, KNOWN) is is_allowed


def tree(folder: Path, lock: str, project: str) -> Path:
    (folder / "rust").mkdir()
    (folder / "rust" / "Cargo.lock").write_text(lock)
    (folder / "rust" / "deny.toml").write_text('[licenses]\nallow = ["MIT"]\n')
    (folder / "pyproject.toml").write_text(project)
    return folder


def test_a_crate_from_elsewhere_without_checksum_or_licence_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = '[[package]]\nname = "odd"\nversion = "1.0"\nsource = "git+https://example.com/odd"\n'
    told = json.dumps({"packages": [{"name": "odd", "version": "1.0", "license": "GPL-3.0"}]})
    monkeypatch.setattr(audit, "ROOT", tree(tmp_path, lock, ""))
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: SimpleNamespace(stdout=told))
    assert [fault.split("odd 1.0 ")[1].split(" ")[0] for fault in audit.crate_faults()] == [
        "comes", "has", "is",
    ]  # fmt: skip


def test_a_package_without_a_version_or_from_elsewhere_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = (
        "[project]\ndependencies = ['six==1']\n[project.optional-dependencies]\n"
        "x = ['loose', 'fine>=1', 'far @ https://example.com/far.whl']\n"
    )
    monkeypatch.setattr(audit, "ROOT", tree(tmp_path, "", project))
    assert [fault.split(":")[0] for fault in audit.python_faults()] == [
        "['six==1']", "loose of extra x has no version",
        "far @ https", "far @ https",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "said", "is_clean", "expected"),
    [(0, "fine", True, "nothing found"), (1, "RUSTSEC-2026-0001", False, "RUSTSEC-2026-0001"),
     (1, "failed to fetch the advisory database", True, "not run")],
)  # fmt: skip
def test_a_known_hole_fails_and_a_database_out_of_reach_is_said(
    monkeypatch: pytest.MonkeyPatch, code: int, said: str, is_clean: bool, expected: str
) -> None:
    answer = SimpleNamespace(returncode=code, stdout=said, stderr="")
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: answer)
    found, told = audit.ask("advisories", ["cargo-deny", "check"])
    assert (found, expected in told) == (is_clean, True)


def test_a_program_that_is_not_installed_is_said_not_to_have_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none(_: str) -> Any:
        return None

    monkeypatch.setattr(shutil, "which", none)
    assert audit.ask("advisories", ["cargo-deny"]) == (True, "not run: no cargo-deny")
