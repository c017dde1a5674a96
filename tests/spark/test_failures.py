"""How runs end before their time, and what they say then."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from penstock import OptionError, Queue
from penstock.spark.pipelines import Request, failures
from penstock.spark.pipelines.request import Run

FAILED = """[STREAM_FAILED] Query [id = 1] terminated with exception: [PYTHON_EXCEPTION] Traceback:
  File "reading.py", line 90, in read
    raise DataLoss(text)
penstock.spark.reading.DataLoss: queue q: /q/log/0.seg:4096: found checksum 1, expected 2
 SQLSTATE: 38000 SQLSTATE: XXKST
=== Streaming Query ===
"""


def test_a_failure_is_our_own_sentence_wherever_spark_has_put_it() -> None:
    error = RuntimeError(FAILED)
    assert failures.sentence(error) == "queue q: /q/log/0.seg:4096: found checksum 1, expected 2"
    assert failures.is_damage(error)


def test_a_failure_of_spark_is_its_first_sentence() -> None:
    error = RuntimeError(
        "An error occurred while calling o1.start.\n: org.apache.spark.SparkNotFound: "
        "[DATA_SOURCE_NOT_FOUND] Failed to find delta.\n\tat org.apache.spark"
    )
    assert failures.sentence(error) == "Spark: Failed to find delta. (DATA_SOURCE_NOT_FOUND)"
    assert not failures.is_damage(error)


def test_a_failure_inside_a_failure_is_the_inner_one() -> None:
    error = RuntimeError(
        "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: [UNSUPPORTED_TYPE] "
        "The CSV datasource doesn't support `headers`. SQLSTATE: 0A000 SQLSTATE: XXKST\n=== Q ==="
    )
    wanted = "Spark: The CSV datasource doesn't support `headers`. (UNSUPPORTED_TYPE)"
    assert failures.sentence(error) == wanted
    error = RuntimeError(
        "[PYTHON_DATA_SOURCE_ERROR] Failed to read: Traceback (most recent call last):\n"
        '  File "x.py", line 1, in read\nbotocore.errors.NoCredentialsError: Unable to locate\n'
    )
    assert failures.sentence(error) == "NoCredentialsError: Unable to locate"


def test_other_failures_say_what_they_are() -> None:
    assert failures.sentence(OptionError("to", "", "a folder")).startswith("OptionError: to=")
    assert failures.sentence(KeyboardInterrupt()) == "KeyboardInterrupt"


class Query:
    """A query without end, during which someone asks for it."""

    status: Any = {"message": "", "isTriggerActive": False}  # noqa: RUF012
    lastProgress = None
    recentProgress: Any = ()
    is_stopped = False

    def awaitTermination(self, seconds: float) -> bool:
        os.kill(os.getpid(), signal.SIGTERM)
        return False

    def stop(self) -> None:
        self.is_stopped = True


@pytest.mark.parametrize("follow", [True, False])
def test_a_stream_that_follows_ends_well_when_it_is_asked_to(tmp_path: Any, follow: bool) -> None:
    Queue(tmp_path / "q").close()
    record, query = (
        Run("bronze", Request([str(tmp_path / "q")], follow=follow), str(tmp_path)),
        Query(),
    )
    before = signal.getsignal(signal.SIGTERM)
    if follow:
        with record:
            assert record.drain(query) == 0  # type: ignore[arg-type]
    else:
        with pytest.raises(KeyboardInterrupt), record:
            record.drain(query)  # type: ignore[arg-type]
    assert query.is_stopped
    assert record.outcome == ("done" if follow else "interrupted")
    assert signal.getsignal(signal.SIGTERM) == before
