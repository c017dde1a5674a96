"""What Spark calls: options and a schema go in, a reader comes out."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.errors import OptionError
from penstock.spark import schema as schemas
from penstock.spark.batch import BatchReader
from penstock.spark.options import SourceOptions
from penstock.spark.stream import StreamReader, UnlimitedReader
from penstock.spark.versions import HAS_LIMITS, lighten_worker

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def schema(options: Mapping[str, str]) -> StructType:
    """The columns unless `.schema()` names others."""
    lighten_worker()
    return schemas.default_schema(SourceOptions.of(options))


def reader(options: Mapping[str, str], wanted: StructType) -> BatchReader:
    """A batch reader for the columns that are asked for."""
    lighten_worker()
    parsed = SourceOptions.of(options)
    schemas.check(parsed, wanted)
    is_taken = parsed.pushdown and parsed.table == "messages"
    if is_taken and _caller_hands_filters_over():
        from penstock.spark.pushdown import PushdownReader

        return PushdownReader(parsed, wanted)
    return BatchReader(parsed, wanted)


def stream_reader(options: Mapping[str, str], wanted: StructType) -> StreamReader:
    """A stream reader for the columns that are asked for."""
    parsed = SourceOptions.of(options)
    if parsed.table not in ("messages", "frames"):
        raise OptionError("table", parsed.table, "messages or frames in a stream")
    schemas.check(parsed, wanted)
    return StreamReader(parsed, wanted) if HAS_LIMITS else UnlimitedReader(parsed, wanted)


def _caller_hands_filters_over() -> bool:
    """Whether Spark asks for a reader in order to give it filters.

    It makes the reader in one of two places, and fails a query when a reader takes filters in the
    place that has none to give: who asks is the only sign there is.
    """
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename.endswith("data_source_pushdown_filters.py"):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False
