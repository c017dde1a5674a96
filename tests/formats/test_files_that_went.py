"""Files of segments that go while a queue is open: trimmed by another process that is no error;
taken away by hand it is one, with the name of the file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import OffsetError, Queue, StorageError, UnsupportedError
from penstock.sidecar import control
from tests.opening import open_queue
from tests.reading import bodies

BODY = b"x" * 9000
"""One fits into a segment."""


def late(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, act: Callable[[], object]
) -> None:
    """Another process acts just before the next call of `owner.name`."""
    usual, done = getattr(owner, name), list[bool]()

    def call(*words: Any, **more: Any) -> Any:
        if not done:
            done.append(True)
            act()
        return usual(*words, **more)

    monkeypatch.setattr(owner, name, call)


def test_a_tolerant_scan_passes_over_what_was_trimmed_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        open_queue(tmp_path / "q", retain_unread=False) as queue,
        Queue(tmp_path / "q", read_only=True) as reader,
    ):
        for _ in range(4):
            queue.put(BODY)
        late(monkeypatch, reader.store.format, "open_segment", lambda: queue.trim("latest"))
        scan = reader.scan(tolerant=True)
        assert len([*scan]) == 1
        assert scan.damage == []


def test_a_listed_segment_that_was_taken_away_is_an_error_of_a_tolerant_scan(
    tmp_path: Path,
) -> None:
    with open_queue(tmp_path / "q") as queue:
        for _ in range(4):
            queue.put(BODY)
    with open_queue(tmp_path / "q") as queue:
        first = min((tmp_path / "q" / "log").iterdir())
        first.unlink()
        with pytest.raises(StorageError, match=first.name):
            [*queue.scan(tolerant=True)]


def test_a_listed_segment_that_can_not_be_opened_is_not_looked_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*words: object, **more: object) -> object:
        raise FileNotFoundError("what belongs to the segment")

    with open_queue(tmp_path / "q") as queue:
        for _ in range(4):
            queue.put(BODY)
    with Queue(tmp_path / "q", read_only=True) as reader:
        monkeypatch.setattr(reader.store.format, "open_segment", gone)
        with pytest.raises(FileNotFoundError):
            reader.store.segment_at(0)


def test_a_segment_that_went_before_it_was_synced_is_an_error_of_the_sync(tmp_path: Path) -> None:
    # Neither can be closed in order after that.
    queue, other = open_queue(tmp_path / "q"), open_queue(tmp_path / "q")
    for _ in range(4):
        queue.put(BODY)
    assert len(other.store.segments(fresh=True)) == 4
    second = sorted((tmp_path / "q" / "log").iterdir())[1]
    second.unlink()
    with pytest.raises(StorageError, match=second.name):
        [*other.store.unsynced_segments(0)]


def test_a_queue_without_any_segment_says_so(tmp_path: Path) -> None:
    queue = open_queue(tmp_path / "q")
    queue.put(b"one")
    for file in (tmp_path / "q" / "log").glob("*.seg"):
        file.unlink()
    queue.store.forget_segments()
    with pytest.raises(OffsetError, match="no segment any more"):
        queue.store.segment_at(0)


def test_a_segment_that_another_has_begun_is_not_begun_again(tmp_path: Path) -> None:
    with open_queue(tmp_path / "q") as queue:
        queue.put(b"one")
        base = queue.offsets().segment_base
        queue.store.roll(base, 0)
        begun = queue.offsets().segment_base
        queue.store.roll(base, 0)
        assert queue.offsets().segment_base == begun > base


def test_a_segment_can_not_follow_one_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*words: object, **more: object) -> object:
        raise FileNotFoundError("the last segment")

    with open_queue(tmp_path / "q") as queue:
        queue.put(b"one")
        base = queue.offsets().segment_base
        with monkeypatch.context() as patch:
            patch.setattr(queue.store.format, "prepare_segment", gone)
            with pytest.raises(FileNotFoundError):
                queue.store.roll(base, 0)
        with open_queue(tmp_path / "q") as other, monkeypatch.context() as patch:
            patch.setattr(queue.store.format, "prepare_segment", gone)
            late(patch, queue.store.format, "prepare_segment", lambda: other.store.roll(base, 0))
            queue.store.roll(base, 0)
        assert queue.offsets().segment_base > base
        queue.put(b"two")
        assert bodies(queue) == [b"one", b"two"]


def test_a_full_queue_that_nobody_drains_refuses_what_does_not_fit(tmp_path: Path) -> None:
    with open_queue(tmp_path / "q.bin", format="vqs") as queue:
        queue.store.on_full = None
        with pytest.raises(UnsupportedError, match="the queue is full"):
            queue.put_many([bytes(1000)] * 100)


def test_what_is_on_the_disk_for_good_ends_where_the_last_sync_did(tmp_path: Path) -> None:
    with open_queue(tmp_path / "q") as queue:
        queue.put(b"one")
        assert queue.store.durable_range() == (0, 0)
        queue.sync()
        assert queue.store.durable_range() == (0, queue.offsets().tail)


@pytest.mark.parametrize("format", ["zbus", "mfq"])
def test_a_reader_tells_a_put_of_ours_from_one_of_another_program(
    format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peek, path = control.peek, tmp_path / "q"
    with open_queue(path, format=format) as queue:
        queue.put(b"one")
    with Queue(path, read_only=True) as reader:
        done: list[bool] = []

        def then_puts(sidecar: Path) -> control.Words | None:
            words = peek(sidecar)
            if not done:
                done.append(True)
                with open_queue(path) as queue:
                    queue.put(b"two")
            return words

        monkeypatch.setattr(control, "peek", then_puts)
        reader.offsets()
        assert bodies(reader) == [b"one", b"two"]
        assert reader.verify().is_ok
