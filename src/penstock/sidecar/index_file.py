"""`.penstock/index`: entries of full segments, one by one. A hint: a lost one is made anew."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from penstock import _core

NAME = "index"


def path_of(sidecar: Path) -> Path:
    """Where the index is."""
    return sidecar / NAME


def append(sidecar: Path, raw: bytes, entry_bytes: int) -> None:
    """Adds entries. Two who add at once may lose one, which is then added again."""
    path = sidecar / NAME
    if not path.exists():
        with suppress(FileExistsError):
            _core.create_file(path, 0)
    size = path.stat().st_size
    _core.write_file(path, size - size % entry_bytes, raw)


def replace(sidecar: Path, raw: bytes) -> None:
    """Writes the index anew."""
    _core.replace_file(sidecar / NAME, raw, synced=False)


def drop(sidecar: Path) -> None:
    """Removes the index, also for after the next power cut."""
    if (sidecar / NAME).exists():
        _core.unlink_file(sidecar / NAME)
        _core.sync_folder(sidecar)
