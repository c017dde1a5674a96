"""The front door: `penstock.__all__`, what is really there, and the reference agree."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from types import ModuleType

import pytest

import penstock

REFERENCE = Path(__file__).parent.parent / "docs" / "reference.md"
PUBLIC_NAMES_MAX = 34
ROOT = REFERENCE.parent.parent
PAGES = [
    ROOT / "README.md", *REFERENCE.parent.rglob("*.md"), *REFERENCE.parent.rglob("*.ipynb"),
    *(ROOT / "examples").rglob("*.py"),
]  # fmt: skip
INNER = r"(?:_core|disk|engine|formats|sidecar)\b"
NAMES: list[str] = list(getattr(penstock, "__all__", []))
_HEADING = re.compile(r"^#{2,4} +`?(?P<path>[A-Za-z_][\w.]*)", re.MULTILINE)


def headings(text: str) -> list[str]:
    """The dotted names that head a section: `## Queue`, `### penstock.Queue.put(body)`."""
    return [match["path"] for match in _HEADING.finditer(text)]


def documented(text: str) -> set[str]:
    """The names of `penstock` itself among the headings."""
    return {path.removeprefix("penstock.").split(".")[0] for path in headings(text)}


def inner_imports(text: str) -> list[str]:
    """Imports of modules that are no front door."""
    by_name = rf"(?:from|import) penstock\.{INNER}\S*"
    return re.findall(rf"{by_name}|from penstock import .*\b{INNER}", text)


def test_public_names_are_sorted_and_few() -> None:
    assert sorted(set(NAMES)) == NAMES
    assert len(NAMES) <= PUBLIC_NAMES_MAX


def test_nothing_is_public_by_accident() -> None:
    for name in NAMES:
        assert getattr(penstock, name).__name__ == name
    found = {
        name
        for name, value in vars(penstock).items()
        if not name.startswith("_") and not isinstance(value, ModuleType) and name != "sys"
    }
    assert found - set(NAMES) == set(), "public, but not in __all__: rename, or add"


def test_type_checkers_find_each_name_where_it_is_loaded_from() -> None:
    shown = {
        alias.name: node.module
        for node in ast.walk(ast.parse(Path(penstock.__file__).read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("penstock.")
        for alias in node.names
    }
    assert shown == {name: penstock._HOMES.get(name, "penstock.errors") for name in NAMES}


def test_every_public_name_has_a_heading_in_the_reference() -> None:
    text = REFERENCE.read_text() if REFERENCE.exists() else ""
    missing = [name for name in NAMES if not name.startswith("_") and name not in documented(text)]
    assert not missing, f"docs/reference.md needs a heading `## penstock.NAME` for: {missing}"


def test_the_reference_names_nothing_that_is_not_there() -> None:
    text = REFERENCE.read_text() if REFERENCE.exists() else ""
    full = {path for path in headings(text) if path.startswith("penstock.")}
    gone = sorted(path for path in full if path.split(".")[1] not in NAMES)
    assert not gone, f"docs/reference.md describes what is not public: {gone}"


def test_headings_are_read_in_all_their_forms() -> None:
    text = (
        "# Reference\n## Queue\n### `penstock.Message(body)`\n#### penstock.Queue.put\ntext ## no\n"
    )
    assert headings(text) == ["Queue", "penstock.Message", "penstock.Queue.put"]
    assert documented(text) == {"Queue", "Message"}


@pytest.mark.parametrize("page", sorted(PAGES), ids=lambda page: page.name)
def test_examples_import_from_public_modules_alone(page: Path) -> None:
    found = inner_imports(page.read_text())
    assert not found, f"{page.name} imports {found}"


def test_an_import_of_an_inner_module_is_noticed() -> None:
    assert inner_imports("from penstock.mfq import Consumer\nimport penstock.spark") == []
    for line in ("from penstock.engine.table import Scan", "from penstock import Queue, _core"):
        assert len(inner_imports(line)) == 1
