"""Where in a queue: an offset, a number, a time, or one of its ends."""

from __future__ import annotations

import re

from penstock import _core
from penstock.errors import OffsetError, OptionError
from penstock.formats.store import Store
from penstock.hints import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from penstock.formats.values import End

    Where = int | str | datetime
else:
    Where = object
AGO = r"-?(\d+(?:\.\d+)?)(ms|s|m|h|d|w)\Z"
UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
FAR = 2**63 - 1
EXPECTED = (
    "an offset, earliest, latest, number:N, offset:N, offset:N:ID, a time like 2026-11-01T12:00 "
    "or 3d (ago)"
)


def seconds_of(text: str) -> float | None:
    """`3d`, `90s`, `1.5h` as seconds; none for other texts."""
    match = re.match(AGO, text)
    return float(match[1]) * UNITS[match[2]] if match else None


def time_ns(text: str, now_ns: int) -> int | None:
    """An ISO time, or an age like `3d`, as ns since 1970; none for other texts."""
    age = seconds_of(text)
    if age is not None:
        return now_ns - int(age * 1e9)
    from datetime import datetime

    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return datetime_ns(moment)


def datetime_ns(moment: datetime) -> int:
    """A time as ns since 1970; without a zone it is UTC."""
    from datetime import UTC, datetime, timedelta

    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1000


def resolve(
    store: Store,
    where: Where,
    id: str | None = None,
    *,
    end: End | None = None,
    name: str = "where",
) -> int:
    """The offset that `where` names; between messages it is the next one's.

    With `id`, also as text (`offset:4096:o-17`), the message there must have that id. `end` is the
    store's, for those who have just asked for it; `name` is what the caller calls `where`.
    """
    if id is not None:
        return check_id(store, resolve(store, where, name=name), id)
    end = end or store.end()
    if isinstance(where, int):
        return check(store, where)
    if not isinstance(where, str):
        if not hasattr(where, "tzinfo"):
            raise OptionError(name, where, EXPECTED)
        return by_time(store, datetime_ns(where))
    text = where.strip()
    if text == "earliest":
        return end.head
    if text == "latest":
        return end.tail
    kind, colon, value = text.partition(":")
    offset, second, wanted = value.partition(":")
    if kind == "offset" and second and offset.isdigit():
        return check_id(store, check(store, int(offset)), wanted)
    if colon and kind in ("number", "offset") and value.isdigit():
        return by_number(store, int(value)) if kind == "number" else check(store, int(value))
    if text.isdigit():
        return check(store, int(text))
    moment = time_ns(text, store.clock.wall_now_ns())
    if moment is None:
        raise OptionError(name, where, EXPECTED)
    return by_time(store, moment)


def check(store: Store, offset: int) -> int:
    """`offset`, if a message begins there or it is the tail.

    Between two segments, where a format leaves a gap, it is the next one's beginning.
    """
    end = store.end()
    if offset == end.tail:
        return offset
    if not end.head <= offset < end.tail:
        raise OffsetError(f"{store.path}: offset {offset} is outside {end.head} to {end.tail}")
    if store.capabilities.gaps:
        offset = next((first for _, first, _ in store.ranges(offset, end.tail)), end.tail)
        if offset == end.tail:
            return offset
    segment = store.segment_at(offset)
    limit = segment.end if segment.end is not None else end.tail
    if not _core.is_boundary(segment, offset, limit):
        raise OffsetError(
            f"{store.path}: no message begins at offset {offset}; use a message's own"
        )
    return offset


def check_id(store: Store, offset: int, id: str) -> int:
    """`offset`, if the message there still has this id."""
    found = _core.Scan(store, offset, store.end().tail, shared=store.shared).take(1)
    if not found or found[0].offset != offset:
        raise OffsetError(f"{store.path}: no message at offset {offset}; {id!r} was wanted")
    if found[0].id != id:
        raise OffsetError(
            f"{store.path}: the message at offset {offset} has the id {found[0].id!r}, not {id!r}; "
            f"look for it with `penstock cat`"
        )
    return offset


def by_number(store: Store, number: int) -> int:
    """The offset of the message with this number, or of the next one there is."""
    if not store.capabilities.numbers:
        raise OffsetError(
            f"{store.path}: format {store.format.name} keeps no numbers; seek by offset"
        )
    return _search(store, number=within(number), timestamp_ns=None)


def by_time(store: Store, timestamp_ns: int) -> int:
    """The offset of the first message put at or after this time."""
    if not store.capabilities.timestamps:
        raise OffsetError(
            f"{store.path}: format {store.format.name} keeps no times; seek by offset"
        )
    return _search(store, number=None, timestamp_ns=within(timestamp_ns))


def within(value: int) -> int:
    """The number or time nearest to `value` that a message can have: the year 9999 is the end."""
    return max(-FAR, min(value, FAR))


def _search(store: Store, *, number: int | None, timestamp_ns: int | None) -> int:
    end = store.end()
    for info, first, last in store.ranges(end.head, end.tail):
        known = store.format.describe(info)
        if timestamp_ns is not None and known.last_ns is not None and known.last_ns < timestamp_ns:
            continue
        if number is not None and known.next_number is not None and known.next_number <= number:
            continue
        segment = store.segment_at(first)
        offset, found = _core.find_frame(
            segment, first, last, number=number, timestamp_ns=timestamp_ns
        )
        if found:
            return offset
    return end.tail
