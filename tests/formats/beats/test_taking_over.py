"""Taking the open segment over, while other threads of the same opening are at it too."""

from __future__ import annotations

from pathlib import Path

from penstock import Queue
from tests.formats.beats.helpers import event


def test_a_writer_that_another_thread_turned_back_takes_over_all_the_same(tmp_path: Path) -> None:
    with (
        Queue(tmp_path / "q", format="beats", durability="process") as one,
        Queue(tmp_path / "q", durability="process") as other,
    ):
        other.put(event(0))
        one.put(event(1))
        # One thread has seen whose the segment is; another one still had the old one to turn to.
        other.store._seen_base = one.offsets().segment_base
        other.put(event(2))
        assert len(list(one.scan())) == 3
