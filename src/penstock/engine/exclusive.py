"""Broadcast: a group that one consumer has for itself, and that goes with it.

The consumer holds a lock on the group's folder; the kernel drops it when the process ends,
however it ends. A process that finds an exclusive group whose folder is not locked removes it.
"""

from __future__ import annotations

from penstock import _core
from penstock.disk import files
from penstock.hints import TYPE_CHECKING, Any
from penstock.places import Path
from penstock.sidecar import groups

if TYPE_CHECKING:
    from penstock.formats.store import Store


def _options(folder: Path) -> dict[str, Any]:
    return files.read_json(folder / "group.json") or {}


def remove_if_dead(store: Store, folder: Path) -> bool:
    """Removes an exclusive group if no process holds it; returns whether it is gone."""
    try:
        seat = _core.FolderLock.take(folder)
    except FileNotFoundError:
        return True
    if seat is None:
        return False
    has_native = _options(folder).get("native_cursor", True)

    def remove() -> None:
        # The format's own file first: from the folder the next one sees what is still to be done.
        if has_native:
            store.format.groups.drop(folder.name)
        groups.remove(folder)
        store.format.groups.recount()

    try:
        store.need_shared().alone(remove)
    finally:
        seat.close()
    return True


def sweep(store: Store) -> list[str]:
    """Removes exclusive groups whose consumer is gone; returns their names."""
    gone = []
    folders = store.sidecar / "groups"
    for folder in map(folders.joinpath, files.names_in(folders)):
        if not files.is_name(folder.name) or not _options(folder).get("exclusive"):
            continue
        if remove_if_dead(store, folder):
            gone.append(folder.name)
    return gone
