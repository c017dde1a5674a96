"""`.penstock/quarantine/`: what was set aside. Nothing reads it and nothing deletes it."""

from __future__ import annotations

from penstock import _core
from penstock.disk import files
from penstock.logs import logger
from penstock.places import Path

FOLDER = "quarantine"


def move(sidecar: Path, path: Path, now_ns: int) -> None:
    """Moves a file that is no part of the queue any more here. Both folders are synced: a name
    that came back after the next power cut would lie below what was synced by then."""
    if not path.exists():
        return
    folder = sidecar / FOLDER
    files.make_folder(folder)
    logger("recovery").warning("%s: set aside in %s", path, folder)
    _core.rename_file(path, folder / f"{path.name}.{now_ns}")
    for changed in (folder, path.parent):
        _core.sync_folder(changed)


def copy(sidecar: Path, path: Path, at: int, length: int, *, now_ns: int | None = None) -> str:
    """Copies bytes of a file here; returns the name of the copy, which says where they were.

    With `now_ns` a second copy of the same bytes gets a name of its own.
    """
    name = name_of(path, at, length) + ("" if now_ns is None else f".{now_ns}")
    files.make_folder(sidecar / FOLDER)
    with files.reading(path) as stream:
        stream.seek(at)
        _core.replace_file(sidecar / FOLDER / name, stream.read(length))
    return name


def name_of(path: Path, at: int, length: int) -> str:
    """What a copy of these bytes is called."""
    return f"{path.name}.{at}-{at + length}"
