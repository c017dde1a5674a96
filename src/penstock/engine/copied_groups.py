"""Groups of a queue that is copied: each begins in the copy where it stood.

A cursor is an offset, and offsets are the target's own: the cursor of the copy is the offset of the
first copied message that the group had not done with. What is more than a cursor stays behind and
is counted: messages acked ahead of it come again, leases and delays of a nack begin anew.
"""

from __future__ import annotations

from typing import Any

from penstock.engine import overview
from penstock.engine.queue import Queue
from penstock.options import GroupOptions
from penstock.records import dataclass, field


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a group of the source stands."""

    name: str
    options: GroupOptions
    cursor: int
    """The lowest offset that is not acked."""
    next: int
    """What was never handed out begins here."""
    outstanding: frozenset[int]

    def is_again(self, offset: int) -> bool:
        """Whether a message was acked and is handed out again all the same."""
        return self.cursor <= offset < self.next and offset not in self.outstanding


@dataclass(slots=True)
class Carried:
    """What became of the groups."""

    cursors: dict[str, int] = field(default_factory=dict)
    """Group → its cursor in the target."""
    again: dict[str, int] = field(default_factory=dict)
    """Group → messages that it had acked ahead of its cursor, which come again."""
    left: dict[str, str] = field(default_factory=dict)
    """Group → why it was not carried over."""


class Groups:
    """The groups of one conversion: told of every message that goes, made when all have gone."""

    carried: Carried

    def __init__(self, source: Queue, target: Queue, wanted: bool | None) -> None:
        """`wanted` is `None`: groups are copied where that deletes no message of the copy."""
        self.target = target
        self.carried = Carried()
        self._seen = 0
        self._marks: dict[str, int] = {}
        names = source.groups() if wanted is not False else []
        self._standings = [s for s in (self._standing(source, n, wanted) for n in names) if s]

    def _standing(self, source: Queue, name: str, wanted: bool | None) -> Standing | None:
        options = overview.options_of(source.store, name)
        can, why = self.target.store.capabilities, ""
        if options.exclusive:
            why = "it belongs to one consumer and goes with it"
        elif name in self.target.groups():
            why = "the target has a group of this name"
        elif options.tags and not can.tags:
            why = (
                f"it reads {options.tags!r}, and format {self.target.store.format.name} has no tags"
            )
        elif wanted is None and can.deletes_consumed:
            why = f"format {self.target.store.format.name} deletes what every group has acked"
        if why:
            self.carried.left[name] = why
            return None
        at = overview.progress(source.store, name)
        return Standing(name, options, at.cursor, at.next, frozenset(at.outstanding))

    def going(self, offset: int) -> None:
        """The message at this offset of the source is the next one in the target."""
        for one in self._standings:
            if offset >= one.cursor:
                self._marks.setdefault(one.name, self._seen)
            if one.is_again(offset):
                self.carried.again[one.name] = self.carried.again.get(one.name, 0) + 1
        self._seen += 1

    def make(self, batches: list[tuple[int, int]]) -> None:
        """Makes the groups; `batches` are offset and count of each batch in the target."""
        for one in self._standings:
            start = self._offset_of(self._marks.get(one.name, self._seen), batches)
            made = self.target.group(one.name, start=start, **_options(one.options))
            self.carried.cursors[one.name] = made.cursor
        if self._standings:
            self.target.sync_groups()

    def _offset_of(self, index: int, batches: list[tuple[int, int]]) -> int:
        for offset, count in batches:
            if index < count:
                scan = self.target.scan(start=offset)
                found = next(m.offset for at, m in enumerate(scan) if at == index)
                assert found is not None
                return found
            index -= count
        return self.target.offsets().tail


def _options(options: GroupOptions) -> dict[str, Any]:
    return {name: value for name, value in options.as_dict().items() if name != "exclusive"}
