"""The words in the control block against the frames: words that are older or wrong never cost a
frame, and what was synced and is gone is said."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from penstock import CorruptError, NoQueueError, Queue
from penstock.sidecar.control import CONTROL
from tests.copies import copy_as_killed, copy_open
from tests.opening import open_queue
from tests.reading import bodies

BODY = b"x" * 6000
"""Two fit into a segment."""


def poke(path: Path, **words: int) -> None:
    """Makes the copy's words say something else."""
    with (path / ".penstock" / "control").open("r+b") as stream:
        for name, value in words.items():
            stream.seek(CONTROL.offset_of(name))
            stream.write(CONTROL.pack_field(name, value))


def said_tail(tail: int) -> dict[str, int]:
    return {"tail": tail, "tail_check": tail ^ (2**64 - 1), "reserved_end": 0}


def last_segment(path: Path) -> Path:
    return max((path / "log").glob("*.seg"))


def test_a_tail_that_lies_before_whole_frames_costs_none_of_them(tmp_path: Path) -> None:
    with open_queue(tmp_path / "q") as queue:
        queue.put(b"one")
        tail = queue.offsets().tail
        queue.put_many([b"two", b"three"])
        path = copy_as_killed(tmp_path / "q", tmp_path / "killed")
    poke(path, **said_tail(tail))
    with Queue(path) as queue:
        assert bodies(queue) == [b"one", b"two", b"three"]
        assert [damage.found for damage in queue.store.dropped] == [f"tail {tail}"]
        assert queue.put(b"four") > tail


def test_words_of_an_older_segment_cost_none_of_the_later_ones(tmp_path: Path) -> None:
    with open_queue(tmp_path / "q") as queue:
        offsets = [queue.put(BODY) for _ in range(5)]
        path = copy_as_killed(tmp_path / "q", tmp_path / "killed")
    poke(path, **said_tail(offsets[1]), segment_base=offsets[0], durable=0)
    with Queue(path) as queue:
        assert bodies(queue) == [BODY] * 5
        assert len(queue.store.dropped) == 1
        assert queue.put(BODY) > offsets[-1]


@pytest.mark.parametrize("key", [None, bytes(32)])
def test_the_end_is_found_without_the_last_header_by_readers_alone(
    key: bytes | None, tmp_path: Path
) -> None:
    with open_queue(tmp_path / "q", key=key) as queue:
        queue.put_many([BODY] * 3)
        path = copy_as_killed(tmp_path / "q", tmp_path / "killed")
    with last_segment(path).open("r+b") as stream:
        stream.seek(20)
        stream.write(b"wrong")
    if key is None:
        with Queue(path, read_only=True) as queue:
            scan = queue.scan(tolerant=True)
            assert [message.body for message in scan] == [BODY] * 3
            assert [damage.path for damage in scan.damage] == [last_segment(path)]
    else:  # Its salt is gone with it.
        with (
            pytest.raises(CorruptError, match="seg"),
            Queue(path, read_only=True, key=key) as queue,
        ):
            bodies(queue)
    with pytest.raises(CorruptError, match="seg"):
        Queue(path, key=key)


def test_synced_messages_that_a_power_cut_took_are_said_to_be_gone(tmp_path: Path) -> None:
    with open_queue(tmp_path / "q", durability="always") as queue:
        queue.put(b"one")
        tail = queue.offsets().tail
        queue.put(b"two")
        path = copy_open(tmp_path / "q", tmp_path / "cut")
    with last_segment(path).open("r+b") as stream:
        stream.seek(4096 + tail)
        stream.write(bytes(4096))
    with Queue(path) as queue:
        assert bodies(queue) == [b"one"]
        (lost,) = queue.store.dropped
        assert (lost.found, lost.offset) == ("an end", tail)
        assert "which were synced" in lost.expected


def test_a_reader_of_a_queue_that_was_deleted_is_told_so(tmp_path: Path) -> None:
    with open_queue(tmp_path / "q") as queue:
        queue.put(b"one")
    with Queue(tmp_path / "q", read_only=True) as queue:
        shutil.rmtree(tmp_path / "q" / ".penstock")
        for segment in (tmp_path / "q" / "log").glob("*.seg"):
            segment.unlink()
        with pytest.raises(NoQueueError):
            queue.offsets()
