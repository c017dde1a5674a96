"""Prints an extra of pyproject.toml as a requirements file.

`pip install .[dev]` would build the package in a folder of its own, and once more for
every change; the Makefile wants the tools alone and builds with them. An extra that
names the project itself (`penstock[cli,arrow]`) is replaced by what it stands for.

    python tools/requirements.py EXTRA…
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

PYPROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


def expand(project: dict[str, Any], extras: list[str]) -> set[str]:
    """Every requirement of the project and of `extras`, itself left out."""
    itself = re.compile(rf"{project['name']}\[(.*)\]$")
    found = set(project["dependencies"])
    waiting, seen = list(extras), set[str]()
    while waiting:
        extra = waiting.pop()
        if extra in seen:
            continue
        seen.add(extra)
        for requirement in project["optional-dependencies"][extra]:
            if match := itself.match(requirement):
                waiting += [name.strip() for name in match.group(1).split(",")]
            else:
                found.add(requirement)
    return found


def main() -> None:
    pyproject = tomllib.loads(PYPROJECT.read_text())
    # The build back-end counts too: the core is built by calling it directly.
    tools = set(pyproject["build-system"]["requires"])
    print("\n".join(sorted(tools | expand(pyproject["project"], sys.argv[1:]))))


if __name__ == "__main__":
    main()
