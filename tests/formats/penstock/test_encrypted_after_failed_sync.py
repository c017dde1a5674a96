"""An encrypted queue whose sync failed: its frames stay where they are, in a file written anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock import PoisonedError, Queue
from tests.failing import failing_syncs
from tests.opening import open_queue
from tests.reading import bodies

KEY = bytes(range(32))


def test_messages_that_no_sync_reached_are_in_a_new_file_of_the_same_name(tmp_path: Path) -> None:
    queue = open_queue(tmp_path / "q", key=KEY)
    queue.put_many([b"one", b"two"])
    (segment,) = (tmp_path / "q" / "log").glob("*.seg")
    before = segment.stat().st_ino
    with failing_syncs(), pytest.raises(PoisonedError):
        queue.sync()
    queue.close()
    with Queue(tmp_path / "q", key=KEY) as queue:
        assert segment.stat().st_ino != before
        queue.put(b"next")
        assert bodies(queue) == [b"one", b"two", b"next"]
        assert queue.verify().is_ok
