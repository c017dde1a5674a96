"""Lists long enough to be written by one call."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import Queue, _core
from penstock.options import MIB

BODIES = [bytes([n % 251 + 1]) * (700 + n % 600) for n in range(600)]


@pytest.fixture
def recording() -> Iterator[None]:
    _core.take_effects()
    _core.record_effects(True)
    yield
    _core.record_effects(False)
    _core.take_effects()


@pytest.mark.parametrize("format", ["penstock", "mfq"])
def test_a_long_list_between_single_messages_is_whole(tmp_path: Path, format: str) -> None:
    with (
        Queue(tmp_path / "queue", format=format, segment_bytes=MIB, durability="process") as queue,
        Queue(tmp_path / "queue", durability="process") as other,
    ):
        group = other.group(ack="auto")
        for turn in range(4):
            queue.put(b"before %d" % turn)
            queue.put_many(BODIES)
            queue.put(b"behind %d" % turn)
            found = [message.body for message in group.get_many(10_000)]
            while more := group.get_many(10_000):
                found += [message.body for message in more]
            assert found == [b"before %d" % turn, *BODIES, b"behind %d" % turn]
        assert queue.verify().is_ok
        assert len(queue.store.format.list_segments()) > 2


@pytest.mark.usefixtures("recording")
def test_an_original_consumer_meets_the_first_length_last(tmp_path: Path) -> None:
    with Queue(
        tmp_path / "queue", format="mfq", segment_bytes=2 * MIB, durability="process"
    ) as queue:
        segment = queue.store.format.list_segments()[0].path.stat().st_ino
        _core.take_effects()
        queue.put_many(BODIES)
        stores = [e for e in _core.take_effects() if e[0] == "store" and e[1] == segment]
    (_, _, at, frames), (_, _, word_at, word) = stores[:2]
    assert (at, word_at) == (0, 0)
    assert (bytes(frames[:4]), bytes(word)) == (bytes(4), len(BODIES[0]).to_bytes(4, "little"))
    assert len(frames) > 256 << 10
