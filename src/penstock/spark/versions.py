"""Where PySpark versions differ: what a newer one has, or what stands in for it in an older one.

3.5   no Python data sources: `read_batches` and `write_batches` go through `mapInArrow`
4.0   batch and streams both ways; no filters handed over, no Arrow rows for stream writers
4.1   filters (option `pushdown`), Arrow rows for stream writers
4.2   limits on micro-batches, and the source is told where the next one begins
"""

from __future__ import annotations

import gc
import sys
from dataclasses import dataclass
from zipimport import zipimporter

import pyarrow as pa
import pyspark
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

VERSION = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
HAS_SOURCES = VERSION >= (4, 0)
HAS_LIMITS = VERSION >= (4, 2)

if HAS_SOURCES:
    from pyspark.sql import datasource
    from pyspark.sql.datasource import (
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamWriter,
        InputPartition,
        WriterCommitMessage,
    )
else:
    datasource = None  # type: ignore[assignment]

    class DataSourceReader:  # type: ignore[no-redef]
        """What reads a batch."""

    class DataSourceArrowWriter:  # type: ignore[no-redef]
        """What writes a batch."""

    class DataSourceStreamWriter:  # type: ignore[no-redef]
        """What writes a stream."""

    class WriterCommitMessage:  # type: ignore[no-redef]
        """What a task of a writer leaves for the commit."""

    class InputPartition:  # type: ignore[no-redef]
        """What a task reads."""

        def __init__(self, value: object) -> None:
            self.value = value


if HAS_LIMITS:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
else:

    class ReadLimit:  # type: ignore[no-redef]
        """How much a micro-batch may take."""

    class ReadAllAvailable(ReadLimit):  # type: ignore[no-redef]
        """Everything: an older Spark asks for nothing else."""

    @dataclass
    class ReadMaxRows(ReadLimit):  # type: ignore[no-redef]
        """A batch has at most so many rows."""

        max_rows: int

    @dataclass
    class ReadMaxBytes(ReadLimit):  # type: ignore[no-redef]
        """A batch has at most so many bytes."""

        max_bytes: int

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """An older Spark runs `availableNow` as one batch."""


def arrow_schema(schema: StructType) -> pa.Schema:
    """Spark's columns in Arrow's words, exactly as Spark compares them."""
    zone = {"timezone": "UTC"} if HAS_LIMITS else {}  # An older one knows no other.
    return to_arrow_schema(schema, **zone)  # type: ignore[arg-type]


_frozen = {"modules": 0}
"""How many there were at the last freeze: asking the collector walks over all that is frozen."""


def lighten_worker() -> None:
    """Takes off PySpark's Python processes what they do between calls to us, over and over.

    After each task they look for garbage among all objects there are, of which nearly all belong
    to modules that stay: 25 ms, as long as a short task. What is there when we are called is not
    looked at again. It is frozen anew only after more modules were imported: whatever is garbage
    at that moment stays too, so there must not be a freeze per task.
    """
    if getattr(sys.modules["__main__"].__spec__, "name", "") == "pyspark.daemon":
        if len(sys.modules) > _frozen["modules"]:
            _frozen["modules"] = len(sys.modules)
            gc.freeze()
        forget_zips()


def forget_zips() -> None:
    """Keeps PySpark's workers from reading the directory of `pyspark.zip` again.

    Those of 4.0 to 4.2 make Python look at it again before each task, once for each package that
    came out of it: a tenth of a second. Without a finder there is nothing to look at, and Python
    makes one anew when it needs it.
    """
    if VERSION < (4, 3):
        for path, finder in list(sys.path_importer_cache.items()):
            if isinstance(finder, zipimporter):
                del sys.path_importer_cache[path]


if hasattr(datasource, "DataSourceStreamArrowWriter"):
    DataSourceStreamArrowWriter = datasource.DataSourceStreamArrowWriter
else:

    class DataSourceStreamArrowWriter(  # type: ignore[no-redef, misc]
        DataSourceStreamWriter, DataSourceArrowWriter
    ):
        """4.0 hands Arrow to whatever is an Arrow writer, in a stream too."""


__all__ = [
    "HAS_LIMITS",
    "HAS_SOURCES",
    "VERSION",
    "DataSourceArrowWriter",
    "DataSourceReader",
    "DataSourceStreamArrowWriter",
    "InputPartition",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
    "WriterCommitMessage",
    "arrow_schema",
    "forget_zips",
    "lighten_worker",
]
