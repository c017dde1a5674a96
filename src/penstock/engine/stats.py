"""What a queue is and has, counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock import _core

if TYPE_CHECKING:
    from penstock.engine.queue import Queue
    from penstock.formats.base import End


def count_from(queue: Queue, offset: int) -> int:
    """Messages from `offset` to the tail: by their numbers where the format has them."""
    store = queue.store
    end = store.end()
    offset = max(offset, end.head)
    if offset >= end.tail:
        return 0
    if store.capabilities.numbers:
        # From the next one there is: what was there may be trimmed meanwhile.
        found = _core.Scan(store, offset, end.tail, shared=store.shared).take(1)
        if not found:
            return 0  # Everything from here on was set aside by a repair.
        if found[0].number is not None:
            return end.next_number - found[0].number
    total = 0
    for info, first, last in store.ranges(offset, end.tail):
        segment, damage = store.open_tolerantly(info)
        if damage is not None:
            store.segment_at(first)  # Says what is wrong.
        if segment is not None:
            total += _core.walk(segment, first, last).messages
    return total


def place(queue: Queue, end: End) -> dict[str, Any]:
    """Which queue it is, and where it begins and ends."""
    store = queue.store
    return {
        "path": str(queue.path),
        "format": store.format,
        "layout": store.layout,
        "identity": store.identity,
        "head": end.head,
        "tail": end.tail,
        "durable": end.durable,
    }


def of(queue: Queue) -> dict[str, Any]:
    """Everything worth showing, as plain values."""
    store = queue.store
    end = store.end()
    groups = [] if store.shared is None else [group.stats() for group in queue.open_groups()]
    return {
        **place(queue, end),
        "messages": queue.count_from(end.head),
        "bytes": store.bytes_between(end.head, end.tail),
        "disk_bytes": store.size_bytes(),
        "segments": len(store.segments(fresh=True)),
        "poisoned": queue.is_poisoned,
        "dropped": [damage.as_dict() for damage in store.dropped],
        "groups": groups,
    }
