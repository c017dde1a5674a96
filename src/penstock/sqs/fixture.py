"""For pytest: `sqs_endpoint`, an endpoint of the test's own, on a port that is free.

    def test_orders(sqs_endpoint):
        sqs = boto3.client("sqs", **sqs_endpoint.client_options)

Loaded by pytest itself, so nothing else of penstock is imported before a test asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from penstock.sqs.serving import Server


@pytest.fixture
def sqs_endpoint() -> Iterator[Server]:
    """A durable SQS endpoint for one test: no signatures, no port to choose."""
    from penstock.sqs.serving import server

    with server() as running:
        yield running
