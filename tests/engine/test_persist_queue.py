"""persist-queue's own tests of its file queue, run against ours.

They are in its package, so they are run as they are, with each of its serializers as a codec.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

import penstock
from penstock.engine import open_queues

theirs: Any = pytest.importorskip(
    "persistqueue.tests.test_queue", reason="persist-queue, msgpack and cbor2 are not installed"
)

DOES_NOT_APPLY = {
    "test_del": "looks whether persist-queue's own two files, headf and tailf, are closed",
}
"""Those of its tests that are left out, and why."""

RACES = {"test_put_block_and_wait"}
"""Those that take an item at once which their other thread may not have put yet."""

queue_path = theirs.queue_path


class Serialized:
    """A codec of one of persist-queue's serializers."""

    name = "persist-queue"

    def __init__(self, serializer: Any) -> None:
        self._serializer = serializer

    def encode(self, value: Any) -> bytes:
        stream = io.BytesIO()
        self._serializer.dump(value, stream)
        return stream.getvalue()

    def decode(self, body: bytes) -> Any:
        return self._serializer.load(io.BytesIO(body))


def opened(
    path: str,
    maxsize: int = 0,
    chunksize: int = 100,
    tempdir: str | None = None,
    serializer: Any = None,
    autosave: bool = False,
    *,
    kind: type[penstock.StandardQueue] = penstock.StandardQueue,
) -> penstock.StandardQueue:
    """What a user of persist-queue writes instead: `autosave` is `ack="auto"`."""
    codec: Any = "json" if serializer is None else Serialized(serializer)
    return kind(path, maxsize, codec=codec, ack="auto" if autosave else "lease")


class Patient(penstock.StandardQueue):
    """Waits for an item also where nobody asks it to."""

    def get_nowait(self) -> Any:
        return self.get(timeout=60)


class TestPersistQueue(theirs.TestPersist):  # type: ignore[misc]
    @pytest.fixture(autouse=True)
    def _ours(
        self, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
    ) -> Iterator[None]:
        why = DOES_NOT_APPLY.get(request.node.originalname)
        if why is not None:
            pytest.skip(why)
        races = request.node.originalname in RACES
        monkeypatch.setattr(theirs, "Queue", partial(opened, kind=Patient) if races else opened)
        for name in ("Empty", "Full"):  # Of the standard library, and ours.
            monkeypatch.setattr(theirs, name, getattr(penstock, name))
        others = set(open_queues.OPEN)
        yield
        for queue in set(open_queues.OPEN) - others:  # What the test has dropped; its folder goes.
            queue.close()


def test_every_test_that_is_named_here_is_there() -> None:
    named = DOES_NOT_APPLY.keys() | RACES
    assert [name for name in named if not hasattr(theirs.TestPersist, name)] == []
