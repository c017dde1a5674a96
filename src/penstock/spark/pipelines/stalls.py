"""Streams that stand still: Spark calls a query active even while its driver waits in vain."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

PATIENCE_S = 600.0
"""How long a stream may be in the middle of a batch without a task, a step or a word."""


class StalledError(PenstockError):
    """A query that is in the middle of a batch and does nothing."""


class StallDetector:
    """Notices a query that is in the middle of a batch while nothing of it moves.

    A long task is no such thing: as long as a task runs, nothing is amiss.
    """

    def __init__(self, query: StreamingQuery, patience_s: float = PATIENCE_S) -> None:
        self._query, self._patience_s = query, patience_s
        self._seen: object = None
        self._since = time.monotonic()

    def look(self) -> None:
        """Ends the query, with an error, if it has stood still for too long."""
        status, last = self._query.status, self._query.lastProgress
        seen = (status["message"], last and (last["batchId"], last["timestamp"]), self._tasks())
        is_idle = not status["isTriggerActive"] or seen[2][1] > 0
        now = time.monotonic()
        if seen != self._seen or is_idle:
            self._seen, self._since = seen, now
        elif now - self._since > self._patience_s:
            batch = last["batchId"] + 1 if last else 0
            self._query.stop()
            raise StalledError(
                f"batch {batch} has stood still for {now - self._since:.0f} s at "
                f"{status['message']!r} while no task ran; the query was stopped, and goes on from "
                f"its checkpoint when it is started again"
            )

    def _tasks(self) -> tuple[int, int]:
        """How many tasks are done and how many run, in what Spark still remembers."""
        from pyspark.sql import SparkSession

        session = SparkSession.getActiveSession()
        if session is None or getattr(session, "_sc", None) is None:
            return 0, 0
        tracker = session.sparkContext.statusTracker()
        stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
        known = [stage for stage in stages if stage is not None]
        done = sum(stage.numCompletedTasks for stage in known)
        return done, sum(stage.numActiveTasks for stage in known)
