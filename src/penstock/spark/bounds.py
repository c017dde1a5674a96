"""What a query's own conditions leave over, so that the rest need not be read.

Bounds are only ever wider than the conditions: Spark checks every row again. They come from
Spark's filters (option `pushdown`) or from the plan of a query (`penstock.spark.sql`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from penstock.errors import OptionError
from penstock.spark.spans import Span

FAR = 2**63 - 1


@dataclass(frozen=True)
class TagFilter:
    """Tags that pass, and how they are compared."""

    text: str = ""
    dialect: str = "modern"


EVERY_TAG = TagFilter()


@dataclass(frozen=True)
class Bounds:
    """Offsets, times and tags between which a row must be."""

    first_offset: int = 0
    last_offset: int = FAR
    first_ns: int = -FAR
    last_ns: int = FAR
    tags: TagFilter = EVERY_TAG

    def leaves(self, span: Span) -> bool:
        """Whether the span may hold a row that passes."""
        if span.end <= self.first_offset or span.start > self.last_offset:
            return False
        if span.first_ns is None or span.last_ns is None:
            return True
        return span.first_ns <= self.last_ns and span.last_ns >= self.first_ns

    def narrowed(self, kind: str, column: str, values: Sequence[Any]) -> Bounds:
        """With one comparison more, as Spark names it: `EqualTo`, `GreaterThan`, `In`….

        Times are microseconds since 1970, as Spark keeps them.
        """
        if column == "tag":
            return self._with_tags(kind, values)
        if column not in ("offset", "timestamp") or len(values) != 1:
            return self
        value = values[0]
        if not isinstance(value, int) or isinstance(value, bool):
            return self
        from_below = kind in ("GreaterThan", "GreaterThanOrEqual", "EqualTo")
        from_above = kind in ("LessThan", "LessThanOrEqual", "EqualTo")
        if column == "offset":
            first = max(self.first_offset, value) if from_below else self.first_offset
            last = min(self.last_offset, value) if from_above else self.last_offset
            return replace(self, first_offset=first, last_offset=last)
        ns = value * 1000
        first = max(self.first_ns, ns) if from_below else self.first_ns
        last = min(self.last_ns, ns + 999) if from_above else self.last_ns
        return replace(self, first_ns=first, last_ns=last)

    def takes_tags(self, kind: str, values: Sequence[Any]) -> bool:
        """Whether the core does this comparison of the tag, so that Spark need not repeat it."""
        return self.tags == EVERY_TAG and _tag_filter(kind, values) is not None

    def _with_tags(self, kind: str, values: Sequence[Any]) -> Bounds:
        """One filter on tags goes to the core, where a rejected message is never built."""
        if not self.takes_tags(kind, values):
            return self
        return replace(self, tags=_tag_filter(kind, values) or EVERY_TAG)

    def around(self, other: Bounds) -> Bounds:
        """Bounds that hold whatever either of the two holds."""
        return Bounds(
            min(self.first_offset, other.first_offset), max(self.last_offset, other.last_offset),
            min(self.first_ns, other.first_ns), max(self.last_ns, other.last_ns),
            self.tags if self.tags == other.tags else EVERY_TAG,
        )  # fmt: skip

    def as_text(self) -> str:
        """The bounds as the text of an option."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Bounds:
        """From an option; empty: no bounds."""
        if not text:
            return cls()
        try:
            found = json.loads(text)
            return cls(**(found | {"tags": TagFilter(**found["tags"])}))
        except (ValueError, TypeError, KeyError):
            raise OptionError("bounds", text, "what penstock.spark.sql writes") from None


def _tag_filter(kind: str, values: Sequence[Any]) -> TagFilter | None:
    if kind in ("EqualTo", "In"):
        texts, dialect = [str(text) for text in values if text], "exact"
    elif kind in ("StartsWith", "StringStartsWith") and values and values[0]:
        texts, dialect = [str(values[0])], "prefix"
    else:
        return None
    if not texts or any(";" in text or text.strip() != text for text in texts):
        return None
    return TagFilter(";".join(texts), dialect)
