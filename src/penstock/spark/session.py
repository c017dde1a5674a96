"""A session with settings that fit: the right Python, filters handed over, Java found."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.errors import StorageError, UnsupportedError
from penstock.spark import java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    # In plain local[2] one dead task fails the query; four attempts make it what a cluster is.
    "spark.master": "local[2,4]",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    # For tables with the option `pushdown`: rows that a filter rejects never leave the core.
    "spark.sql.python.filterPushdown.enabled": "true",
    # Small batches cost most when queues are written.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    # Long rows must not make batches of 50 MB: fresh memory for each costs more than the rows do.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(4 << 20),
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
    # Without .crc files and a process per chmod, a micro-batch takes two thirds of the time.
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
}

SELECT_LIMIT = 1024


def session(name: str = "penstock", **settings: str | int | bool) -> SparkSession:
    """A local session, or the one there is.

    `settings` are Spark's own, with `_` for `.` where that is easier to write: both
    `session(**{"spark.master": "local[4]"})` and `session(spark_master="local[4]")` work.
    """
    java.ensure()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    for key, value in (SETTINGS | spelled(settings)).items():
        if value != "":
            text = str(value).lower() if isinstance(value, bool) else str(value)
            builder = builder.config(key, text)
    found: SparkSession = builder.getOrCreate()
    listen_for_callbacks(found)
    return found


def need_sources() -> None:
    """Refuses a PySpark that has no Python data sources, before Spark says that it knows no
    format of this name."""
    import pyspark

    if int(pyspark.__version__.partition(".")[0]) < 4:
        raise UnsupportedError(
            f"PySpark {pyspark.__version__} has no Python data sources: use 4.0 or newer, or "
            "penstock.spark.read_batches and write_batches, which go through mapInArrow"
        )


def spelled(settings: Mapping[str, str | int | bool]) -> dict[str, str | int | bool]:
    """Settings as Spark calls them: a name that has dots is one already (`…spark_catalog`)."""
    return {k if "." in k else k.replace("_", "."): value for k, value in settings.items()}


def listen_for_callbacks(spark: SparkSession) -> None:
    """Makes sure that `foreachBatch` will be heard, or says why it would not be.

    Spark calls back through a socket that py4j watches with select(2), which knows no descriptor
    above 1023: there the listener ends without a word, and the query waits for ever. A session of
    ours listens from its beginning; in other sessions this is found out before a query starts.
    """
    from pyspark.java_gateway import ensure_callback_server_started

    context = getattr(spark, "_sc", None)
    if context is None:  # Spark Connect runs the function elsewhere
        return
    ensure_callback_server_started(context._gateway)  # type: ignore[no-untyped-call]
    server = context._gateway._callback_server
    if server.server_socket.fileno() >= SELECT_LIMIT:
        raise StorageError(
            "/proc/self/fd", "so many files are open that Spark can't call back (py4j needs a "
            f"descriptor below {SELECT_LIMIT}); start the session with penstock.spark.session, or "
            "start it earlier",
        )  # fmt: skip
