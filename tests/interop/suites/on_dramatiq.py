"""A pytest plugin: Dramatiq's tests with penstock in place of its stub broker.

Dramatiq's source distribution has the tests without their fixtures: these take their place.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any

import dramatiq
import pytest
from dramatiq.rate_limits.backends import StubBackend as RateLimits
from dramatiq.results.backends import StubBackend as Results

from penstock.dramatiq import PenstockBroker

from . import skipping

INSIDE = "looks inside the stub broker, or waits for it to raise an actor's error in join"
NOT_OURS = {
    r"test_actors_can_be_sent_messages|test_worker_handles_none_eta": INSIDE,
    r"can_be_assigned_(time|message_age)_limits|missing_actors_are_rejected": INSIDE,
    r"workers_dont_register_queues": INSIDE,
    r"log_rate_limit_exceeded|non_numeric_eta": INSIDE,
}


class Broker(PenstockBroker):
    def join(self, queue_name: str, *, timeout: int | None = None, **_: Any) -> None:
        super().join(queue_name, interval=10, timeout=timeout)


@pytest.fixture
def stub_broker() -> Iterator[Any]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        broker = Broker(folder)
        broker.emit_after("process_boot")
        dramatiq.set_broker(broker)
        yield broker
        broker.flush_all()
        broker.close()


@pytest.fixture
def stub_worker(stub_broker: Any) -> Iterator[Any]:
    worker = dramatiq.Worker(stub_broker, worker_timeout=100, worker_threads=8)
    worker.start()
    yield worker
    worker.stop()


@pytest.fixture
def result_backend() -> Any:
    return Results()


@pytest.fixture
def rate_limiter_backend() -> Any:
    return RateLimits()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    skipping.skip(items, NOT_OURS)
