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
    listed = segments.listed

    def one_more(folder: Path) -> list[tuple[int, int]]:
        real = listed(folder)
        return [(real[0][0] - 1, 1), *real]

    monkeypatch.setattr(segments, "listed", one_more)
    with Queue(tmp_path / "q", read_only=True) as queue:
        assert [message.body for message in queue.scan()] == [b"a", b"b"]
        assert queue.verify().is_ok
