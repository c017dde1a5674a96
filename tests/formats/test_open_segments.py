"""The segments that the threads of an opening share."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import Queue, _core
from penstock.formats import open_segments
from penstock.formats.open_segments import OPEN_SEGMENTS, OpenSegments


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Threads take turns after a few instructions."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


def segment(base: int, end: int | None, path: str = "a") -> _core.Segment:
    """A segment of no bytes."""
    frames = _core.penstock_frames(bytes(16), base)
    return _core.Segment.over(Path(path), base, 0, frames, b"", end=end)


def test_of_segments_in_memory_only_the_last_ones_are_kept() -> None:
    opened = OpenSegments()
    for base in range(open_segments.UNPACKED_MAX + 1):
        opened.keep(segment(base, base + 1))
    assert opened.get(0) is None
    assert opened.get(1) is not None


def test_the_longest_unused_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_segments, "UNPACKED_MAX", OPEN_SEGMENTS)
    opened = OpenSegments()
    for base in range(OPEN_SEGMENTS + 1):
        opened.keep(segment(base, base + 1))
    assert opened.get(0) is None
    assert opened.get(1) is not None


def test_two_threads_that_opened_the_same_segment_go_on_with_the_first() -> None:
    opened = OpenSegments()
    first = opened.keep(segment(0, None))
    assert opened.keep(segment(0, None)) is first
    assert opened.keep(segment(0, 10)) is not first
    assert opened.keep(segment(0, 10, "b")).path == Path("b")


def test_an_offset_is_found_in_the_last_segment_only_while_it_is_the_last() -> None:
    opened = OpenSegments()
    last = opened.keep(segment(100, None))
    assert opened.holding(150, live_base=100) is last
    assert opened.holding(150, live_base=200) is None
    assert opened.holding(50, live_base=100) is None
    last.set_end(120)
    assert opened.holding(119, live_base=200) is last
    assert opened.holding(120, live_base=200) is None


@pytest.mark.usefixtures("hasty_threads")
def test_threads_look_keep_and_forget_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_segments, "UNPACKED_MAX", OPEN_SEGMENTS)
    opened, ready = OpenSegments(), threading.Barrier(4)
    faults: list[BaseException] = []
    segments = [segment(base, base + 1) for base in range(3 * OPEN_SEGMENTS)]

    def work(start: int) -> None:
        ready.wait()
        try:
            for turn in range(3000):
                one = segments[(start + turn * 7) % len(segments)]
                opened.keep(one)
                opened.holding(one.base, live_base=-1)
                opened.forget(one.base - 1)
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=work, args=(start,)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults


@pytest.mark.usefixtures("hasty_threads")
def test_threads_scan_while_another_puts_over_many_segments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_segments, "OPEN_SEGMENTS", 2)
    faults: list[BaseException] = []
    done = threading.Event()
    with Queue(tmp_path / "q", segment_bytes=65536) as queue:

        def watch() -> None:
            try:
                while not done.is_set():
                    numbers = [message.number for message in queue.scan()]
                    assert numbers == list(range(len(numbers)))
            except BaseException as error:
                faults.append(error)

        watchers = [threading.Thread(target=watch) for _ in range(3)]
        for watcher in watchers:
            watcher.start()
        for _ in range(40):
            queue.put_many([bytes(1000)] * 20)
        done.set()
        for watcher in watchers:
            watcher.join()
    assert not faults
