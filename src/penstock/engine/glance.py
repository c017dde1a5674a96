"""A queue and its groups at a glance: facts for people and programs that only look.

Nothing here opens anything for writing, so it is safe on a folder that someone else is using, on
evidence, and on a read-only mount.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock import _core
from penstock.disk import groups as group_files
from penstock.engine import group as groups
from penstock.engine import stats
from penstock.errors import GroupError, PenstockError
from penstock.formats.base import SegmentInfo, Store
from penstock.options import GroupOptions

if TYPE_CHECKING:
    from penstock.engine.queue import Queue


def options_of(queue: Queue, name: str) -> GroupOptions:
    """A group's options: by our file, else by the format's own."""
    stored = groups.load_options(groups.folder_of(queue, name))
    return stored or GroupOptions(**queue.store.group_defaults(name))


def progress(queue: Queue, name: str) -> group_files.Progress:
    """Where a group stands: by our files, else by the format's own."""
    folder = groups.folder_of(queue, name)
    options = options_of(queue, name)
    found = group_files.peek(folder, queue.store.clock.boot_id(), is_auto=options.ack == "auto")
    if found is None:
        own = queue.store.own_groups().get(name)
        if own is None and folder.is_dir():
            own = queue.end().head  # It is just being made.
        if own is None:
            known = ", ".join(groups.names(queue)) or "none"
            raise GroupError(f"{queue.path}: no group {name!r}; there are: {known}")
        out = {offset: "ready" for offset, _ in queue.store.own_leases(name)}
        found = group_files.Progress(own, out)
    return found


def holding_cursors(queue: Queue) -> dict[str, int]:
    """The cursor of every group that retention would wait for, however long it is idle."""
    found = {}
    for name in queue.groups():
        options = options_of(queue, name)
        if options.holds:
            found[name] = progress(queue, name).cursor
    return found


def group_facts(queue: Queue, name: str) -> dict[str, Any]:
    """Options, cursor, lag and what is out."""
    options = options_of(queue, name)
    at, end = progress(queue, name), queue.end()
    states = list(at.outstanding.values())
    return {
        "name": name,
        "ack": options.ack,
        "tags": options.tags,
        "cursor": at.cursor,
        "next": at.next,
        "lag": count_from(queue.store, at.next),
        "lag_bytes": max(0, end.tail - at.cursor),
        "paused": at.is_paused,
        **{state: states.count(state) for state in ("leased", "delayed", "ready", "blocked")},
        **at.counts,
    }


def count_from(store: Store, offset: int) -> int:
    """Whole messages from `offset` to the tail, also in a damaged queue.

    Summaries of sealed segments answer for them; the others are walked.
    """
    end, total = store.end(), 0
    for info, first, last in store.ranges(max(offset, end.head), end.tail):
        known = describe(store, info)
        is_whole = first == info.first and last == info.end
        has_holes = any(entry.segment == info.path.name for entry in store.set_aside)
        is_ours = store.capabilities.numbers  # Elsewhere a header's count says what was written.
        if is_whole and known.messages is not None and is_ours and not has_holes:
            total += known.messages
            continue
        segment, _ = store.open_tolerantly(info)
        if segment is not None:
            total += _core.walk(segment, first, last, past_damage=True).messages
    return total


def describe(store: Store, info: SegmentInfo) -> SegmentInfo:
    """The segment with what its header and summary say, if they can be read."""
    try:
        return store.describe(info)
    except PenstockError:
        return info


def segment_facts(store: Store, info: SegmentInfo) -> dict[str, Any]:
    """One segment."""
    known = describe(store, info)
    return {
        "path": str(info.path),
        "base": info.base,
        "first": info.first,
        "end": info.end,
        "bytes": info.size,
        "sealed": info.is_sealed,
        "first_number": known.first_number,
        "messages": known.messages,
        "first_ns": known.first_ns,
        "last_ns": known.last_ns,
    }


def queue_facts(queue: Queue) -> dict[str, Any]:
    """Everything worth showing about a queue, as plain values."""
    store, end = queue.store, queue.end()
    infos = store.segments(fresh=True)
    return {
        **stats.place(queue, end),
        "messages": count_from(store, end.head),
        "bytes": store.bytes_between(end.head, end.tail),
        "disk_bytes": store.size_bytes(),
        "segments": [segment_facts(store, info) for info in infos],
        "groups": [group_facts(queue, name) for name in queue.groups()],
        "meta": store.meta(),
        "dropped": [damage.as_dict() for damage in store.dropped],
        "set_aside": len(store.set_aside),
    }
