"""A pytest plugin: kombu's tests with penstock in place of the transport that they name."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kombu
import pytest

import penstock.kombu  # noqa: F401  (the short name)

from . import skipping

REPLACED = ("memory", "filesystem", "kombu.transport.virtual:Transport")

FILES = "looks at the filesystem transport's own files"
STUBS = "puts stubs in place of parts of the transport"
# Each of these was run and fails here.
NOT_OURS = {
    r"test_FilesystemTransport::test_produce_consume$": FILES + " (rows of its tables)",
    r"test_Filesystem(Lock|OpenErrors)": FILES,
    r"test_FilesystemExchangeNameSanitization":
        "wants names refused that here are keys in a file, and no file's name",
    r"test_queue_for": "looks at how the memory transport keeps its queues",
    r"test_drain_events_unregistered_queue|test_basic_cancel_not_in_active_queues": STUBS,
    r"test_basic_publish__get__consume__restore":
        "a message goes back to its queue, not once more to all that the exchange knows",
    r"unique_delivery_tags": "delivery tags are numbers, as AMQP has them, not texts",
    r"TestPriority::test_publish_(requeue_)?consume":
        "expects several messages of one drain_events; kombu writes them anew for Redis",
}  # fmt: skip


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Each test has a folder; whatever transport it names, it gets ours."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as root:
        inner = kombu.Connection.__init__

        def replaced(self: Any, *args: Any, **keywords: Any) -> None:
            if keywords.get("transport") in REPLACED:
                keywords["transport"] = "penstock.kombu:Transport"
                options = dict(keywords.get("transport_options") or {})
                # The filesystem's tests give a folder for each direction.
                keywords["transport_options"] = {**options, "folder": f"{root}/broker"}
            inner(self, *args, **keywords)

        monkeypatch.setattr(kombu.Connection, "__init__", replaced)
        yield Path(root)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    skipping.skip(items, NOT_OURS)
