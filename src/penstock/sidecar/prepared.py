"""Files that are prepared in `.penstock/` and get their place in the queue by a rename.

    new-<random>     one that is made now
    zero-<random>    one that is filled with zeros, in the background
    next.seg         the next segment, ready to be taken
    copy-<name>      a file of the queue that is written anew after a failed sync

A process that dies before the rename leaves a file here; the next opener deletes it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from penstock import _core
from penstock.disk import files
from penstock.errors import StorageError
from penstock.pacing import REST_NS
from penstock.places import Path

READY = "next.seg"
PIECE_BYTES = 1 << 20
BEGINNING_BYTES = 8 << 20
"""So much of the next segment of a quick writer is written: the pages of the rest are made ahead of
it, but only once it has come."""


def fresh(sidecar: Path, kind: str = "new", suffix: str = ".seg") -> Path:
    """A name for a new file that no other process uses. It is random: processes in different
    containers have the same numbers, and their objects the same addresses."""
    return sidecar / f"{kind}-{os.urandom(8).hex()}{suffix}"


def make(
    sidecar: Path, size: int, *, head: bytes = b"", suffix: str = ".seg", synced: bool = False
) -> Path:
    """A new file of `size` bytes that begins with `head`."""
    path = fresh(sidecar, suffix=suffix)
    _core.create_file(path, size, head=head, synced=synced)
    return path


def make_fitting(
    path: Path, size: int, least: int, page: int, *, zeroed: int = 0, synced: bool = False
) -> int:
    """Makes the file at `path` with `size` bytes, or fewer where the disk has little left, but at
    least `least`; returns how many.

    It takes at most half of what is left: groups and the next segment need some too. A quota may
    leave less than the file system says: then it is halved until it fits.
    """
    while True:
        left = files.free_bytes(path.parent) // 2 // page * page
        size = max(least, min(size, left))
        try:
            _core.create_file(path, size, zeroed=zeroed, rest_ns=REST_NS, synced=synced)
        except StorageError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT) or size == least:
                raise
            size = max(least, size // 2 // page * page)
        else:
            return size


def place(path: Path, target: Path, *, synced: bool = True) -> None:
    """Gives a prepared file its place in the queue, and syncs that name."""
    _core.rename_file(path, target)
    if synced:
        _core.sync_folder(target.parent)


def drop(path: Path) -> None:
    """Deletes a prepared file that is not needed."""
    _core.unlink_file(path)


# ── the next segment ───────────────────────────────────────────────────────────────────────────


def has_ready(sidecar: Path) -> bool:
    """Whether the next segment is ready."""
    return (sidecar / READY).exists()


def keep_ready(sidecar: Path, make: Callable[[Path], object]) -> None:
    """Has `make` fill a file, which is then the next segment."""
    path = fresh(sidecar, "zero")
    make(path)
    _core.rename_file(path, sidecar / READY)


def take_ready(sidecar: Path, fits: Callable[[int], bool]) -> tuple[Path, int] | None:
    """The next segment, if it is ready and its size fits. Only one process gets it."""
    ready = sidecar / READY
    try:
        size = ready.stat().st_size
        if not fits(size):
            return None
        path = fresh(sidecar)
        _core.rename_file(ready, path)
    except FileNotFoundError:
        return None  # There is none, or another process took it.
    return path, size


# ── after a kill or a failed sync ──────────────────────────────────────────────────────────────


def drop_all(sidecar: Path) -> None:
    """Removes files that never got their place."""
    for name in files.names_in(sidecar):
        if name == READY or name.startswith(("new-", "zero-", "copy-")):
            _core.unlink_file(sidecar / name)


def copy_anew(sidecar: Path, path: Path) -> None:
    """Writes a file's bytes to a new place on the disk, under its old name.

    After a failed sync the kernel may hold pages for clean that never reached the disk, and the old
    place may be a bad one: only a file that was written since, and synced, is surely there.
    """
    if not path.exists():
        return
    copy = _new_copy(sidecar, path)
    _core.create_file(copy, path.stat().st_size)
    with files.reading(path) as stream:
        at = 0
        while piece := stream.read(PIECE_BYTES):
            if any(piece):
                _core.write_file(copy, at, piece)
            at += len(piece)
    _core.sync_file(copy)
    place(copy, path)


def write_anew(sidecar: Path, path: Path, head: bytes) -> None:
    """The same for a file of which only `head` counts; its size stays, zeros follow."""
    copy = _new_copy(sidecar, path)
    _core.create_file(copy, path.stat().st_size, head=head, synced=True)
    place(copy, path, synced=False)


def _new_copy(sidecar: Path, path: Path) -> Path:
    copy = sidecar / f"copy-{path.name}"
    _core.unlink_file(copy)
    return copy
