"""The pages of docs/: the tutorial runs, and what pages point at is there."""

from __future__ import annotations

import functools
import json
import logging
import re
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from types import ModuleType

import pytest

from penstock.formats.contract import Format
from penstock.options import Durability, GroupOptions, QueueOptions
from tests.cli import transcripts
from tools import plot_peers

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
README = ROOT / "README.md"
PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
# These are run elsewhere (tests/spark, tests/formats), or need what no test has: a real zbus
# folder, a stuck Beat, jars.
ELSEWHERE = {
    "filebeat-spool-to-table.md", "filebeat-queue-stuck.md", "open-a-zbus-folder.md",
    "delta-and-kafka.md", "kafka-in-spark.md",
}  # fmt: skip
NEEDED = {
    "howto/celery.md": ["celery"],
    "howto/sqs.md": ["boto3", "httptools"],
    "howto/task-queues.md": ["dramatiq", "taskiq", "huey"],
    "migrate/sqs-emulators.md": ["boto3", "httptools"],
}
"""Packages without which a page can't run: only who uses these has them."""
GUIDES = [
    page.relative_to(DOCS)
    for page in [*sorted(DOCS.glob("howto/*.md")), *sorted(DOCS.glob("migrate/*.md"))]
    if page.name not in ELSEWHERE
] + [Path("tables.md")]


@pytest.fixture(autouse=True)
def log_level() -> Iterator[None]:
    """The worker that a page begins sets the level of all loggers: tests after it must still hear
    what is said below that."""
    root = logging.getLogger()
    level = root.level
    yield
    root.setLevel(level)


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


def has_console(page: Path) -> bool:
    return any(language == "console" for _, language, _ in blocks(page))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(str(name), marks=[pytest.mark.slow] if has_console(DOCS / name) else [])
        for name in GUIDES
    ],
)
def test_every_block_of_a_guide_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in NEEDED.get(name, []):
        pytest.importorskip(package)
    run_page(DOCS / name, tmp_path, monkeypatch)


def test_every_block_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The test of docs/spark.md runs the one block that needs Spark.
    run_page(README, tmp_path, monkeypatch, without="penstock.spark")


def run_page(
    page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, without: str = "\0"
) -> None:
    """Runs a page's Python and its transcripts, from its first block to its last."""
    monkeypatch.chdir(folder)
    scope: dict[str, object] = {"__name__": "page"}
    monkeypatch.setitem(sys.modules, "page", ModuleType("page"))  # Functions are looked up there.
    for line, language, text in blocks(page):
        if without in text or (language == "sh" and "pip install" in text):
            continue
        if language == "console":
            for step in transcripts.steps(f"```console\n{text}```\n"):
                found = transcripts.show(step.command, folder)
                assert transcripts.matches(step.shown, found), f"$ {step.command}\n{found}"
            continue
        assert language == "python", f"{page.name}:{line}: a block that no test runs"
        exec(compile("\n" * (line - 1) + text, str(page), "exec"), scope)


def test_there_are_guides_enough_and_the_index_has_all_of_them() -> None:
    for folder, least in (("howto", 15), ("migrate", 6)):
        pages = {page.name for page in (DOCS / folder).glob("*.md")} - {"index.md"}
        listed = set(re.findall(r"\]\(([\w-]+\.md)\)", (DOCS / folder / "index.md").read_text()))
        assert pages == listed
        assert len(pages) >= least


def test_the_readme_shows_the_figures_that_were_measured() -> None:
    found = json.loads((DOCS / "images" / "peers.json").read_text())
    assert plot_peers.table(found) in README.read_text()
    assert found["machine"]["cpu"] in README.read_text()


def test_every_test_that_a_page_names_is_there() -> None:
    for page in PAGES:
        for file, name in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page.read_text()):
            assert f"def {name}(" in (ROOT / file).read_text(), f"{page.name} names {file}::{name}"


def test_durability_names_tests_for_what_it_promises() -> None:
    assert len(re.findall(r"`tests/[\w/]+\.py::\w+`", (DOCS / "durability.md").read_text())) >= 10


def test_every_link_between_pages_leads_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"


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


SOURCES = (ROOT, ROOT / "src/penstock", ROOT / "rust/src")


def test_contributing_and_internals_name_only_what_exists() -> None:
    for page in [ROOT / "CONTRIBUTING.md", *sorted((DOCS / "internals").glob("*.md"))]:
        named = re.findall(r"`((?:[\w.-]+/)+[\w.-]*)`", page.read_text())
        missing = [
            name for name in named
            if "<" not in name and not any((root / name).exists() for root in SOURCES)
            and not name.startswith((".penstock", "build/"))
        ]  # fmt: skip
        assert missing == [], page.name


CODE_FILE = re.compile(r"`((?:[\w-]+/)*[\w-]+\.(?:py|rs)|(?:[\w-]+/)+)`")
CODE_NAME = re.compile(r"`([A-Za-z_]\w*(?:(?:\.|::)[A-Za-z_]\w*)*)(?:\([^`]*\))?`")

LEVELS = {level.value for level in Durability}


@functools.cache
def sources() -> dict[str, str]:
    """The source by path, with a slash before it."""
    found = (
        path for top in SOURCES[1:] for path in top.rglob("*") if path.suffix in (".py", ".rs")
    )
    return {f"/{path.relative_to(ROOT)}": path.read_text() for path in found}


def missing_names(text: str) -> list[str]:
    """The names of code in a paragraph that none of the files has that it names."""
    files = CODE_FILE.findall(text)
    code = "".join(
        source for path, source in sources().items()
        if any(path.endswith(f"/{file}") or (file[-1] == "/" and f"/{file}" in path)
               for file in files)
    )  # fmt: skip
    words = set(re.findall(r"\w+", code))
    names = [one for one in CODE_NAME.findall(text) if one not in {*files, *LEVELS}]
    return [name for name in names if files and not set(re.split(r"\.|::", name)) <= words]


@pytest.mark.parametrize("page", sorted((DOCS / "internals").glob("*.md")), ids=lambda p: p.stem)
def test_what_internals_say_of_a_file_is_in_it(page: Path) -> None:
    """In each paragraph, step or row."""
    steps = re.split(r"\n(?=\d+\.|\||- )|\n\n", page.read_text())
    assert {step: found for step in steps if (found := missing_names(step))} == {}


def test_a_name_that_its_file_lacks_is_noticed() -> None:
    assert missing_names("`formats/store.py`, `Store.roll`: rolls") == []
    assert missing_names("`formats/store.py`, `Store.stroll`: rolls") == ["Store.stroll"]
    assert missing_names("`append/sync.rs` at `always`, and `group/table/`") == []


def test_a_new_format_gives_the_answers_that_its_page_names() -> None:
    page = (DOCS / "internals" / "adding.md").read_text()
    (listed,) = re.findall(r"answers must be given: (.*?)\.", page)
    assert set(re.findall(r"`(\w+)`", listed)) == set(Format.__abstractmethods__)
    (data,) = re.findall(r"Most of it is data: (.*?)\.", page)
    assert set(re.findall(r"`(\w+)`", data)) <= set(Format.__annotations__)


def test_contributing_names_only_targets_that_exist() -> None:
    targets = re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.M)
    named = re.findall(r"`make ([a-z-]+)`", (ROOT / "CONTRIBUTING.md").read_text())
    assert set(named) <= set(targets)
