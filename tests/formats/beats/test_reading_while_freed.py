"""Reading while another process frees what was read: its files vanish between two looks."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock import Queue
from penstock.formats.beats import segments


def test_a_segment_that_is_freed_while_we_look_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Queue(tmp_path / "q", format="beats") as queue:
        queue.put_many([b"a", b"b"])
    find = segments.find

    def find_one_more(folder: Path) -> dict[int, Path]:
        real = find(folder)
        return {min(real) - 1: folder / "freed.seg", **real}

    monkeypatch.setattr(segments, "find", find_one_more)
    with Queue(tmp_path / "q", read_only=True) as queue:
        assert [message.body for message in queue.scan()] == [b"a", b"b"]
        assert queue.verify().is_ok
