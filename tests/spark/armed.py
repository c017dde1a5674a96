"""A driver that is killed at a step: the format "armed" is penstock's, and dies where it is told.

`main` runs a stream from FOLDER/in to FOLDER/out as soon as a line comes in. `PENSTOCK_KILL` says
at which step it dies, at the how manyth time, and what of it dies: `jvm` or `all`. The environment
reaches the Python processes that Spark starts, where the steps are.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition, WriterCommitMessage

from penstock.spark import sink
from penstock.spark.options import SourceOptions
from penstock.spark.stream import StreamReader, UnlimitedReader
from penstock.spark.versions import HAS_LIMITS, ReadLimit
from pyspark_penstock import DefaultSource
from tests.spark import cluster, killing

ORDER = "PENSTOCK_KILL"
STEPS = (
    "ask where it begins", "ask how far it goes", "plan the tasks", "read a task",
    "stage a task", "commit the batch", "append the rows", "rows are appended",
    "write the ledger", "ledger is written", "remove the note", "note is removed",
    "sweep a staged file", "batch is committed", "tell the source", "source is told",
)  # fmt: skip
SETTINGS = {
    # One slot: two tasks of a batch come one after the other and share their Python workers.
    "spark.master": "local[1,4]",
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": cluster.LEAN,
    # Compiling a plan that lives for two batches costs more than it saves.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def step(name: str) -> None:
    """The driver has come here; maybe this is where it dies."""
    at, times, what, folder = os.environ[ORDER].split("|")
    if name != at:
        return
    # Several processes come to a step: each adds a byte, whoever fills the count kills.
    with (Path(folder) / "reached").open("ab", buffering=0) as file:
        file.write(b"!")
        if file.tell() != int(times):
            return
    with (Path(folder) / "died").open("a") as file:
        file.write(f"{name}\n")
    for pid in [java()] if what == "jvm" else family():
        os.kill(pid, signal.SIGKILL)


def java() -> int:
    """The JVM that this process belongs to."""
    pid = os.getpid()
    while Path(f"/proc/{pid}/exe").readlink().name != "java":
        pid = int(stat(pid)[1])
    return pid


def family() -> list[int]:
    """Every process of the driver: its session; this one last."""
    mine, found = os.getsid(0), []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                found += [int(entry.name)] if int(stat(int(entry.name))[3]) == mine else []
            except OSError:
                continue
    return [*found, os.getpid()]


def stat(pid: int) -> list[str]:
    """State, parent, group, session…"""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


@cache
def hook_once() -> None:
    """A worker serves many tasks."""
    killing.hook_effects(step)


class ArmedSteps:
    """What every reader does."""

    def initialOffset(self) -> dict[str, Any]:
        step("ask where it begins")
        return super().initialOffset()  # type: ignore[misc, no-any-return]

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        step("plan the tasks")
        return super().partitions(start, end)  # type: ignore[misc, no-any-return]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        step("read a task")
        return super().read(partition)  # type: ignore[misc, no-any-return]

    def commit(self, end: dict[str, Any]) -> None:
        step("tell the source")
        super().commit(end)  # type: ignore[misc]
        step("source is told")


class ArmedReader(ArmedSteps, StreamReader):
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        step("ask how far it goes")
        return super().latestOffset(start, limit)


class ArmedUnlimitedReader(ArmedSteps, UnlimitedReader):
    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]
        step("ask how far it goes")
        return super().latestOffset()


class ArmedWriter(sink.StreamWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        hook_once()
        return super().write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        hook_once()
        step("commit the batch")
        super().commit(messages, batchId)
        step("batch is committed")


class Armed(DefaultSource):
    @classmethod
    def name(cls) -> str:
        return "armed"

    def streamReader(self, schema: Any) -> StreamReader:
        kind = ArmedReader if HAS_LIMITS else ArmedUnlimitedReader
        return kind(SourceOptions.of(self.options), schema)

    def streamWriter(self, schema: Any, overwrite: bool) -> ArmedWriter:
        return ArmedWriter(sink.options_of(self.options, streaming=True))


def main(folder: str) -> None:
    """The driver: everything is ready before the line comes."""
    import penstock.spark

    spark = penstock.spark.session("armed", **SETTINGS)
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(Armed)
    sys.stdin.readline()
    frame = spark.readStream.format("armed").option("group", "g").option("minPartitions", "2")
    if HAS_LIMITS:
        frame = frame.option("maxOffsetsPerTrigger", "20")
    query = (
        frame.load(f"{folder}/in").select("body")
        .writeStream.format("armed").option("path", f"{folder}/out")
        .option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
