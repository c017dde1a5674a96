"""What a task reads: facts, no handles.

Every span has absolute offsets, so that a task that runs again reads the same rows. Nothing here
needs PySpark: shipping a queue plans in the same words.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

ROW_BYTES = 16
"""What a message costs that is only counted."""


@dataclass(frozen=True)
class Span:
    """A range of one segment."""

    queue: str
    where: str
    identity: str
    base: int
    read_from: int
    """Where the frame of `start` begins; before it for a message inside a compressed frame."""
    start: int
    end: int
    file: str
    """The segment's name."""
    is_shipped: bool = False
    format: str | None = None
    """What the planner found, so that a task need not try them all."""
    first_ns: int | None = None
    last_ns: int | None = None
    messages: int | None = None
    """How many there are, where only that is asked for and the plan knows it."""

    @property
    def bytes(self) -> int:
        """About as many as a task has to do with."""
        return self.end - self.read_from if self.messages is None else self.messages * ROW_BYTES


class Source(Protocol):
    """A queue as the planner sees it, wherever it lies."""

    def spans(self, start: int, end: int) -> list[Span]:
        """The range, one span per segment."""

    def cuts(self, span: Span, every: int) -> list[int]:
        """Where a span may be cut into parts of about `every` bytes."""


def cut(queue: Source, span: Span, most: int) -> Iterator[Span]:
    """The span in parts of about `most` bytes, as far as it can be cut."""
    if span.bytes <= most or span.messages is not None:
        yield span
        return
    start, read_from = span.start, span.read_from
    for at in queue.cuts(span, most):
        if at > start:
            yield replace(span, start=start, read_from=read_from, end=at)
            start = read_from = at
    yield replace(span, start=start, read_from=read_from)
