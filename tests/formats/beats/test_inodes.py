"""A file system gives the inode of a deleted file to the next one: that is another file."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock import Queue
from penstock.sidecar import prepared
from tests.formats.beats.helpers import KEY, event


@pytest.mark.parametrize("layout", ["2", "3"])
def test_a_segment_that_gets_the_inode_of_an_empty_one_keeps_its_own_iv(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    path, held = tmp_path / "q", tmp_path / "held"
    options = {"key": KEY, "durability": "always"}
    with Queue(path, format="beats", layout=layout, **options) as queue:  # type: ignore[arg-type]
        queue.put(event(1))
    Queue(path, create=False, **options).store.drop()  # type: ignore[arg-type]
    held.hardlink_to(path / "1.seg")  # Its inode is kept for the next file.

    def place(fresh: Path, goal: Path) -> None:
        held.write_bytes(fresh.read_bytes())
        fresh.unlink()
        held.rename(goal)

    monkeypatch.setattr(prepared, "place", place)
    with Queue(path, create=False, **options) as queue:  # type: ignore[arg-type]
        queue.put(event(2))
    monkeypatch.undo()
    with Queue(path, create=False, **options) as queue:  # type: ignore[arg-type]
        assert [message.json()["n"] for message in queue.scan()] == [1, 2]
