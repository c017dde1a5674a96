"""Segments that another process begins while this one has the queue open."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock import Queue
from penstock.formats.values import SegmentInfo


@pytest.mark.parametrize("format", ["penstock", "mfq"])
def test_a_segment_that_another_process_begins_is_found_without_a_listing(
    tmp_path: Path, format: str
) -> None:
    """A listing of a thousand segments takes milliseconds, and a get would wait for it."""
    listings: list[int] = []
    with (
        Queue(
            tmp_path / "q", format=format, segment_bytes=1 << 16, durability="process"
        ) as producer,
        Queue(tmp_path / "q", durability="process") as consumer,
    ):
        look = consumer.store.format.list_segments

        def counted() -> list[SegmentInfo]:
            listings.append(1)
            return look()

        consumer.store.format.list_segments = counted  # type: ignore[method-assign]
        group, got = consumer.group(ack="auto"), 0
        for number in range(500):
            producer.put(b"%d" % number + bytes(1000))
            got += len(group.get_many(10))
        segments = list(producer.store.segments(fresh=True))
        assert len(segments) > 5
        assert (got, listings) == (500, [])
        assert [(one.base, one.end) for one in consumer.store.segments()] == [
            (one.base, one.end) for one in segments
        ]


@pytest.mark.parametrize("format", ["penstock", "zbus", "beats", "mfq"])
def test_none_of_the_segments_is_missed_that_another_process_has_begun(
    tmp_path: Path, format: str
) -> None:
    with (
        Queue(
            tmp_path / "q", format=format, segment_bytes=1 << 16, durability="process"
        ) as producer,
        Queue(tmp_path / "q", durability="process") as consumer,
    ):
        group, count = consumer.group(ack="auto"), 0
        for rolls in (1, 2, 3, 1, 5):
            for _ in range(rolls):
                base = producer.offsets().segment_base
                while producer.offsets().segment_base == base:
                    producer.put(b"%d" % count + bytes(1000))
                    count += 1
            found = [one.base for one in consumer.store.segments()]
            assert found == [one.base for one in producer.store.segments(fresh=True)]
        bodies = [body for _ in range(count) for body in group.get_bodies(1)]
    assert bodies == [b"%d" % number + bytes(1000) for number in range(count)]
