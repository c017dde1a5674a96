"""The index of segments is a hint: right when it is there, missed by nobody when it is not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from penstock import ManualClock, Queue
from penstock.formats.penstock import index, segments
from penstock.formats.penstock.structs import INDEX_ENTRY, SUMMARY, SUMMARY_AT

SMALL: dict[str, Any] = {"segment_bytes": 16384, "durability": "process"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A queue of many segments, one message a second."""
    path, clock = tmp_path / "q", ManualClock()
    with Queue(path, clock=clock, **SMALL) as queue:
        for number in range(400):
            queue.put(b"%d" % number + bytes(500))
            clock.advance(1)
    return path


def no_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> bytes:
        raise AssertionError(f"{path} was read")

    monkeypatch.setattr(segments, "read_page", refuse)


def places(queue: Queue) -> list[object]:
    """What the index is for: numbers, times, and what is known about each segment."""
    first = next(iter(queue.scan())).timestamp_ns or 0
    numbers = [queue.group("g").seek(f"number:{n}") for n in (0, 17, 200, 399)]
    later = queue.scan(start="earliest")
    times = [m.offset for m in later if (m.timestamp_ns or 0) >= first + 250 * 10**9][:1]
    full = [i for i in queue.store.segments(fresh=True) if i.end is not None]
    return [numbers, times, [queue.store.format.describe(info) for info in full]]


def test_every_full_segment_is_described_without_reading_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Queue(path, read_only=True) as queue:
        full = [info for info in queue.store.segments(fresh=True) if info.end is not None]
        expected = [queue.store.format._read_about(info) for info in full]  # type: ignore[attr-defined]
        no_pages(monkeypatch)
        assert [queue.store.format.describe(info) for info in full] == expected
    assert len(full) > 10
    assert sum(info.messages or 0 for info in expected) == expected[-1].next_number


@pytest.mark.parametrize("harm", ["gone", "zeros", "flipped", "half", "foreign"])
def test_a_lost_or_damaged_index_changes_no_answer(path: Path, harm: str) -> None:
    index = path / ".penstock" / "index"
    raw = index.read_bytes()
    with Queue(path, **SMALL) as queue:
        expected = places(queue)
    if harm == "gone":
        index.unlink()
    else:
        index.write_bytes(
            {
                "zeros": bytes(len(raw)),
                "flipped": bytes(byte ^ 1 for byte in raw),
                "half": raw[: len(raw) // 2 + 7],
                "foreign": raw[INDEX_ENTRY.size :] + raw[: INDEX_ENTRY.size],
            }[harm]
        )
    with Queue(path, **SMALL) as queue:
        assert places(queue) == expected


def test_a_lost_index_is_written_anew(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (path / ".penstock" / "index").unlink()
    Queue(path, **SMALL).close()
    with Queue(path, read_only=True) as queue:
        no_pages(monkeypatch)
        full = [info for info in queue.store.segments(fresh=True) if info.end is not None]
        assert all(queue.store.format.describe(info).messages for info in full)


def test_an_unclean_start_of_the_machine_drops_it(tmp_path: Path) -> None:
    clock = ManualClock()
    queue = Queue(tmp_path / "q", clock=clock, **SMALL)
    queue.put_many([bytes(500)] * 200)
    queue.store.format.tend()
    index = tmp_path / "q" / ".penstock" / "index"
    assert index.stat().st_size > INDEX_ENTRY.size
    queue.store.abandon()  # As a killed process leaves it.
    clock.restart()
    with index.open("rb") as before, Queue(tmp_path / "q", clock=clock, **SMALL) as queue:
        assert os.fstat(before.fileno()).st_nlink == 0
        assert queue.offsets().next_number == 200


def test_segments_that_are_gone_leave_it_in_time(tmp_path: Path) -> None:
    with Queue(tmp_path / "q", **SMALL) as queue:
        for _ in range(30):
            queue.put_many([bytes(500)] * 100)
            queue.store.format.tend()
            queue.group("g").seek("latest")
            queue.trim()
    entries = (tmp_path / "q" / ".penstock" / "index").stat().st_size // INDEX_ENTRY.size
    assert entries < 70


def test_the_newest_are_found_without_reading_all_of_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "LOOK_BYTES", 2 * INDEX_ENTRY.size)
    read: list[int] = []
    usual = index.Index._bytes

    def counting(self: index.Index, start: int, length: int) -> bytes:
        read.append(length // INDEX_ENTRY.size)
        return usual(self, start, length)

    monkeypatch.setattr(index.Index, "_bytes", counting)
    with Queue(path, read_only=True) as queue:
        full = [info for info in queue.store.segments() if info.end is not None]
        no_pages(monkeypatch)
        assert queue.store.format.describe(full[-1]).messages
        assert sum(read) == 2
        assert queue.store.format.describe(full[0]).first_number == 0
        assert sum(read) == len(full)
        assert len(read) < len(full) / 2


def test_a_summary_that_someone_else_just_writes_is_not_taken_for_one(path: Path) -> None:
    """Its first bytes are there: an entry made of the rest would say that all is long expired."""
    with Queue(path, **SMALL) as queue:
        store = queue.store
        info = store.segments()[-3]
        expected = store.format.describe(info)
        (store.sidecar / "index").unlink()
        with info.path.open("r+b") as file:
            file.seek(SUMMARY_AT + 8)
            file.write(bytes(SUMMARY.size - 8))
    with Queue(path, **SMALL) as queue:
        queue.store.format.tend()
        assert queue.store.format.describe(info) == expected
        assert expected.messages
        assert expected.last_ns
