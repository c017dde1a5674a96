"""Writes the tables of docs/formats: structs, and the tree of `.penstock/`.

The structs are the tuples STRUCTS of modules in `penstock.formats` and `penstock.sidecar`, the tree
is that of `penstock.sidecar.tree`.

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
from penstock.sidecar import tree

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "formats"
_BLOCK = re.compile(
    r"<!-- generated: begin (?P<name>[^\n]+?) -->\n(?P<table>.*?)<!-- generated: end -->", re.DOTALL
)
_BEGIN = re.compile(r"<!-- generated: begin ")


class DocsError(Exception):
    """A page or a table that can't be brought together; says which and why."""


class Tree:
    """The tree of `.penstock/`, as one more table."""

    name = "sidecar tree"


Table = Struct | Tree


def find_structs() -> dict[str, tuple[Table, ...]]:
    """The tables of each format, by the name of its page."""
    found: dict[str, tuple[Table, ...]] = {"sidecar": (Tree(),)}
    roots = (penstock.formats, penstock.sidecar)
    for info in (i for r in roots for i in pkgutil.walk_packages(r.__path__, r.__name__ + ".")):
        module = importlib.import_module(info.name)
        structs = getattr(module, "STRUCTS", ())
        # What every format has beside it is on a page of its own.
        package, page = info.name.split(".")[1:3]
        page = page if package == "formats" else "sidecar"
        # A package may lift the tuple out of its `structs` module: it is the same tuple.
        if structs and structs != found.get(page):
            found[page] = found.get(page, ()) + tuple(structs)
    return found


def block(table: Table) -> str:
    """A table with its two comments."""
    begin, end = f"<!-- generated: begin {table.name} -->", "<!-- generated: end -->"
    shown = struct_table(table) if isinstance(table, Struct) else tree_table()
    return f"{begin}\n{shown}{end}"


def struct_table(struct: Struct) -> str:
    """The fields of a struct, one line each."""
    order = "little-endian" if struct.order == "<" else "big-endian"
    lines = [
        f"{struct.size:,} bytes, {order}.",
        "",
        "| offset | size | field | type | meaning |",
        "| ---: | ---: | --- | --- | --- |",
    ]
    for at, field in struct.places():
        meaning = field.meaning.replace("|", "\\|")
        cells = (str(at), str(field.size), f"`{field.name}`", field.kind_words, meaning)
        lines.append(f"| {' | '.join(cells)} |".replace("  ", " "))
    return "\n".join(lines) + "\n"


def tree_table() -> str:
    """The files of `.penstock/`, one line each."""
    lines = ["| file | holds | written by | |", "| --- | --- | --- | --- |"]
    lines += [f"| `{e.path}` | {e.holds} | {e.writer} | {e.trust} |" for e in tree.ENTRIES]
    return "\n".join(lines) + "\n"


def fill(text: str, structs: dict[str, Table], page: str) -> tuple[str, set[str]]:
    """`text` with its tables made anew, and the names of the structs it has."""
    names = [match["name"] for match in _BLOCK.finditer(text)]
    if len(names) != len(_BEGIN.findall(text)):
        raise DocsError(f"{page}: a generated table begins and does not end")
    for name in names:
        if name not in structs:
            raise DocsError(f"{page}: there is no struct {name!r} (any more): remove its table")
    return _BLOCK.sub(lambda match: block(structs[match["name"]]), text), set(names)


def add_missing(text: str, page: str, structs: list[Table]) -> str:
    """`text` with a section at its end for each of `structs`."""
    text = text or f"# `{page}`\n"
    for struct in structs:
        text = f"{text.rstrip()}\n\n## {struct.name}\n\n{block(struct)}\n"
    return text


def pages(folder: Path, found: dict[str, tuple[Table, ...]]) -> dict[Path, str]:
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
