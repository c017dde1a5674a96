"""The Celery application: the only file that knows about the broker."""

import os

from celery import Celery

import penstock.kombu  # noqa: F401  (gives kombu the short name penstock://)

JOBS = os.environ.get("SHOP_JOBS", "jobs")

app = Celery(
    "shop",
    broker=f"penstock://{JOBS}",
    backend=f"penstock.celery:Backend+file://{JOBS}",
    include=["shop.orders", "shop.reports"],
)
app.conf.update(
    task_acks_late=True,  # A task is done when it has run, not when it was begun.
    task_reject_on_worker_lost=True,
    task_send_sent_event=True,
    broker_connection_retry_on_startup=True,
)
