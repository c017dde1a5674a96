"""One endpoint for the tests of a file, and clients that speak either protocol to it."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import ManualClock
from tests.sqs.speaking import Json, Query

NEEDED = ("httptools", "boto3")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]
collect_ignore_glob = ["test_*.py"] if MISSING else []
"""Without the extra `sqs` there is no endpoint to test; `make setup` installs it."""

NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory, clock: ManualClock) -> Iterator[Any]:
    import penstock.sqs

    with penstock.sqs.server(tmp_path_factory.mktemp("root"), clock=clock) as endpoint:
        yield endpoint


@pytest.fixture(scope="module")
def json_client(endpoint: Any) -> Iterator[Json]:
    with Json(endpoint.port) as client:
        yield client


@pytest.fixture(scope="module")
def query_client(endpoint: Any) -> Iterator[Query]:
    with Query(endpoint.port) as client:
        yield client


@pytest.fixture(scope="module", params=["json", "query"])
def client(request: pytest.FixtureRequest, json_client: Json, query_client: Query) -> Json | Query:
    """Either protocol: what holds for one holds for the other."""
    return json_client if request.param == "json" else query_client


@pytest.fixture
def make(client: Json | Query) -> Callable[..., str]:
    """Makes a queue with a name of its own; answers its URL."""
    return make_with(client)


@pytest.fixture
def make_json(json_client: Json) -> Callable[..., str]:
    """The same, where the protocol is not the point."""
    return make_with(json_client)


def make_with(client: Json | Query) -> Callable[..., str]:
    def make(**attributes: str) -> str:
        suffix = ".fifo" if attributes.get("FifoQueue") == "true" else ""
        name = f"q{next(NUMBERS)}{suffix}"
        url: str = client("CreateQueue", QueueName=name, Attributes=attributes)["QueueUrl"]
        return url

    return make


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"
