"""The one group that an mfq queue keeps itself: the default group, in `consumer.offset`."""

from __future__ import annotations

from pathlib import Path

from penstock import _core
from penstock.formats.contract import Host, OwnGroups
from penstock.formats.mfq import segments
from penstock.formats.mfq.segments import CONSUMER, read_offset, write_offset
from penstock.formats.values import Damage
from penstock.options import DEFAULT_GROUP
from penstock.sidecar.groups import GroupProgress


class MfqGroups(OwnGroups):
    """The group in `consumer.offset`; all others live in the sidecar."""

    def __init__(self, path: Path, store: Host) -> None:
        self._path, self._store = path, store

    def mirror(self, group: str) -> _core.Mirror | None:
        """`consumer.offset` for the default group."""
        if group != DEFAULT_GROUP:
            return None
        return _core.consumer_offset(segments.offset_path(self._path, CONSUMER))

    def bookmarks(self) -> dict[str, int]:
        """The default group, once anything was consumed."""
        offset = read_offset(self._path, CONSUMER)
        return {DEFAULT_GROUP: offset} if offset > 0 else {}

    def cursor(self, group: str) -> int | None:
        """`consumer.offset`: a consumer that is not ours moves it too."""
        return read_offset(self._path, CONSUMER) if group == DEFAULT_GROUP else None

    def bookmark_of(self, group: str, progress: GroupProgress) -> int | None:
        return progress.cursor if group == DEFAULT_GROUP else None

    def fault(self, group: str) -> Damage | None:
        """A `consumer.offset` where no message begins."""
        consumer, end = read_offset(self._path, CONSUMER), self._store.end()
        path, found = segments.offset_path(self._path, CONSUMER), f"offset {consumer}"
        if consumer > end.tail:
            return Damage(path, 0, 8, found, f"at most the end, {end.tail}")
        if not end.head < consumer < end.tail:
            return None
        segment = self._store.segment_at(consumer)
        limit = segment.end if segment.end is not None else end.tail
        if _core.is_boundary(segment, consumer, limit):
            return None
        return Damage(path, 0, 8, f"{found}, where no message begins", "a message's offset")

    def set_bookmark(self, group: str, offset: int) -> None:
        write_offset(self._path, CONSUMER, offset)
