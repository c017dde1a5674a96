"""Writes the tables of docs/formats: structs, and the tree of `.penstock/`.

They are the tuples STRUCTS and DOC_TABLES of modules in `penstock.formats` and `penstock.sidecar`:
whatever has a name and can show itself as Markdown.

What stands between these two comments on a page is written by this program, the rest by people:

    <!-- generated: begin zbus frame -->
    <!-- generated: end -->

A struct that no page mentions gets a place at the end of `docs/formats/<format>.md`.

    python -m tools.docs            write the pages
    python -m tools.docs --check    write nothing; name the pages that would change, exit 1
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import sys
from pathlib import Path

import penstock.formats
import penstock.sidecar
from penstock.disk.structs import Struct

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "formats"
_BLOCK = re.compile(
    r"<!-- generated: begin (?P<name>[^\n]+?) -->\n(?P<table>.*?)<!-- generated: end -->", re.DOTALL
)
_BEGIN = re.compile(r"<!-- generated: begin ")


class DocsError(Exception):
    """A page or a table that can't be brought together; says which and why."""


def find_structs() -> dict[str, tuple[Struct, ...]]:
    """The structs of each format, by the name of its page."""
    found: dict[str, tuple[Struct, ...]] = {}
    roots = (penstock.formats, penstock.sidecar)
    for info in (i for r in roots for i in pkgutil.walk_packages(r.__path__, r.__name__ + ".")):
        module = importlib.import_module(info.name)
        structs = getattr(module, "STRUCTS", ()) + getattr(module, "DOC_TABLES", ())
        # What every format has beside it is on a page of its own.
        package, page = info.name.split(".")[1:3]
        page = page if package == "formats" else "sidecar"
        # A package may lift the tuple out of its `structs` module: it is the same tuple.
        if structs and structs != found.get(page):
            found[page] = found.get(page, ()) + tuple(structs)
    return found


def block(struct: Struct) -> str:
    """A struct's table with its two comments."""
    begin, end = f"<!-- generated: begin {struct.name} -->", "<!-- generated: end -->"
    return f"{begin}\n{struct.markdown()}{end}"


def fill(text: str, structs: dict[str, Struct], page: str) -> tuple[str, set[str]]:
    """`text` with its tables made anew, and the names of the structs it has."""
    names = [match["name"] for match in _BLOCK.finditer(text)]
    if len(names) != len(_BEGIN.findall(text)):
        raise DocsError(f"{page}: a generated table begins and does not end")
    for name in names:
        if name not in structs:
            raise DocsError(f"{page}: there is no struct {name!r} (any more): remove its table")
    return _BLOCK.sub(lambda match: block(structs[match["name"]]), text), set(names)


def add_missing(text: str, page: str, structs: list[Struct]) -> str:
    """`text` with a section at its end for each of `structs`."""
    text = text or f"# `{page}`\n"
    for struct in structs:
        text = f"{text.rstrip()}\n\n## {struct.name}\n\n{block(struct)}\n"
    return text


def pages(folder: Path, found: dict[str, tuple[Struct, ...]]) -> dict[Path, str]:
    """What every page should say."""
    every = [struct for structs in found.values() for struct in structs]
    by_name = {struct.name: struct for struct in every}
    if len(by_name) != len(every):
        raise DocsError("two structs have the same name")
    wanted: dict[Path, str] = {}
    shown: set[str] = set()
    for path in sorted(folder.glob("*.md")):
        wanted[path], names = fill(path.read_text(), by_name, path.name)
        shown |= names
    for page, structs in sorted(found.items()):
        path = folder / f"{page}.md"
        missing = [struct for struct in structs if struct.name not in shown]
        if missing:
            wanted[path] = add_missing(wanted.get(path, ""), page, missing)
    return wanted


def stale_pages(folder: Path = FOLDER) -> dict[Path, str]:
    """The pages that do not say what they should, with what they should say."""
    wanted = pages(folder, find_structs())
    return {p: text for p, text in wanted.items() if not p.exists() or p.read_text() != text}


def main(arguments: list[str]) -> int:
    try:
        stale = stale_pages()
    except DocsError as error:
        print(error, file=sys.stderr)
        return 2
    is_check = arguments == ["--check"]
    for path, text in stale.items():
        print(
            f"{'not current' if is_check else 'written'}: {path.relative_to(FOLDER.parent.parent)}"
        )
        if not is_check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return 1 if is_check and stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
