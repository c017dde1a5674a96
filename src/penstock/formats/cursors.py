"""What recovery does about the groups of a queue, before the first append.

Cursors above the end are set back. After a power cut the page of an ack may have reached the disk,
and that of the message not: then a group has read what is not there any more. What is put next
would take its place, and the group would pass over it. So every group is set back to the recovered
tail, whether anyone opens it or not; the format sets back what its own files say of groups.

Where a program that is not ours has read on, the group follows. The format's own file then has
another bookmark than the one we left there: after a kill one that is further on, since we store it
after our own journal. After a power cut our journal decides, which was synced.
"""

from __future__ import annotations

from penstock import _core
from penstock.disk import files
from penstock.errors import PenstockError
from penstock.formats.contract import Format
from penstock.formats.past import Past
from penstock.logs import logger
from penstock.options import OLD_GROUP, Durability, GroupOptions, of_today
from penstock.places import Path
from penstock.sidecar import groups


def set_back(format: Format, tail: int) -> None:
    """Sets every group that has read beyond `tail` back to it. Alone, under the opening lock."""
    for name in sorted(files.names_in(format.sidecar / "groups")):
        folder = format.sidecar / "groups" / name
        try:
            if files.is_name(name) and _is_beyond(format, folder, tail):
                _cut(format, folder, tail)
        except (PenstockError, OSError) as error:
            # Damage of one group does not stop the queue: opening that group reports it.
            logger("recovery").warning("%s: its cursor could not be checked: %s", folder, error)


def follow(format: Format, past: Past, tail: int) -> None:
    """Lets groups go on where another program has moved them, and sets bookmarks right that can't
    be true. Alone, under the opening lock."""
    for name, own in format.groups.bookmarks().items():
        folder = format.sidecar / "groups" / name
        options = files.read_json(folder / "group.json")
        if not of_today(options or {}, OLD_GROUP).get("native_cursor", True):
            continue
        try:
            _follow(format, past, folder, own, tail)
        except (PenstockError, OSError) as error:
            logger("recovery").warning("%s: its bookmark could not be checked: %s", folder, error)


def _follow(format: Format, past: Past, folder: Path, own: int, tail: int) -> None:
    name, boot = folder.name, format.run
    progress = groups.peek(folder, boot, is_auto=_is_auto(folder))
    ours = None if progress is None else format.groups.bookmark_of(name, progress)
    if (fault := format.groups.fault(name)) is not None:
        logger("recovery").warning(
            "%s:%d: %s, expected %s", fault.path, fault.at, fault.found, fault.expected
        )
        format.store.dropped = (*format.store.dropped, fault)
        if ours is not None:  # Else the format's own rule for such bookmarks is all there is.
            format.groups.set_bookmark(name, min(ours, tail))
    elif ours is None or own == ours:
        return
    elif past.is_stopped:
        format.groups.set_bookmark(name, min(ours, tail))
    elif format.groups.is_moved(name) if past.is_closed else own > ours:
        text = "%s: another program has moved the group from %d to %d"
        logger("recovery").info(text, folder, ours, own)
        core = _open(format, folder, own)
        try:
            core.seek(own)
        finally:
            core.close()


def _is_auto(folder: Path) -> bool:
    return (files.read_json(folder / "group.json") or {}).get("ack") == "auto"


def _is_beyond(format: Format, folder: Path, tail: int) -> bool:
    progress = groups.peek(folder, format.run, is_auto=_is_auto(folder))
    if progress is None:
        return False
    return progress.next > tail or max(progress.outstanding, default=0) >= tail > 0


def _cut(format: Format, folder: Path, tail: int) -> None:
    logger("recovery").warning(
        "%s: the group had read beyond the end; it is set back to %d", folder, tail
    )
    core = _open(format, folder, tail)
    try:
        core.cut(tail)
        core.sync()
    finally:
        core.close()
    groups.sync_table(folder)


def _open(format: Format, folder: Path, start: int) -> _core.Group:
    """The group's own state, without what the format's files say."""
    options = GroupOptions(ack="auto" if _is_auto(folder) else "lease")
    always = format.options.durability is Durability.ALWAYS
    shared, clock = format.store.need_shared(), format.clock
    return _core.Group(
        shared, folder, clock, format.store, start=start, always=always, options=options.native()
    )
