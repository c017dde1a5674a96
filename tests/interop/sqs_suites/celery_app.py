"""Tasks for a Celery worker over SQS: each that ends makes a file in the folder `DONE`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from celery import Celery

host = os.environ["AWS_ENDPOINT_URL_SQS"].removeprefix("http://")
app = Celery(
    broker=f"sqs://{host}",
    broker_transport_options={"is_secure": False, "region": "us-east-1"},
)
app.conf.broker_transport_options |= {"visibility_timeout": 5, "wait_time_seconds": 1}
app.conf.update(task_acks_late=True, worker_prefetch_multiplier=1)
DONE = Path(os.environ.get("DONE", "."))


@app.task(bind=True, max_retries=5)  # type: ignore[untyped-decorator]
def flaky(self: Any, name: str) -> None:
    """Fails twice."""
    if self.request.retries < 2:
        raise self.retry(countdown=0)
    (DONE / name).touch()


@app.task  # type: ignore[untyped-decorator]
def slow(name: str) -> None:
    """Says that it has begun, and waits for leave to end."""
    (DONE / f"{name}.begun.{os.getpid()}").touch()
    with (DONE / "go").open() as pipe:
        pipe.readline()
    (DONE / name).touch()
