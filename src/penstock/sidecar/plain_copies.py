"""`.penstock/plain/`: the plain bytes of a compressed segment while it is written.

All who read the segment map the copy; it goes once the stream itself is whole.
"""

from __future__ import annotations

from pathlib import Path

from penstock import _core
from penstock.disk import files

FOLDER = "plain"


def path_of(sidecar: Path, number: int) -> Path:
    """The plain copy of the segment with this id."""
    return sidecar / FOLDER / f"{number}.plain"


def all_of(sidecar: Path) -> list[Path]:
    """Every copy there is, by name."""
    return sorted((sidecar / FOLDER).glob("*.plain"))


def folder_of(sidecar: Path) -> Path:
    """The folder of plain copies, which is made where there is none yet."""
    files.make_folder(sidecar / FOLDER)
    return sidecar / FOLDER


def drop(sidecar: Path, number: int) -> None:
    """Removes a copy; a missing one is fine."""
    _core.unlink_file(path_of(sidecar, number))
