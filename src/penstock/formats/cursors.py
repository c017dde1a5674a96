"""What whoever recovers a queue does about its groups, before the first append.

Cursors above the end are set back. After a power cut the page of an ack may have reached the disk,
and that of the message not: then a group has read what is not there any more. What is put next
would take its place, and the group would pass over it. So every group is set back to the recovered
tail, whether anyone opens it or not; the format sets back what its own files say of groups.

Where a program that is not ours has read on, the group follows. A format's own file then says
another place than the one we left there: after a kill one that is further on, since we store it
after our own journal. After a power cut our journal decides, which was synced.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from penstock import _core
from penstock.disk import files, groups
from penstock.errors import PenstockError
from penstock.logs import logger
from penstock.options import OLD_GROUP, Durability, GroupOptions, of_today

if TYPE_CHECKING:
    from penstock.formats.base import Store
    from penstock.formats.past import Past


def set_back(store: Store, tail: int) -> None:
    """Sets every group that has read beyond `tail` back to it. Alone, under the opening lock."""
    for name in sorted(files.names_in(store.sidecar / "groups")):
        folder = store.sidecar / "groups" / name
        try:
            if files.is_name(name) and _is_beyond(store, folder, tail):
                _cut(store, folder, tail)
        except (PenstockError, OSError) as error:
            # Damage of one group is not the queue's: whoever opens the group is told.
            logger("recovery").warning("%s: its cursor could not be checked: %s", folder, error)


def follow(store: Store, past: Past, tail: int) -> None:
    """Lets groups go on where another program has moved them, and sets the format's own places
    right that can't be true. Alone, under the opening lock."""
    for name, own in store.own_groups().items():
        folder = store.sidecar / "groups" / name
        options = files.read_json(folder / "group.json")
        if not of_today(options or {}, OLD_GROUP).get("native_cursor", True):
            continue
        try:
            _follow(store, past, folder, own, tail)
        except (PenstockError, OSError) as error:
            logger("recovery").warning("%s: its place could not be checked: %s", folder, error)


def _follow(store: Store, past: Past, folder: Path, own: int, tail: int) -> None:
    name, boot = folder.name, store.clock.boot_id()
    progress = groups.peek(folder, boot, is_auto=_is_auto(folder))
    ours = None if progress is None else store.own_place(name, progress)
    if (fault := store.place_fault(name)) is not None:
        logger("recovery").warning(
            "%s:%d: %s, expected %s", fault.path, fault.at, fault.found, fault.expected
        )
        store.dropped = (*store.dropped, fault)
        if ours is not None:  # Else the format's own rule for such places is all there is.
            store.set_own_place(name, min(ours, tail))
    elif ours is None or own == ours:
        return
    elif past.is_stopped:
        store.set_own_place(name, min(ours, tail))
    elif store.is_moved(name) if past.is_closed else own > ours:
        text = "%s: another program has moved the group from %d to %d"
        logger("recovery").info(text, folder, ours, own)
        core = _open(store, folder, own)
        try:
            core.seek(own)
        finally:
            core.close()


def _is_auto(folder: Path) -> bool:
    return (files.read_json(folder / "group.json") or {}).get("ack") == "auto"


def _is_beyond(store: Store, folder: Path, tail: int) -> bool:
    boot = store.clock.boot_id()
    progress = groups.peek(folder, boot, is_auto=_is_auto(folder))
    if progress is None:
        return False
    return progress.next > tail or max(progress.outstanding, default=0) >= tail > 0


def _cut(store: Store, folder: Path, tail: int) -> None:
    logger("recovery").warning(
        "%s: the group had read beyond the end; it is set back to %d", folder, tail
    )
    core = _open(store, folder, tail)
    try:
        core.cut(tail)
        core.sync()
    finally:
        core.close()
    # A group that acks by getting goes by its table, too: the old one must not come back.
    _core.sync_file(folder / "table")


def _open(store: Store, folder: Path, start: int) -> _core.Group:
    """The group's own state, without what the format's files say."""
    usual = GroupOptions()
    return _core.Group(
        store.need_shared(), folder, store.clock, store,
        start=start, lease=not _is_auto(folder),
        always=store.options.durability is Durability.ALWAYS, bound=usual.release_on_exit,
        visibility_s=usual.visibility_s, window=usual.max_in_flight,
        max_receives=usual.max_receives, tags="", dialect=usual.dialect,
    )  # fmt: skip
