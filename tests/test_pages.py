"""The pages of docs/: the tutorial runs, and what pages point at is there."""

from __future__ import annotations

import queue
import re
import threading
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from penstock.options import GroupOptions, QueueOptions
from tests.waiting import until_it_waits

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
README = ROOT / "README.md"
PAGES = [README, *sorted(DOCS.glob("*.md"))]


def blocks(page: Path) -> list[tuple[int, str, str]]:
    """Line, language and text of every code block."""
    text = page.read_text()
    found = re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [(text[: m.start()].count("\n") + 2, m[1], m[2]) for m in found]


@pytest.mark.parametrize("name", ["tutorial.md", "convert.md"])
def test_every_python_block_of_these_pages_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {"__name__": "page"}
    page = DOCS / name
    for line, language, text in blocks(page):
        if language == "console" and name != "tutorial.md":
            continue  # tests/cli/test_transcripts.py runs it.
        assert language == "python", f"{name}:{line}: a block that no test runs"
        exec(compile("\n" * (line - 1) + text, str(page), "exec"), scope)


@pytest.mark.parametrize("name", ["mfq.md", "vqs.md"])
def test_the_python_of_a_format_s_page_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = DOCS / "formats" / name
    found = [(line, text) for line, language, text in blocks(page) if language == "python"]
    assert found
    for line, text in found:
        exec(compile("\n" * (line - 1) + text, str(page), "exec"), {"__name__": "page"})


def test_the_first_lines_of_the_readme_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    handled: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    scope: dict[str, Any] = {"__name__": "page", "handle": handled.put}

    def close_once_it_waits() -> None:
        assert handled.get() == b"..."
        until_it_waits(threading.main_thread(), scope["queue"])
        scope["queue"].close()

    line, _, text = blocks(README)[0]
    thread = threading.Thread(target=close_once_it_waits)
    thread.start()
    exec(compile("\n" * (line - 1) + text, "README.md", "exec"), scope)
    thread.join()


def test_every_test_that_a_page_names_is_there() -> None:
    for page in PAGES:
        for file, name in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page.read_text()):
            assert f"def {name}(" in (ROOT / file).read_text(), f"{page.name} names {file}::{name}"


def test_durability_names_tests_for_what_it_promises() -> None:
    assert len(re.findall(r"`tests/[\w/]+\.py::\w+`", (DOCS / "durability.md").read_text())) >= 10


def test_every_link_between_pages_leads_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("options", [QueueOptions, GroupOptions])
def test_the_reference_has_every_option_with_its_default(
    options: type[QueueOptions] | type[GroupOptions],
) -> None:
    rows = dict(
        re.findall(r"^\| `(\w+)` \| `([^`]*)` \|", (DOCS / "reference.md").read_text(), re.M)
    )
    for field in fields(options):
        default = field.default.value if field.name == "durability" else field.default
        shown = rows.get(field.name)
        assert shown is not None, f"docs/reference.md lacks the option {field.name}"
        assert eval(shown, {"MiB": 1 << 20}) == default, f"{field.name} is {default!r}"
