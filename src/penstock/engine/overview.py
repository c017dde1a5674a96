"""A queue and its groups at a glance: facts for people and programs that only look.

Nothing here opens anything for writing, so it is safe on a folder that someone else is using, on
evidence, and on a read-only mount.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.engine import facts
from penstock.engine import group as groups
from penstock.errors import GroupError
from penstock.options import GroupOptions
from penstock.sidecar import groups as group_files

if TYPE_CHECKING:
    from penstock.engine.queue import Queue


def options_of(queue: Queue, name: str) -> GroupOptions:
    """A group's options: by our file, else by the format's own."""
    stored = groups.load_options(groups.folder_of(queue, name))
    return stored or GroupOptions(**queue.store.format.group_defaults(name))


def progress(queue: Queue, name: str) -> group_files.Progress:
    """Where a group stands: by our files, else by the format's own."""
    folder = groups.folder_of(queue, name)
    options = options_of(queue, name)
    found = group_files.peek(folder, queue.store.run, is_auto=options.ack == "auto")
    if found is None:
        own = queue.store.format.own_groups().get(name)
        if own is None and folder.is_dir():
            own = queue.offsets().head  # It is just being made.
        if own is None:
            known = ", ".join(groups.names(queue)) or "none"
            raise GroupError(f"{queue.path}: no group {name!r}; there are: {known}")
        out = {offset: "ready" for offset, _ in queue.store.format.own_leases(name)}
        found = group_files.Progress(own, out)
    return found


def holding_cursors(queue: Queue) -> dict[str, int]:
    """The cursor of every group that retention would wait for, however long it is idle."""
    found = {}
    for name in queue.groups():
        options = options_of(queue, name)
        if options.retain_unread:
            found[name] = progress(queue, name).cursor
    return found


def group_facts(queue: Queue, name: str) -> dict[str, Any]:
    """Options, cursor, lag and what is out."""
    at = progress(queue, name)
    states = list(at.outstanding.values())
    out = {state: states.count(state) for state in ("leased", "delayed", "ready", "blocked")}
    return facts.of_group(
        queue.store, name, options_of(queue, name), cursor=at.cursor, next_unread=at.next,
        is_paused=at.is_paused, counts=out | at.counts,
    )  # fmt: skip


def queue_facts(queue: Queue) -> dict[str, Any]:
    """Everything worth showing about a queue, as plain values."""
    store = queue.store
    return {
        **facts.of_queue(store),
        "segments": [facts.of_segment(store, info) for info in store.segments(fresh=True)],
        "groups": [group_facts(queue, name) for name in queue.groups()],
        "meta": store.format.meta(),
        "set_aside": len(store.set_aside),
    }
