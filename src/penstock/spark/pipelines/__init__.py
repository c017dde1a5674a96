"""Ready pipelines: each is a function, a command, and a record of every run.

from penstock.spark import pipelines, session

pipelines.run(session(), "bronze", pipelines.Request(["/data/orders"], to="/lake/bronze"))

penstock pipeline run bronze /data/orders --to /lake/bronze
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.errors import OptionError, either
from penstock.spark import queues
from penstock.spark.pipelines.request import Request as Request
from penstock.spark.pipelines.request import Run as Run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Pipeline = Callable[["SparkSession", Request, Run], dict[str, Any]]

NAMES = {
    "bronze": "every message as it is, to Parquet, once; goes on where it stopped",
    "silver": "typed columns from JSON or CBOR bodies, once per id; bad rows to dead letters",
    "rollup": "messages and bytes per queue, tag and minute",
    "replay": "a range of messages, put again to another queue",
    "audit": "checksums, gaps, duplicates, tags and hours: a report in HTML",
    "convert": "to a queue of another format, compared afterwards",
    "compact": "full segments to Parquet, compared, then trimmed if asked for",
    "lag": "how far every group is behind",
}
"""Name → what it does."""

NEED_NO_TARGET = {"audit", "lag"}
"""Those that can show what they find instead of writing it."""


def pipeline(name: str) -> Pipeline:
    """The function of a pipeline."""
    from importlib import import_module

    if name not in NAMES:
        raise OptionError("pipeline", name, either(NAMES))
    found: Pipeline = import_module(f"penstock.spark.pipelines.{name}").run
    return found


def check(name: str, request: Request) -> None:
    """What can be told before Spark has started: the pipeline, its queues and its schema."""
    pipeline(name)
    queues.find(request.parsed())
    if name not in NEED_NO_TARGET:
        request.target()
    if name == "silver" and not request.schema:
        raise OptionError("schema", "", "the columns of the bodies as DDL, or infer")


def run(spark: SparkSession, name: str, request: Request, runs: str = "runs") -> dict[str, Any]:
    """Runs a pipeline and leaves `<runs>/<id>.json`; returns what stands in it."""
    check(name, request)
    with Run(name, request, runs) as record:
        record.facts.update(pipeline(name)(spark, request, record))
    return record.as_dict()
