"""Folders of many segments: only those that are needed are looked into."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock import KeyNeededError, Queue
from penstock.formats.beats import segments
from penstock.formats.beats.structs import POSITION_BITS
from tests.formats.beats.helpers import KEY, event

SMALL: dict[str, Any] = {"segment_bytes": 16384, "durability": "process"}
COUNT = 20


@contextmanager
def looked_into() -> Iterator[list[str]]:
    """The names of the files whose bytes told their layout."""
    found: list[str] = []
    usual = segments.identify

    def noting(path: Path, key: bytes | None) -> Any:
        found.append(path.name)
        return usual(path, key)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments, "identify", noting)
        yield found


def made(path: Path, **options: Any) -> Path:
    with Queue(path, format="beats", **SMALL, **options) as queue:
        while len(queue.store.segments()) < COUNT:
            queue.put(event(0, pad="x" * 11_000))
    return path


@pytest.mark.parametrize("key", [None, KEY])
def test_opening_looks_into_the_newest_and_the_oldest(tmp_path: Path, key: bytes | None) -> None:
    path = made(tmp_path / "q", key=key)
    for read_only in (True, False):
        with looked_into() as files, Queue(path, key=key, read_only=read_only, **SMALL) as queue:
            assert len(set(files)) <= 4
            if read_only:
                del files[:]
                first = queue.offsets().tail - 1
                assert len(list(queue.store.ranges(first, first + 1))) == 1
                assert len(set(files)) <= 1


def test_a_key_that_our_own_word_does_not_vouch_for_is_tried_on_every_segment(
    tmp_path: Path,
) -> None:
    path = made(tmp_path / "q", key=KEY)
    with pytest.raises(KeyNeededError):
        Queue(path, key=bytes(16))
    with pytest.raises(KeyNeededError):
        Queue(path)


def test_a_reader_goes_on_behind_a_gap(tmp_path: Path) -> None:
    path = made(tmp_path / "q")
    with Queue(path, read_only=True) as queue:
        offsets = [message.offset or 0 for message in queue.scan()]
    for number in (3, 4, 5):
        (path / f"{number}.seg").unlink()
    with Queue(path, read_only=True) as queue:
        left = [offset for offset in offsets if offset >> POSITION_BITS not in (3, 4, 5)]
        assert [message.offset for message in queue.scan()] == left
