"""The background of an open queue: syncing, preparing segments, retention.

Every process that has the queue open has a maintenance thread, and one that fills segments a second
one that prepares them: that takes longer than syncs may wait. The first one that finds something
unsynced syncs it for all. The threads sleep on a shared word that the first unsynced append raises,
so an idle queue costs nothing.

They sleep and sync in native code (`_core.Upkeep`), without the interpreter lock. Here is what is
seldom done: while the queue is in use, the thread comes here once in a second.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

from penstock import _core
from penstock.engine import exclusive, orphans
from penstock.engine.threads import Background
from penstock.errors import ClosedError, PenstockError
from penstock.hints import TYPE_CHECKING
from penstock.logs import logger
from penstock.options import Durability

if TYPE_CHECKING:
    from penstock.engine.group import OpenQueue

SWEEP_S = 10.0
"""How often groups of dead consumers are looked for."""

RETRY_S = 1.0
"""After this long a segment that could not be prepared is tried again."""

PAUSE_S = 1.0
"""How often duties are done that are not due at every interval, while the queue is in use."""


class Maintenance:
    """One thread per open queue and process."""

    def __init__(self, queue: OpenQueue) -> None:
        self._queue = queue
        self._writer = queue.store.need_writer()
        self._stop = threading.Event()
        self._swept_at = time.monotonic()
        self._syncs = queue.options.durability is Durability.INTERVAL
        self._upkeep = _core.Upkeep(self._writer, self._syncs)
        self._failing: dict[str, str] = {}
        """By duty: the error with which it failed last."""
        self._preparing: Background | None = None
        """The second thread, which comes when the next segment is to be prepared."""
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
        queue = self._queue
        idle_s = 1.0 if self._has_timed_duties() else 3600.0
        is_often = self._has_frequent_duties()
        while not self._stop.is_set():
            interval_s = queue.options.sync_interval_s
            try:
                is_due, stuck = self._upkeep.wait(interval_s, 0.0 if is_often else PAUSE_S, idle_s)
            except ClosedError:  # Ctrl-C ended the close before it could stop this thread.
                return
            if not (is_due or self._preparing or self._stop.is_set()):
                self._do("begin to prepare segments", self._begin_preparing)
            for what, duty in self._duties(stuck) if is_due else ():
                if not self._stop.is_set():
                    self._do(what, duty)

    def _begin_preparing(self) -> None:
        self._preparing = Background(self._prepare, "penstock-preparing")

    def _prepare(self) -> None:
        seen, what = 0, "prepare a segment"
        while not self._stop.is_set():
            self._do(what, self._queue.store.prepare_ahead)
            seen = self._writer.wait_work(seen, RETRY_S if what in self._failing else 3600.0)

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
            # What can't be told now is told when the duty fails again: no file can be opened, from
            # which `logging` would be loaded, or a handler of the program's raises.
            with suppress(Exception):
                self._tell(what, error)
            if self._queue.is_poisoned:
                self._stop.set()  # Nothing may be synced any more; every put raises the error.

    def _tell(self, what: str, error: Exception) -> None:
        text = f"{type(error).__name__}: {error}"
        if self._failing.get(what) != text:
            known = isinstance(error, PenstockError | OSError)
            logger("maintenance").error(
                "%s: could not %s: %s", self._queue.path, what, text, exc_info=not known
            )
            self._failing[what] = text

    def _has_timed_duties(self) -> bool:
        options = self._queue.options
        return bool(options.retention_age_s or options.retention_bytes)

    def _has_frequent_duties(self) -> bool:
        store = self._queue.store
        consumes = store.capabilities.deletes_consumed
        return self._has_timed_duties() or consumes or store.format.tends_often

    def _duties(self, stuck: list[str]) -> Iterator[tuple[str, Callable[[], object]]]:
        queue = self._queue
        if self._syncs:
            yield "sync", self._writer.sync
            yield "sync the groups", queue.sync_groups
            if stuck:
                yield "sync for others", lambda: orphans.sync(queue, stuck)
        yield "tend the files", queue.store.tend
        if time.monotonic() - self._swept_at > SWEEP_S:
            self._swept_at = time.monotonic()
            yield "look for dead consumers", lambda: exclusive.sweep(queue.store)
        yield "delete what is old", queue.retain
