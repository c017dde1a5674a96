"""The maintenance thread: only it syncs in the background, so no error of a duty may end it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from penstock import Queue
from tests.waiting import LONG_S


@pytest.mark.parametrize("error", [RuntimeError("odd"), OSError(5, "a disk"), KeyError("x")])
def test_the_maintenance_thread_outlives_what_a_duty_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    raised = threading.Event()

    def tend() -> None:
        raised.set()
        raise error

    with Queue(tmp_path / "q", sync_interval_s=0.005) as queue:
        monkeypatch.setattr(queue.store.format, "tend", tend)
        queue.put(b"first")
        assert raised.wait(LONG_S)
        queue.put(b"second")
        pause, tries = threading.Event(), 0
        while queue.offsets().durable < queue.offsets().tail and tries < 20 * LONG_S:
            pause.wait(0.05)
            tries += 1
        assert queue.offsets().durable == queue.offsets().tail
