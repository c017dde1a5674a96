"""Broadcast: a group that one consumer has for itself, and that goes with it.

The consumer holds a lock on the group's folder; the kernel drops it when the process ends,
however it ends. A process that finds an exclusive group whose folder is not locked removes it.
"""

from __future__ import annotations

from penstock import _core
from penstock.disk import files
from penstock.places import Path
from penstock.sidecar import groups


def is_exclusive(folder: Path) -> bool:
    """Whether the group in `folder` is for one consumer."""
    return bool((files.read_json(folder / "group.json") or {}).get("exclusive"))


def remove_if_dead(folder: Path) -> bool:
    """Removes an exclusive group if no process holds it; returns whether it is gone."""
    try:
        seat = _core.FolderLock.take(folder)
    except FileNotFoundError:
        return True
    if seat is None:
        return False
    groups.remove(folder)
    seat.close()
    return True


def sweep(sidecar: Path) -> list[str]:
    """Removes exclusive groups whose consumer is gone; returns their names."""
    gone = []
    folders = sidecar / "groups"
    for folder in map(folders.joinpath, files.names_in(folders)):
        if not files.is_name(folder.name) or not is_exclusive(folder):
            continue
        if remove_if_dead(folder):
            gone.append(folder.name)
    return gone
