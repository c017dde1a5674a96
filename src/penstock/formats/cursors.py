"""Cursors above the end of a queue are set back by whoever recovers it, before the first append.

After a power cut the page of an ack may have reached the disk, and that of the message not: then a
group has read what is not there any more. What is put next would take the place of what it has
read, and the group would pass over it. So every group is set back to the recovered tail, whether
anyone opens it or not; what the format's own files say of groups is the format's to set back.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from penstock import _core
from penstock.disk import files, groups
from penstock.errors import PenstockError
from penstock.options import Durability, GroupOptions

if TYPE_CHECKING:
    from penstock.formats.base import Store

log = logging.getLogger("penstock.recovery")


def set_back(store: Store, tail: int) -> None:
    """Sets every group that has read beyond `tail` back to it. Alone, under the opening lock."""
    for name in sorted(files.names_in(store.sidecar / "groups")):
        folder = store.sidecar / "groups" / name
        try:
            if files.is_name(name) and _is_beyond(store, folder, tail):
                _cut(store, folder, tail)
        except (PenstockError, OSError) as error:
            # Damage of one group is not the queue's: whoever opens the group is told.
            log.warning("%s: its cursor could not be checked: %s", folder, error)


def _is_auto(folder: Path) -> bool:
    return (files.read_json(folder / "group.json") or {}).get("ack") == "auto"


def _is_beyond(store: Store, folder: Path, tail: int) -> bool:
    boot = store.clock.boot_id()
    progress = groups.peek(folder, boot, is_auto=_is_auto(folder))
    if progress is None:
        return False
    return progress.next > tail or max(progress.outstanding, default=0) >= tail > 0


def _cut(store: Store, folder: Path, tail: int) -> None:
    log.warning("%s: the group had read beyond the end; it is set back to %d", folder, tail)
    usual = GroupOptions()
    core = _core.Group(
        store.need_shared(), folder, store.clock, store,
        start=tail, lease=not _is_auto(folder),
        always=store.options.durability is Durability.ALWAYS, bound=usual.bound,
        visibility_s=usual.visibility_s, window=usual.window, max_receives=usual.max_receives,
        tags="", dialect=usual.dialect,
    )  # fmt: skip
    try:
        core.cut(tail)
    finally:
        core.close()
