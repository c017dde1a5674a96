"""Filters that the source takes over: rows that they reject never leave the core.

PySpark 4.1 and newer hand filters over; an older one never asks for this module.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from penstock.engine import positions
from penstock.spark.batch import EVERY_TAG, BatchReader
from penstock.spark.reading import TagFilter


class PushdownReader(BatchReader):
    """The same with filters taken over, for those who ask for it (option `pushdown`).

    Spark fails a reader that takes filters in a session that gives none, so there are two. And
    Spark keeps what was planned with filters for the next query on the same DataFrame, even for
    one without filters: nobody gets this who does not ask for it.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Takes what it can; what it does not take over completely Spark checks again."""
        return [one for one in filters if not self._take(one)]

    def _take(self, one: Filter) -> bool:
        """Whether no row that fails the filter will be given out."""
        column = getattr(one, "attribute", ())
        value = getattr(one, "value", None)
        bounds = self.bounds
        if self.options.layout == "kafka":
            return False
        if column == ("tag",):
            return self._take_tag(one)
        if column == ("offset",) and isinstance(value, int):
            if isinstance(one, GreaterThan | GreaterThanOrEqual | EqualTo):
                bounds.first_offset = max(bounds.first_offset, value)
            if isinstance(one, LessThan | LessThanOrEqual | EqualTo):
                bounds.last_offset = min(bounds.last_offset, value)
        if column == ("timestamp",) and isinstance(value, datetime):
            ns = positions.datetime_ns(value)
            if isinstance(one, GreaterThan | GreaterThanOrEqual | EqualTo):
                bounds.first_ns = max(bounds.first_ns, ns)
            if isinstance(one, LessThan | LessThanOrEqual | EqualTo):
                bounds.last_ns = min(bounds.last_ns, ns + 999)
        return False

    def _take_tag(self, one: Filter) -> bool:
        """One filter on tags goes to the core, where a rejected message is never built."""
        if self.bounds.tags != EVERY_TAG:
            return False
        if isinstance(one, EqualTo | In):
            wanted = one.value if isinstance(one, In) else (one.value,)
            texts, dialect = [text for text in wanted if text], "exact"
        elif isinstance(one, StringStartsWith) and one.value:
            texts, dialect = [one.value], "prefix"
        else:
            return False
        if not texts or any(";" in text or text.strip() != text for text in texts):
            return False
        self.bounds.tags = TagFilter(";".join(texts), dialect)
        return True
