"""A segment deleted after a kill was lost by nobody of ours: readers and the next writer say so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock import Queue
from tests.copies import copy_as_killed

pytestmark = pytest.mark.crash
SEGMENTS = {
    "penstock": "log/*.seg",
    "zbus": "data/*.zbus",
    "beats": "[0-9]*.seg",
    "mfq": "commitlog/*",
}
BODY = b'{"text": "%s"}' % (b"x" * 900)
COUNT = 40


def killed(folder: Path, format: str) -> Path:
    """A queue of several segments as a kill leaves it."""
    options: dict[str, Any] = {"durability": "process", "segment_bytes": 16 << 10}
    with Queue(folder / "open" / "q", format=format, **options) as queue:
        for _ in range(COUNT):
            queue.put(BODY)
        return copy_as_killed(folder / "open", folder / "killed") / "q"


def segments_of(path: Path, format: str) -> list[Path]:
    found = [file for file in path.glob(SEGMENTS[format]) if file.is_file()]
    return sorted(found, key=lambda file: (len(file.name), file.name))


@pytest.mark.parametrize("which", [0, 1, -1], ids=["first", "middle", "last"])
@pytest.mark.parametrize("format", SEGMENTS)
def test_a_segment_that_went_after_a_kill_is_missed(
    tmp_path: Path, format: str, which: int
) -> None:
    path = killed(tmp_path, format)
    gone = segments_of(path, format)[which]
    gone.unlink()
    with Queue(path, create=False, read_only=True) as queue:
        verdict = queue.verify()
        assert verdict.corrupt or verdict.torn
        assert len([*queue.scan(tolerant=True)]) < COUNT
    with Queue(path, create=False, durability="process") as queue:
        assert queue.store.dropped or queue.verify().corrupt
        offset = queue.put(BODY)
    if which == -1 and format in ("penstock", "beats"):  # The offsets of what is lost are used up.
        base = int(gone.stem) << 40 if format == "beats" else int(gone.stem)
        assert offset > base


@pytest.mark.parametrize("format", SEGMENTS)
def test_a_queue_that_was_killed_whole_misses_nothing(tmp_path: Path, format: str) -> None:
    path = killed(tmp_path, format)
    with Queue(path, create=False, read_only=True) as queue:
        assert queue.verify().is_ok
        assert queue.stats()["dropped"] == []
    with Queue(path, create=False, durability="process") as queue:
        assert queue.stats()["dropped"] == []
        assert queue.verify().is_ok


def test_an_mfq_end_that_was_set_back_after_a_kill_costs_nothing_and_is_told(
    tmp_path: Path,
) -> None:
    path = killed(tmp_path, "mfq")
    (path / "offset" / "producer.offset").write_bytes(bytes(8))
    with Queue(path, create=False, read_only=True) as queue:
        assert len([*queue.scan()]) == COUNT
        assert len(queue.stats()["dropped"]) == 1
    with Queue(path, create=False, durability="process") as queue:
        assert len([*queue.scan()]) == COUNT
        assert len(queue.stats()["dropped"]) == 1
