"""Every sync fails in turn, once: what was promised is there, and nobody relies on the next one."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import _core
from tests import counting

pytestmark = pytest.mark.crash
FORMATS = ["penstock", "zbus", "beats", "vqs", "mfq"]
MOST = 200
"""More syncs than a trial has."""


class Trial:
    """One use of a queue, of which one sync fails."""

    def __init__(self, folder: Path, format: str, nth: int) -> None:
        folder.mkdir()
        self.path = folder / ("q.bin" if format == "vqs" else "q")
        size = {"max_bytes": 1 << 18} if format == "vqs" else {"segment_bytes": 16384}
        self.options: dict[str, Any] = {"durability": "always", **size}
        self.put: list[bytes] = []
        self.errors: list[tuple[str, penstock.PenstockError]] = []
        self.is_poisoned = False
        with penstock.Queue(self.path, format=format, **self.options) as queue:
            queue.group("default")
        self.leave_killed()
        _core.fail_syncs(errno.EIO, nth)
        try:
            self.use()
        finally:
            self.has_come = _core.fail_syncs(0)

    def leave_killed(self) -> None:
        queue = penstock.Queue(self.path, create=False, **self.options)
        for number in range(2):
            self.put.append(b"old %d" % number * 400)
            queue.put(self.put[-1])
        queue.store.drop()

    def attempt(self, what: str, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except penstock.PenstockError as error:
            self.errors.append((what, error))
            return None

    def use(self) -> None:
        queue = self.attempt(
            "open", lambda: penstock.Queue(self.path, create=False, **self.options)
        )
        if queue is None:
            return
        for number in range(8):
            body = b"new %d" % number * 500
            if self.attempt("put", lambda body=body: queue.put(body)) is not None:  # type: ignore[misc]
                self.put.append(body)
        group = self.attempt("group", queue.group)
        message = self.attempt("get", lambda: group.get(0)) if group is not None else None
        if message is not None:
            self.put.remove(message.body)  # Two formats delete what was acked.
            self.attempt("ack", message.ack)
        self.attempt("tend", queue.store.tend)
        self.attempt("sync", queue.sync)
        self.is_poisoned = queue.is_poisoned
        self.attempt("close", queue.close)

    def check(self) -> None:
        """Whatever was synced: who was not let in and who left has nothing more to do with it, and
        everyone else is told."""
        for what, error in self.errors[:1]:
            path = Path(getattr(error, "path", None) or "")
            is_said = path.name != "" or isinstance(error, penstock.PoisonedError)
            assert is_said, f"{what}: {type(error).__name__}: {error}"
            assert self.is_poisoned or what in ("open", "close"), error
        with penstock.Queue(self.path, create=False, **self.options) as queue:
            assert {message.body for message in queue.scan()} >= {*self.put}
            assert not queue.verify().corrupt
            queue.put(b"again")


@pytest.mark.parametrize("format", FORMATS)
def test_each_failing_sync_poisons_and_costs_nothing(tmp_path: Path, format: str) -> None:
    for nth in range(MOST):
        trial = Trial(tmp_path / str(nth), format, nth)
        trial.check()
        if not trial.has_come:
            break
        counting.count("failing syncs")
    assert 10 < nth < MOST - 1
