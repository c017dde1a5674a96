"""An overview of a queue and its groups, for people and programs that only look.

Nothing here opens a file for writing, so it is safe on a queue that others are using, on evidence,
and on a read-only mount.
"""

from __future__ import annotations

from penstock.engine import facts
from penstock.engine import group as groups
from penstock.errors import no_group
from penstock.formats.store import Store
from penstock.hints import Any
from penstock.options import GroupOptions
from penstock.sidecar import groups as group_files


def options_of(store: Store, name: str) -> GroupOptions:
    """A group's options: by our file, else by the format's own."""
    stored = groups.load_options(groups.folder_of(store, name))
    return stored or GroupOptions(**store.format.groups.defaults(name))


def progress(store: Store, name: str) -> group_files.GroupProgress:
    """Where a group stands: by our files, else by the format's own."""
    folder = groups.folder_of(store, name)
    options = options_of(store, name)
    found = group_files.peek(folder, store.run, is_auto=options.ack == "auto")
    if found is None:
        own = store.format.groups.bookmarks().get(name)
        if own is None and folder.is_dir():
            own = store.end().head  # It is just being made.
        if own is None:
            raise no_group(store.path, name, groups.names(store))
        out = {offset: "ready" for offset, _ in store.format.groups.leases(name)}
        found = group_files.GroupProgress(own, out)
    return found


def holding_cursors(store: Store) -> dict[str, int]:
    """The cursor of every group that retention would wait for, however long it is idle."""
    found = {}
    for name in groups.names(store):
        options = options_of(store, name)
        if options.retain_unread:
            found[name] = progress(store, name).cursor
    return found


def group_facts(store: Store, name: str) -> dict[str, Any]:
    """Options, cursor, lag and what is out."""
    at = progress(store, name)
    states = list(at.outstanding.values())
    out = {state: states.count(state) for state in ("leased", "delayed", "ready", "blocked")}
    return facts.of_group(
        store, name, options_of(store, name), cursor=at.cursor, next_unread=at.next,
        is_paused=at.is_paused, counts=out | at.counts,
    )  # fmt: skip


def all_groups(store: Store) -> list[dict[str, Any]]:
    """The facts of every group, whichever process made it or has it open."""
    return [group_facts(store, name) for name in groups.names(store)]


def queue_facts(store: Store) -> dict[str, Any]:
    """Everything worth showing about a queue, as plain values."""
    return {
        **facts.of_queue(store),
        "segments": [facts.of_segment(store, info) for info in store.segments(fresh=True)],
        "groups": all_groups(store),
        "meta": store.format.meta(),
        "set_aside": len(store.set_aside),
    }
