"""Readers that took a segment for the last one while it was closed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock import Queue
from penstock.formats.beats import segments


@pytest.mark.parametrize("layout", ["1", "2-released", "2-released-lz4"])
def test_a_late_reader_does_not_hide_a_segment_that_was_closed_meanwhile(
    tmp_path: Path, layout: str
) -> None:
    with Queue(tmp_path / "q", format="beats", layout=layout, segment_bytes=16384) as queue:
        first = queue.store.segments(fresh=True)[0]
        for number in range(100):
            queue.put(b'{"number": %d, "text": "%s"}' % (number, b"x" * 500))
        assert len(queue.store.segments(fresh=True)) > 1
        queue.store.open_segment(replace(first, end=None), writable=True)
        with Queue(tmp_path / "q", read_only=True) as other:
            assert len(list(other.scan())) == 100


def test_a_listing_in_which_two_segments_began_hides_none_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "q"
    options: dict[str, Any] = {"segment_bytes": 16384, "durability": "process"}
    with Queue(path, format="beats", **options) as queue, Queue(path, **options) as other:
        queue.put(b'{"number": 0}')
        usual, bodies = segments.listed, iter([b'{"text": "%s"}' % (b"x" * 11_000)] * 3)

        def listed_late(folder: Path) -> list[tuple[int, int]]:
            for body in bodies:  # Each begins a segment, after the last one was asked for.
                other.put(body)
            return usual(folder)

        monkeypatch.setattr(segments, "listed", listed_late)
        queue.store.segments(fresh=True)
        assert len(list(queue.scan())) == 4
