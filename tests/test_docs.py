"""The byte tables of docs/formats are made from the structs and stay so."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from penstock.disk.structs import Field, Struct
from tools import docs

WORD = Struct("demo word", "<", 4, Field("size", "I"))
PAIR = Struct("demo pair", ">", 8, Field("left", "i"), Field("right", "i"))


def write(folder: Path) -> dict[str, str]:
    wanted = docs.pages(folder, {"demo": (WORD, PAIR)})
    for path, text in wanted.items():
        path.write_text(text)
    return {path.name: text for path, text in wanted.items()}


def test_the_format_pages_are_current() -> None:
    stale = [path.name for path in docs.stale_pages()]
    assert not stale, f"run `make docs` and commit: {', '.join(stale)}"


def test_a_struct_without_a_page_gets_one(tmp_path: Path) -> None:
    pages = write(tmp_path)
    assert pages["demo.md"].startswith(
        "# `demo`\n\n## demo word\n\n<!-- generated: begin demo word -->\n4 bytes, little-endian."
    )
    assert pages["demo.md"].endswith("| 4 | 4 | `right` | int32 | |\n<!-- generated: end -->\n")


def test_writing_twice_changes_nothing(tmp_path: Path) -> None:
    assert write(tmp_path) == write(tmp_path)


def test_only_the_bytes_between_the_comments_are_replaced(tmp_path: Path) -> None:
    page = tmp_path / "own.md"
    page.write_text(
        "# Ours\n\nBefore.\n\n<!-- generated: begin demo word -->\nold\n<!-- generated: end -->\n"
        "\nBetween.\n\n<!-- generated: begin demo pair -->\n<!-- generated: end -->\nAfter.\n"
    )
    assert set(write(tmp_path)) == {"own.md"}
    text = page.read_text()
    assert "old" not in text
    assert [text.count(word) for word in ("Before.", "Between.", "After.")] == [1, 1, 1]
    assert text.index("`size`") < text.index("Between.") < text.index("`right`")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<!-- generated: begin demo word -->\n", "does not end"),
        ("<!-- generated: begin gone -->\n<!-- generated: end -->\n", "no struct 'gone'"),
    ],
)
def test_a_page_that_makes_no_sense_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "odd.md").write_text(text)
    with pytest.raises(docs.DocsError, match=message):
        write(tmp_path)


def test_two_structs_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(docs.DocsError, match="same name"):
        docs.pages(tmp_path, {"demo": (WORD,), "other": (WORD,)})


def test_the_readme_begins_with_facts_that_are_true() -> None:
    root = Path(__file__).parents[1]
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    facts = (root / "README.md").read_text().splitlines()[2].strip("`").split("` `")
    assert facts == [
        f"Python {project['requires-python'].removeprefix('>=')}+", "Linux",
        f"{project['version'].removesuffix('.0')} alpha", project["license"],
        "no dependencies", "typed",
    ]  # fmt: skip
    assert project["dependencies"] == []
    assert "Operating System :: POSIX :: Linux" in project["classifiers"]
    assert "Development Status :: 3 - Alpha" in project["classifiers"]
    assert (root / "src" / "penstock" / "py.typed").exists()
