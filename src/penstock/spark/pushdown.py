"""Filters that the source takes over: rows that they reject never leave the core.

PySpark 4.1 and newer hand filters over; an older one never asks for this module.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from pyspark.sql.datasource import Filter, In

from penstock.engine import positions
from penstock.spark.batch import BatchReader
from penstock.spark.bounds import Bounds


class PushdownReader(BatchReader):
    """The same with filters taken over, for those who ask for it (option `pushdown`).

    Spark fails a reader that takes filters in a session that gives none, so there are two. And
    Spark keeps what was planned with filters for the next query on the same DataFrame, even for
    one without filters: nobody gets this who does not ask for it.
    """

    bounds: Bounds

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Takes what it can; what it does not take over completely Spark checks again."""
        return [one for one in filters if not self._take(one)]

    def _take(self, one: Filter) -> bool:
        """Whether no row that fails the filter will be given out."""
        column: tuple[str, ...] = getattr(one, "attribute", ())
        if self.options.layout == "kafka" or len(column) != 1:
            return False
        kind, values = type(one).__name__, _values(one)
        is_taken = column == ("tag",) and self.bounds.takes_tags(kind, values)
        self.bounds = self.bounds.narrowed(kind, column[0], values)
        return is_taken


def _values(one: Filter) -> list[Any]:
    """What the column is compared with; times as microseconds since 1970."""
    value: Any = getattr(one, "value", None)
    found = list(value) if isinstance(one, In) else [value]
    return [
        positions.datetime_ns(each) // 1000 if isinstance(each, datetime) else each
        for each in found
    ]
