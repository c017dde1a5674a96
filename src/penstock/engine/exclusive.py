"""Broadcast: a group that one consumer has for itself, and that goes with it.

The consumer holds a lock on the group's folder; the kernel drops it when the process ends,
however it ends. Whoever finds an exclusive group whose folder is not locked removes it.
"""

from __future__ import annotations

import os
from pathlib import Path

from penstock import _core
from penstock.disk import files
from penstock.hints import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.engine.queue import Queue


def is_exclusive(folder: Path) -> bool:
    """Whether the group in `folder` is for one consumer."""
    return bool((files.read_json(folder / "group.json") or {}).get("exclusive"))


def remove(folder: Path) -> None:
    """Takes the group's name away at once, then its files."""
    doomed = folder.with_name(f".{folder.name}.{os.urandom(4).hex()}")
    try:
        _core.rename_file(folder, doomed)
    except FileNotFoundError:
        return  # Another process was first.
    import shutil

    shutil.rmtree(doomed)


def remove_if_dead(folder: Path) -> bool:
    """Removes an exclusive group if nobody holds it; whether it is gone."""
    try:
        seat = _core.Seat.take(folder)
    except FileNotFoundError:
        return True
    if seat is None:
        return False
    remove(folder)
    seat.close()
    return True


def sweep(queue: Queue) -> list[str]:
    """Removes exclusive groups whose consumer is gone; answers their names."""
    gone = []
    groups = queue.store.sidecar / "groups"
    for folder in map(groups.joinpath, files.names_in(groups)):
        if not files.is_name(folder.name) or not is_exclusive(folder):
            continue
        if remove_if_dead(folder):
            gone.append(folder.name)
    return gone
