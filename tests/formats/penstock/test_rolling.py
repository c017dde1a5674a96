"""What a put does that begins a new segment: whoever puts waits for it."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

from penstock import Queue

SYSTEM_CALLS = {"stat", "fstat", "open", "pread", "close", "urandom", "scandir", "statvfs"}


def test_a_roll_with_a_segment_ready_asks_the_system_for_little(tmp_path: Path) -> None:
    """Each call lets another thread have the interpreter lock, and the put waits for it again."""
    calls: Counter[str] = Counter()

    def note(frame: FrameType, event: str, what: Any) -> None:
        if event == "c_call" and what.__name__ in SYSTEM_CALLS:
            calls[what.__name__] += 1

    with Queue(tmp_path / "q", segment_bytes=1 << 16, durability="process") as queue:
        for _ in range(40):
            queue.put(bytes(1000))
        queue.store.prepare_ahead()
        base = queue.offsets().segment_base
        while queue.store.need_shared().segment_base == base:
            calls.clear()
            sys.setprofile(note)
            queue.put(bytes(1000))
            sys.setprofile(None)
    # Whether the folder is still in its place, and whether the next segment is ready; its salt, and
    # a name that nobody else has.
    assert calls == {"stat": 2, "urandom": 2}


def test_headers_of_rolled_segments_bear_out_each_other(tmp_path: Path) -> None:
    with Queue(tmp_path / "q", segment_bytes=1 << 16, key=bytes(32)) as queue:
        for number in range(200):
            queue.put(bytes(1000) + b"%d" % number)
        assert len(queue.store.segments(fresh=True)) > 3
        assert queue.verify().is_ok
    with Queue(tmp_path / "q", key=bytes(32)) as queue:
        assert queue.verify().is_ok
        assert sum(1 for _ in queue.scan()) == 200
