"""A pytest plugin: Celery's integration tests with a folder as broker and result store."""

from __future__ import annotations

import pytest
from celery.app import backends

import penstock.kombu  # noqa: F401  (the short name)

from . import skipping

pytest_plugins = ("celery.contrib.pytest",)
"""Its fixtures; nothing else loads them where Celery's own set-up has not."""
backends.BACKEND_ALIASES["penstock"] = "penstock.celery:Backend"  # As the entry point does.

NOT_OURS = {
    r"test_scheduled": "a task with an ETA stays in the queue until it is due (`eta_as_delay`)",
    r"test_trace_log_arguments": "reads the log of a worker that Celery's own set-up captures",
    r"test_error_propagates_from_chord$": "fails with Redis too: an open fault of Celery's",
    r"test_replaced_task_nesting_level_0": (
        "clears the worker's answer after it has sent the task: a race that a quick broker wins"
    ),
    r"redis|Redis": "asks Redis itself",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    skipping.skip(items, NOT_OURS)
