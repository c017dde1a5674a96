"""What would hang is noticed: a query that stands still, callbacks that nobody could hear."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from penstock import StorageError
from penstock.spark.pipelines.stalls import StallDetector, StalledError
from penstock.spark.session import SELECT_LIMIT, listen_for_callbacks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark.conftest import Sessions


class Standing:
    """A query in the middle of a batch."""

    def __init__(self) -> None:
        self.status = {"message": "Processing new data", "isTriggerActive": True}
        self.lastProgress: dict[str, Any] | None = None
        self.is_stopped = False

    def stop(self) -> None:
        self.is_stopped = True


def watched(query: Any, monkeypatch: pytest.MonkeyPatch, running: int) -> StallDetector:
    stalls = StallDetector(query, patience_s=60)
    now = [0.0]
    monkeypatch.setattr(stalls, "_tasks", lambda: (0, running))
    monkeypatch.setattr("penstock.spark.pipelines.stalls.time.monotonic", lambda: now[0])
    stalls.look()
    now[0] = 61.0
    return stalls


def test_a_query_that_stands_still_is_stopped_and_says_where(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    query = Standing()
    stalls = watched(query, monkeypatch, running=0)
    with pytest.raises(StalledError, match="batch 0 has stood still for 61 s at 'Processing"):
        stalls.look()
    assert query.is_stopped


@pytest.mark.parametrize("moves", ["a task runs", "a batch ended", "it waits for data"])
def test_a_query_that_moves_or_waits_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, moves: str
) -> None:
    query = Standing()
    stalls = watched(query, monkeypatch, running=int(moves == "a task runs"))
    if moves == "a batch ended":
        query.lastProgress = {"batchId": 0, "timestamp": "1"}
    if moves == "it waits for data":
        query.status["isTriggerActive"] = False
    stalls.look()
    assert not query.is_stopped


def test_callbacks_that_nobody_could_hear_are_an_error_not_a_hang() -> None:
    socket = SimpleNamespace(fileno=lambda: SELECT_LIMIT)
    gateway = SimpleNamespace(_callback_server=SimpleNamespace(server_socket=socket))
    spark: Any = SimpleNamespace(_sc=SimpleNamespace(_gateway=gateway))
    with pytest.raises(StorageError, match="so many files are open"):
        listen_for_callbacks(spark)


@pytest.mark.spark
def test_a_session_of_ours_listens_from_its_beginning(spark: SparkSession) -> None:
    gateway: Any = spark.sparkContext._gateway
    assert gateway._callback_server.server_socket.fileno() < SELECT_LIMIT


@pytest.mark.slow
@pytest.mark.spark
def test_the_tests_survive_a_jvm_that_is_gone(sessions: Sessions) -> None:
    first = sessions.get()
    gateway: Any = first.sparkContext._gateway
    gateway.proc.kill()
    gateway.proc.wait()
    second = sessions.get()
    assert second is not first
    assert second.range(3).count() == 3
