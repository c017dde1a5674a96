"""The Python processes of a running stream, killed: workers, their daemon, the source's runner.

Spark repeats what a dead worker was doing; without its source or its commit the query fails and is
started again from its checkpoint. Two other processes put into the target meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock import Queue
from penstock.spark.versions import HAS_LIMITS
from tests.spark.conftest import Sessions
from tests.spark.killing import OTHERS, Producer, each_once, stop_all

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.crash]


@pytest.fixture(autouse=True)
def no_dead_workers(sessions: Sessions) -> Iterator[None]:
    """Spark keeps idle workers for its next job and does not notice that they were killed."""
    yield
    sessions.drop()


def pythons(java: int) -> list[int]:
    """The Python processes of a JVM. Not all are below it: workers outlive their killed daemon.

    Each has inherited the name of the file by which the JVM and its driver found each other.
    """
    mark = next(word for word in words(java, "environ") if word.startswith(b"_PYSPARK_DRIVER_CONN"))
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != java:
            with contextlib.suppress(OSError):
                if mark in words(int(entry.name), "environ"):
                    found.append(int(entry.name))
    return sorted(found)


def words(pid: int, name: str) -> list[bytes]:
    return Path(f"/proc/{pid}/{name}").read_bytes().split(b"\0")


def start(spark: SparkSession, folder: Path) -> Any:
    """A new query. Spark may plan it with a worker that is dead already, and notices then."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    for _ in range(20):
        try:
            return start_once(spark, folder)
        except (Py4JJavaError, PySparkException) as error:
            last = error
    raise last


def start_once(spark: SparkSession, folder: Path) -> Any:
    frame = spark.readStream.format("penstock").option("group", "g")
    frame = frame.option("minPartitions", "2")
    if HAS_LIMITS:
        frame = frame.option("maxOffsetsPerTrigger", "40")
    return (
        frame.load(str(folder / "in"))
        .select("body")
        .writeStream.format("penstock")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )


def kills(spark: SparkSession, folder: Path, count: int) -> None:
    chance, gateway = random.Random(3), spark.sparkContext._gateway
    assert gateway is not None
    for queue in ("in", "out"):
        Queue(folder / queue).close()
    others = [Producer(folder / "out", name) for name in OTHERS]
    query = start(spark, folder)
    total = landed = killed = 0
    try:
        with Queue(folder / "in") as source, Queue(folder / "out") as target:
            group = target.group("watch", ack="auto")
            while killed < count or landed < total:
                if landed >= total:
                    source.put_many([b"row %d" % number for number in range(total, total + 60)])
                    total += 60
                    for other in others:
                        other.put()
                    alive = pythons(gateway.proc.pid)
                    for pid in chance.sample(alive, min(1, len(alive))):
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)
                            killed += 1
                fresh = group.get_many(1000, 0.2)
                landed += sum(message.body.startswith(b"row") for message in fresh)
                if not query.isActive:
                    query = start(spark, folder)
    finally:
        query.stop()
        counts = stop_all(others)
    each_once(folder / "in", folder / "out", counts)


def test_a_stream_survives_its_python_processes(spark: SparkSession, tmp_path: Path) -> None:
    kills(spark, tmp_path, 4)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_stream_survives_two_hundred_kills(spark: SparkSession, tmp_path: Path) -> None:
    kills(spark, tmp_path, 200)
