"""One Spark session for the whole run; most tests need none.

A test that hangs is ended after `LIMIT_S`, in the middle of a call into the JVM: that connection
is unusable from then on. The next test gets a new JVM instead of failing too.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.spark import cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

IS_OLD = False
if importlib.util.find_spec("pyspark") is None:
    collect_ignore_glob = ["test_*.py"]
else:  # Without importing it, which not every run needs.
    IS_OLD = importlib.metadata.version("pyspark").startswith(("4.0.", "4.1."))

LIMIT_S = 600
"""Far more than any test takes on a busy machine: it is there for what hangs."""

UNCLOSED = "ignore:unclosed <socket.socket .*'127.0.0.1':ResourceWarning"
"""An older PySpark leaves the socket of each `collect` to the garbage collector, and says so."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("spark") and IS_OLD:
            item.add_marker(pytest.mark.filterwarnings(UNCLOSED))
        is_short = item.get_closest_marker("slow") is None
        if item.get_closest_marker("spark") and not item.get_closest_marker("timeout") and is_short:
            item.add_marker(pytest.mark.timeout(LIMIT_S))


class Sessions:
    """The session of this run, made anew when it is broken."""

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        self._factory = factory
        self._current: SparkSession | None = None

    def get(self) -> SparkSession:
        if self._current is None or not self._answers(self._current):
            self.drop()
            self._current = self._start()
        return self._current

    def _start(self) -> SparkSession:
        import penstock.spark

        folder = self._factory.mktemp("spark")
        os.environ["SPARK_HOME"] = str(cluster.lean_home(folder))
        session = penstock.spark.session(
            "tests",
            spark_sql_warehouse_dir=str(folder / "warehouse"),
            spark_local_dir=str(folder / "local"),
            spark_driver_memory="1g",
            spark_driver_extraJavaOptions=cluster.LEAN,
        )
        session.sparkContext.setLogLevel("OFF")
        return session

    def _answers(self, session: SparkSession) -> bool:
        """Whether the JVM hears us; a query that a test left behind is stopped."""
        try:
            for query in session.streams.active:
                query.stop()
            return not session.sparkContext._jsc.sc().isStopped()
        except Exception:
            return False

    def drop(self) -> None:
        """Ends the JVM; the next test gets a new one."""
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        gateway, SparkContext._gateway = SparkContext._gateway, None
        if gateway is not None:
            with contextlib.suppress(Exception):
                gateway.shutdown()
            gateway.proc.kill()
            gateway.proc.wait()
            with contextlib.suppress(BrokenPipeError):
                gateway.proc.stdin.close()
        SparkContext._jvm = SparkContext._active_spark_context = None
        SparkSession._instantiatedSession = SparkSession._activeSession = None
        self._current = None

    def close(self) -> None:
        if self._current is not None:
            with contextlib.suppress(Exception):
                self._current.stop()


@pytest.fixture(scope="session")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sessions]:
    found = Sessions(tmp_path_factory)
    yield found
    found.close()


@pytest.fixture
def spark(sessions: Sessions) -> SparkSession:
    return sessions.get()
