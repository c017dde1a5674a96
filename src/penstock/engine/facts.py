"""What is known about a queue and its groups, counted: one function for each fact.

`Queue.stats`, `Group.stats`, the command line and Spark's tables all ask here, whether the queue is
open to consume or only to look.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock import _core
from penstock.disk import files
from penstock.errors import PenstockError
from penstock.formats.store import Store
from penstock.formats.values import End, SegmentInfo
from penstock.hints import Any, Protocol
from penstock.options import GroupOptions

AT_ONCE = 4096
"""Messages of a filtered group that are held in memory while they are counted."""


def messages_from(store: Store, offset: int, *, tags: str = "", dialect: str = "modern") -> int:
    """Messages from `offset` to the tail; with `tags`, those that match.

    By their numbers in an open queue whose format has them; else summaries of full segments
    answer for these, and the others are walked. Damage is passed over.
    """
    end = store.end()
    offset = max(offset, end.head)
    if offset >= end.tail:
        return 0
    if tags:
        return _matching(store, offset, end.tail, tags, dialect)
    if store.shared is not None and store.capabilities.numbers:
        # From the next message that is there: the one at `offset` may have been trimmed.
        found = _core.Scan(store, offset, end.tail, shared=store.shared).take(1)
        if not found:
            return 0  # A repair has set aside everything from here on.
        if found[0].number is not None:
            return end.next_number - found[0].number
    return sum(_in_segment(store, *part) for part in store.ranges(offset, end.tail))


def messages_between(store: Store, first: int, last: int, options: GroupOptions) -> int:
    """Messages in `[first, last)` that a group wants. Damage is passed over."""
    if options.tags:
        return _matching(store, first, last, options.tags, options.dialect)
    return sum(_in_segment(store, *part) for part in store.ranges(first, last))


def _matching(store: Store, first: int, last: int, tags: str, dialect: str) -> int:
    scan = _core.Scan(
        store, first, last, shared=store.shared, tags=tags, dialect=dialect, tolerant=True
    )
    total = 0
    while found := scan.take(AT_ONCE):
        total += len(found)
    return total


def written(store: Store, info: SegmentInfo, first: int, last: int) -> int | None:
    """Messages in a part of a segment, if that can be told without looking at them."""
    has_holes = any(entry.segment == info.path.name for entry in store.set_aside)
    # A format without numbers counts in its header, which says what was written, not what is kept.
    if has_holes or first != info.first or not store.capabilities.numbers:
        return None
    known, end = describe(store, info), store.end()
    if last == info.end:
        return known.messages
    if info.end is None and last == end.tail and known.first_number is not None:
        return end.next_number - known.first_number
    return None


def _in_segment(store: Store, info: SegmentInfo, first: int, last: int) -> int:
    # While a segment is written to, its messages are counted by looking: one may be damaged.
    found = written(store, info, first, last) if last == info.end else None
    if found is not None:
        return found
    segment, damage = store.open_tolerantly(info)
    if damage is not None and store.shared is not None:
        store.segment_at(first)  # This raises the error that says what is wrong.
    return 0 if segment is None else _core.walk(segment, first, last, past_damage=True).messages


def describe(store: Store, info: SegmentInfo) -> SegmentInfo:
    """The segment with what its header and summary say, if they can be read."""
    try:
        return store.format.describe(info)
    except PenstockError:
        return info


def lag(store: Store, options: GroupOptions, next_unread: int) -> int:
    """Messages that a group has not read yet and wants."""
    return messages_from(store, next_unread, tags=options.tags, dialect=options.dialect)


class Counted(Protocol):
    """A group that is open."""

    @property
    def core(self) -> _core.Group:
        """Its part in the native core, which counts."""

    @property
    def lag(self) -> int:
        """Messages that it has not read yet."""


def waiting(group: Counted, *states: str) -> int:
    """Messages that a group has not read yet, and those that are out in these states."""
    # In this order a message that is taken in between counts twice; else it would count never.
    unread, counts = group.lag, group.core.counts()
    return unread + sum(counts[state] for state in states)


def lag_bytes(store: Store, cursor: int) -> int:
    """Bytes of frames between a group's cursor and the tail."""
    return store.bytes_between(cursor, store.end().tail)


def of_group(
    store: Store,
    name: str,
    options: GroupOptions,
    *,
    cursor: int,
    next_unread: int,
    is_paused: bool,
    counts: Mapping[str, int],
) -> dict[str, Any]:
    """A group: its options, where it stands, what is out."""
    return {
        "name": name,
        "ack": options.ack,
        "tags": options.tags,
        "cursor": cursor,
        "next": next_unread,
        "lag": lag(store, options, next_unread),
        "lag_bytes": lag_bytes(store, cursor),
        "paused": is_paused,
        **counts,
    }


def of_segment(store: Store, info: SegmentInfo) -> dict[str, Any]:
    """The facts of one segment."""
    known = describe(store, info)
    return {
        "path": str(info.path),
        "base": info.base,
        "first": info.first,
        "end": info.end,
        "bytes": info.size,
        "sealed": info.end is not None,
        "first_number": known.first_number,
        "messages": known.messages,
        "first_ns": known.first_ns,
        "last_ns": known.last_ns,
    }


def unsynced_bytes(store: Store, end: End) -> int:
    """Bytes of frames that a loss of power may take."""
    return store.bytes_between(end.durable, end.tail)


def disk_bytes(store: Store) -> int:
    """How many bytes of the disk all segments take."""
    return sum(files.disk_bytes(info.path) for info in store.segments(fresh=True))


def of_queue(store: Store) -> dict[str, Any]:
    """Which queue it is, where it begins and ends, and what it holds."""
    end = store.end()
    return {
        "path": str(store.path),
        "format": store.format.name,
        "layout": store.layout,
        "identity": store.identity,
        "head": end.head,
        "tail": end.tail,
        "durable": end.durable,
        "messages": messages_from(store, end.head),
        "bytes": store.bytes_between(end.head, end.tail),
        "disk_bytes": disk_bytes(store),
        "dropped": [damage.as_dict() for damage in store.dropped],
    }
