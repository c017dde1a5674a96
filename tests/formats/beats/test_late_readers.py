"""Readers that took a segment for the last one while it was closed."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock import ManualClock, Queue, _core
from penstock.formats.beats import segments
from penstock.formats.beats.format import BeatsFormat

SMALL: dict[str, Any] = {"segment_bytes": 16384, "durability": "process"}
STREAM: dict[str, Any] = {"format": "beats", "layout": "2-released-lz4"}


@pytest.mark.parametrize("layout", ["1", "2-released", "2-released-lz4"])
def test_a_late_reader_does_not_hide_a_segment_that_was_closed_meanwhile(
    tmp_path: Path, layout: str
) -> None:
    with Queue(tmp_path / "q", format="beats", layout=layout, segment_bytes=16384) as queue:
        first = queue.store.segments(fresh=True)[0]
        for number in range(100):
            queue.put(b'{"number": %d, "text": "%s"}' % (number, b"x" * 500))
        assert len(queue.store.segments(fresh=True)) > 1
        queue.store.format.open_segment(replace(first, end=None), writable=True)
        with Queue(tmp_path / "q", read_only=True) as other:
            assert len(list(other.scan())) == 100


def test_a_listing_in_which_two_segments_began_hides_none_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "q"
    with Queue(path, format="beats", **SMALL) as queue, Queue(path, **SMALL) as other:
        queue.put(b'{"number": 0}')
        usual, bodies = segments.listed, iter([b'{"text": "%s"}' % (b"x" * 11_000)] * 3)

        def listed_late(folder: Path) -> list[tuple[int, int]]:
            for body in bodies:  # Each begins a segment, after the last one was asked for.
                other.put(body)
            return usual(folder)

        monkeypatch.setattr(segments, "listed", listed_late)
        queue.store.segments(fresh=True)
        assert len(list(queue.scan())) == 4


def test_a_segment_that_is_deleted_while_it_is_closed_stays_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "q"
    with Queue(path, **STREAM, **SMALL) as queue, Queue(path, **SMALL) as other:
        queue.put(b"of one process")
        assert isinstance(queue.store.format, BeatsFormat)
        making_room = queue.store.format._making_room
        old, usual = queue.offsets().segment_base, _core.replace_file

        def replace_late(file: Path, data: bytes, **more: bool) -> None:
            if file == queue.store.format.path_of(old):  # It is closed by whoever took over.
                # For room, even the last segment that has events goes.
                making_room.add(threading.get_ident())
                queue.store.trim(other.offsets().tail)
                assert not file.exists()
            usual(file, data, **more)

        monkeypatch.setattr(_core, "replace_file", replace_late)
        other.put(b"of another")
        assert not queue.store.format.path_of(old).exists()
        assert [message.body for message in other.scan()] == [b"of another"]


def test_nobody_makes_a_plain_copy_of_a_segment_that_was_closed(tmp_path: Path) -> None:
    with Queue(tmp_path / "q", **STREAM, **SMALL) as queue:
        for number in range(100):
            queue.put(b'{"n": %d, "text": "%s"}' % (number, b"x" * 1000))
        copies = queue.store.sidecar / "plain"
        first = queue.store.segments(fresh=True)[0]
        queue.store.format.open_segment(replace(first, end=None), writable=True)
        last = queue.offsets().segment_base >> 40
        assert [copy.name for copy in copies.iterdir()] == [f"{last}.plain"]


def test_verify_looks_no_further_than_the_queue_went_when_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {
        "durability": "process",
        "key": bytes(range(16)),
        "tamper_evident": True,
    }
    with Queue(tmp_path / "q", format="beats", layout="2", **options) as queue:
        queue.put(b"one")
        usual = queue.store.segments

        def segments_late(**more: bool) -> object:
            queue.put(b"two")
            return usual(**more)

        monkeypatch.setattr(queue.store, "segments", segments_late)
        assert queue.verify().is_ok
        monkeypatch.undo()
        queue.store.roll(queue.offsets().segment_base, 0)
        assert queue.verify().is_ok


def test_who_only_reads_sees_what_was_put_after_a_power_cut_was_mended(tmp_path: Path) -> None:
    path = tmp_path / "q"
    clock = ManualClock()
    queue = Queue(path, format="beats", durability="process", clock=clock)
    queue.put(b"one")
    queue.sync()
    queue.store.need_shared().abandon()
    clock.restart()
    with Queue(path, read_only=True, clock=clock) as reader:
        assert [message.body for message in reader.scan()] == [b"one"]
        with Queue(path, durability="process", clock=clock) as again:
            again.put(b"two")
            assert [message.body for message in reader.scan()] == [b"one", b"two"]
        assert [message.body for message in reader.scan()] == [b"one", b"two"]
