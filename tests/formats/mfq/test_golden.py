"""Stores of the published layout: each reads whole, and appending keeps every other byte."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from penstock import Queue
from tests.formats.mfq.twin import Twin
from tests.golden_data import GoldenCase, golden_cases

CASES = golden_cases("mfq")
every = pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)


def expected(case: GoldenCase) -> list[tuple[int, bytes]]:
    found = case.expected["messages"]
    return [(item["offset"], base64.b64decode(item["body_b64"])) for item in found]


def found(queue: Queue) -> list[tuple[int | None, bytes]]:
    return [(message.offset, message.body) for message in queue.scan()]


def snapshot(path: Path) -> dict[str, bytes]:
    files = (p for p in path.rglob("*") if p.is_file() and ".penstock" not in p.parts)
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


@every
def test_every_golden_store_reads_whole(case: GoldenCase, tmp_path: Path) -> None:
    path = case.copy(tmp_path)
    before = snapshot(path)
    with Queue(path, create=False, read_only=True) as queue:
        assert (queue.store.format.name, queue.store.layout) == ("mfq", "1")
        assert found(queue) == expected(case)
        assert queue.offsets().tail == case.expected["producer_offset"]
        assert queue.meta["segment_size"] == case.expected["segment_size"]
        assert queue.meta["consumer_offset"] == case.expected["consumer_offset"]
        assert len(queue) == len(case.expected["messages"])
        assert queue.verify().unchecked == len(case.expected["messages"])
    assert snapshot(path) == before
    assert not (path / ".penstock").exists()


@every
def test_the_default_group_goes_on_at_the_consumer_s_offset(
    case: GoldenCase, tmp_path: Path
) -> None:
    path = case.copy(tmp_path)
    unread = expected(case)[case.expected["consumed"] :]
    with Queue(path, create=False) as queue:
        for offset, body in unread:
            message = queue.get(0)
            assert (message.offset, message.body) == (offset, body)
            assert queue.meta["consumer_offset"] == offset
            message.ack()
        assert queue.get_many(1) == []
        assert queue.meta["consumer_offset"] == queue.offsets().tail
        everything = [body for _, body in expected(case)]
        assert [m.body for m in queue.group("second").get_many(1000)] == everything


@every
@pytest.mark.parametrize("sizes", [(1,), (238, 100), (3, 40, 238, 7)], ids=str)
def test_appending_writes_what_the_original_would(
    case: GoldenCase, sizes: tuple[int, ...], tmp_path: Path
) -> None:
    path, other = case.copy(tmp_path / "ours"), case.copy(tmp_path / "twin")
    most = case.expected["segment_size"] - 5
    bodies = [bytes([size % 251]) * min(size, most) for size in sizes]
    twin = Twin(other)
    with Queue(path, create=False) as queue:
        offsets = [queue.put(body) for body in bodies]
    assert offsets == [twin.produce(body) for body in bodies]
    ours, wanted = snapshot(path), snapshot(other)
    if "torn" in case.id:
        # The length word behind the last frame is cleared: the original's consumer would take
        # what is left of the torn frame for a message.
        assert ours.keys() == wanted.keys()
    else:
        assert ours == wanted
    assert (
        Twin(path).messages()
        == twin.messages()
        == expected(case) + list(zip(offsets, bodies, strict=True))
    )


def test_what_is_left_of_a_torn_frame_is_no_message_for_an_original(tmp_path: Path) -> None:
    (case,) = [case for case in CASES if "torn" in case.id]
    path = case.copy(tmp_path)
    with Queue(path, create=False) as queue:
        tail = queue.offsets().tail
        assert any(Twin(path).raw(tail, 4))
        queue.put(b"short")
        assert Twin(path).raw(tail + 10, 4) == bytes(4)
        assert Twin(path).poll(tail) == b"short"
        assert Twin(path).poll(tail + 10) is None
