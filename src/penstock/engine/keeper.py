"""The background of an open queue: syncing, preparing segments, retention.

Every process that has the queue open has a keeper; whoever finds something unsynced first syncs
it for all. The keeper sleeps on a word that the first unsynced append raises, so an idle queue
costs nothing.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from penstock.engine import exclusive
from penstock.engine.orphans import Orphans
from penstock.errors import ClosedError, PenstockError
from penstock.logs import logger
from penstock.options import Durability

if TYPE_CHECKING:
    from penstock.engine.queue import Queue

SWEEP_S = 10.0
"""How often groups of dead consumers are looked for."""


class Keeper:
    """One thread per open queue and process."""

    def __init__(self, queue: Queue) -> None:
        """Starts at once."""
        self._queue = queue
        self._writer = queue.store.need_writer()
        self._stop = threading.Event()
        self._swept_at = time.monotonic()
        self._orphans, self._has_orphans = Orphans(queue), False
        end = queue.store.end()
        if end.durable < end.tail:
            self._writer.poke()  # Someone died before his sync.
        self._thread = threading.Thread(target=self._run, name="penstock-keeper", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread."""
        self._stop.set()
        self._writer.poke()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        options = self._queue.options
        seen, idle_s = 0, 1.0 if self._has_timed_duties() else 3600.0
        while not self._stop.is_set():
            seen = self._writer.wait_dirty(seen, 0.0 if self._has_orphans else idle_s)
            until = time.monotonic() + options.sync_interval_s
            try:
                while not self._stop.is_set() and (left := until - time.monotonic()) > 0:
                    self._queue.store.prepare_ahead()
                    seen = self._writer.wait_dirty(seen, left)
                if self._stop.is_set():
                    return
                self._tend()
            except ClosedError:
                return
            except PenstockError as error:
                logger("keeper").error("%s: %s", self._queue.path, error)
                if self._queue.is_poisoned:
                    return
            except OSError as error:
                logger("keeper").error("%s: %s", self._queue.path, error)

    def _has_timed_duties(self) -> bool:
        options = self._queue.options
        return bool(options.retention_age_s or options.retention_bytes)

    def _tend(self) -> None:
        queue = self._queue
        if queue.options.durability is Durability.INTERVAL:
            self._writer.sync()
            queue.sync_groups()
            self._has_orphans = self._orphans.tend()
        queue.store.tend()
        if time.monotonic() - self._swept_at > SWEEP_S:
            exclusive.sweep(queue)
            self._swept_at = time.monotonic()
        queue.retain()
