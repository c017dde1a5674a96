"""The Celery application that tests/tasks/test_kills.py starts workers of."""

from __future__ import annotations

import os
import threading
from typing import Any

from celery import Celery

import penstock.kombu  # noqa: F401  (the short name)

FOLDER = os.environ["KILLS_FOLDER"]
app = Celery("kills", broker=f"penstock://{FOLDER}/jobs")
app.conf.update(
    task_ignore_result=True,
    task_acks_late=os.environ.get("KILLS_LATE") == "1",
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=2,
    broker_connection_retry_on_startup=True,
)


def note(number: int) -> None:
    """Says that it began, works, says that it is done: each a line that is written at once."""
    log = os.open(f"{FOLDER}/log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(log, b"began %d\n" % number)
        threading.Event().wait(0.005)  # The work.
        os.write(log, b"done %d\n" % number)
    finally:
        os.close(log)


task: Any = app.task(note, name="note")
