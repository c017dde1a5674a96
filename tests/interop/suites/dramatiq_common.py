"""What Dramatiq's tests import from beside them; see `on_dramatiq.py`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from dramatiq import Worker

skip_in_ci = pytest.mark.skip(reason="is not about brokers")
skip_on_windows = skip_on_pypy = pytest.mark.skipif(False, reason="neither")
RABBITMQ_CREDENTIALS = None


@contextmanager
def worker(*args: Any, **keywords: Any) -> Iterator[Worker]:
    keywords.setdefault("worker_timeout", 10)
    found = Worker(*args, **keywords)
    found.start()
    try:
        yield found
    finally:
        found.stop()
