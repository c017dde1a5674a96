"""The background of an open queue: syncing, preparing segments, retention.

Every process that has the queue open has a maintenance thread, and a quick writer a second one that
only prepares segments. The first one that finds something unsynced syncs it for all. The threads
sleep on a shared word that the first unsynced append raises, so an idle queue costs nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

from penstock.engine import exclusive
from penstock.engine.orphans import Orphans
from penstock.engine.threads import Background
from penstock.errors import ClosedError, PenstockError
from penstock.hints import TYPE_CHECKING
from penstock.logs import logger
from penstock.options import Durability

if TYPE_CHECKING:
    from penstock.engine.group import OpenQueue

SWEEP_S = 10.0
"""How often groups of dead consumers are looked for."""


class Maintenance:
    """One thread per open queue and process."""

    def __init__(self, queue: OpenQueue) -> None:
        self._queue = queue
        self._writer = queue.store.need_writer()
        self._stop = threading.Event()
        self._swept_at = time.monotonic()
        self._orphans, self._has_orphans = Orphans(queue), False
        self._failing: dict[str, str] = {}
        """By duty: the error with which it failed last."""
        self._preparing: Background | None = None
        """The second thread, which a quick writer gets."""
        self._writer.poke()  # A process may have asked for a sync, and died before it came.
        self._thread = Background(self._run, "penstock-maintenance")

    def tell_to_stop(self) -> None:
        """Asks the threads to end. One that waits for a lock ends when it has got it."""
        self._stop.set()
        self._writer.poke()

    def stop(self) -> None:
        """Stops the threads, and waits until they have ended."""
        self.tell_to_stop()
        self._thread.join()
        if self._preparing is not None:
            self._preparing.join()

    def _run(self) -> None:
        seen, idle_s = 0, 1.0 if self._has_timed_duties() else 3600.0
        while not self._stop.is_set():
            seen = self._wait(seen, 0.0 if self._has_orphans else idle_s)
            until = time.monotonic() + self._queue.options.sync_interval_s
            while not self._stop.is_set() and (left := until - time.monotonic()) > 0:
                if self._preparing is None:
                    self._prepare()
                seen = self._wait(seen, left)
            for what, duty in self._duties():
                if not self._stop.is_set():
                    self._do(what, duty)

    def _wait(self, seen: int, timeout: float) -> int:
        try:
            return self._writer.wait_dirty(seen, timeout)
        except ClosedError:  # Ctrl-C ended the close before it could stop this thread.
            self._stop.set()
            return seen

    def _prepare(self) -> None:
        self._do("prepare a segment", self._queue.store.prepare_ahead)
        if self._writer.is_quick and self._preparing is None and not self._stop.is_set():
            # The writer fills a segment in the time in which this thread syncs one.
            self._preparing = Background(self._prepare_on, "penstock-preparing")

    def _prepare_on(self) -> None:
        seen = 0
        while not self._stop.is_set():
            seen = self._wait(seen, 3600.0)
            self._do("prepare a segment", self._queue.store.prepare_ahead)

    def _do(self, what: str, duty: Callable[[], object]) -> None:
        """Does one duty. An error is logged once, until the duty succeeds again.

        It stops neither the other duties nor the thread: without it nothing would be synced.
        """
        try:
            duty()
            self._failing.pop(what, None)
        except ClosedError:
            self._stop.set()
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            if self._failing.get(what) != text:
                self._failing[what] = text
                known = isinstance(error, PenstockError | OSError)
                logger("maintenance").error(
                    "%s: could not %s: %s", self._queue.path, what, text, exc_info=not known
                )
            if self._queue.is_poisoned:
                self._stop.set()  # Nothing may be synced any more; every put raises the error.

    def _has_timed_duties(self) -> bool:
        options = self._queue.options
        return bool(options.retention_age_s or options.retention_bytes)

    def _duties(self) -> Iterator[tuple[str, Callable[[], object]]]:
        queue = self._queue
        if queue.options.durability is Durability.INTERVAL:
            yield "sync", self._writer.sync
            yield "sync the groups", queue.sync_groups
            yield "sync for others", self._tend_orphans
        yield "tend the files", queue.store.tend
        if time.monotonic() - self._swept_at > SWEEP_S:
            self._swept_at = time.monotonic()
            yield "look for dead consumers", lambda: exclusive.sweep(queue.store)
        yield "delete what is old", queue.retain

    def _tend_orphans(self) -> None:
        self._has_orphans = self._orphans.tend()
