"""The Celery application that benches/tasks.py measures; the broker comes from the environment."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from typing import Any

from celery import Celery

with suppress(ImportError):
    import penstock.kombu  # noqa: F401  (the short name)

LOG = os.environ["TASKS_LOG"]
app = Celery("bench", broker=os.environ["TASKS_BROKER"])
app.conf.update(
    broker_transport_options=json.loads(os.environ.get("TASKS_OPTIONS", "{}")),
    task_ignore_result=True,
    worker_prefetch_multiplier=16,
    broker_connection_retry_on_startup=True,
)


def note(sent_at: float) -> None:
    """Says when it began, and when it was sent."""
    line = f"{time.time()} {sent_at}\n".encode()
    log = os.open(LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(log, line)
    os.close(log)


task: Any = app.task(note, name="note")
