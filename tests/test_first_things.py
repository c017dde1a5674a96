"""What users try in their first hour: every section of docs/first-things.md, as it stands there."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli import transcripts
from tests.golden_data import golden_cases

PAGE = Path(__file__).parent.parent / "docs" / "first-things.md"
SECTIONS = dict(
    re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
)
SPARK, FILEBEAT, DISK = (
    "Spark reads it as a stream", "Open a real Filebeat queue, without changing it",
    "Fill the disk",
)  # fmt: skip
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BUDGET_S = 60
NEEDS = {"boto3 with another endpoint": ("boto3", "httptools"), "A task for Celery": ("celery",)}
"""What a section imports that is no part of penstock."""


def run(section: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Runs the blocks of a section; each must show what the page says."""
    names: dict[str, object] = {}
    for kind, text in BLOCK.findall(SECTIONS[section]):
        if kind == "python":
            exec(compile(text, str(PAGE), "exec"), names)
            wanted = re.findall(r"^ *print\(.*\) +# (.*)$", text, re.MULTILINE)
            assert capsys.readouterr().out.splitlines()[: len(wanted)] == wanted
        if kind == "console":
            for step in transcripts.steps(f"```console\n{text}```\n"):
                found = transcripts.show(step.command, folder)
                assert transcripts.matches(step.shown, found), f"$ {step.command}\n{found}"


@pytest.mark.timeout(BUDGET_S)
@pytest.mark.parametrize("section", [one for one in SECTIONS if one not in (SPARK, FILEBEAT, DISK)])
def test_it_looks_as_the_page_says(
    section: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for module in NEEDS.get(section, ()):
        pytest.importorskip(module)
    monkeypatch.chdir(tmp_path)
    run(section, tmp_path, capsys)


@pytest.mark.timeout(BUDGET_S)
def test_a_filebeat_queue_opens_as_the_page_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = next(one for one in golden_cases("beats") if one.id == "v1/basic")
    case.copy(tmp_path / "as").rename(tmp_path / "diskqueue")
    before = {path: path.stat() for path in (tmp_path / "diskqueue").rglob("*")}
    run(FILEBEAT, tmp_path, capsys)
    for path, was in before.items():
        assert (path.stat().st_mtime_ns, path.stat().st_size) == (was.st_mtime_ns, was.st_size)


@contextmanager
def small_disk(path: Path) -> Iterator[None]:
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=400k", "penstock-test", str(path)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount a small file system")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.mark.timeout(BUDGET_S)
def test_a_full_disk_looks_as_the_page_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with small_disk(tmp_path / "small"):
        run(DISK, tmp_path, capsys)


def test_every_section_is_run() -> None:
    assert len(SECTIONS) == 10
    assert {SPARK, FILEBEAT, DISK} < set(SECTIONS)
