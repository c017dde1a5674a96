"""Where segments end: every number of bytes left over, and lengths that look like the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock import ManualClock, Queue
from penstock.formats.values import SegmentInfo
from penstock.options import DurabilityName
from penstock.sidecar.control import CONTROL
from tests.formats.mfq.twin import Twin

SIZE = 64


def both(tmp_path: Path) -> tuple[Path, Twin]:
    Twin(tmp_path / "ours", SIZE)
    return tmp_path / "ours", Twin(tmp_path / "twin", SIZE)


def files(path: Path) -> dict[str, bytes]:
    found = [*(path / "commitlog").iterdir(), *(path / "offset").iterdir()]
    return {file.name: file.read_bytes() for file in found}


@pytest.mark.parametrize("left", range(8))
@pytest.mark.parametrize("level", ["process", "always"])
def test_a_segment_ends_with_any_number_of_bytes_left(
    tmp_path: Path, left: int, level: DurabilityName
) -> None:
    path, twin = both(tmp_path)
    put = [b"a" * (SIZE - left - 5), b"next one", b"x" * (SIZE - 5), b"z"]
    with Queue(path, create=False, durability=level) as queue:
        offsets = [queue.put(body) for body in put]
        assert [m.body for m in queue.scan()] == put
        assert [m.body for m in queue.get_many(9)] == put
    assert [twin.produce(body) for body in put] == offsets
    assert files(path) == files(tmp_path / "twin")
    with Queue(path, create=False, read_only=True) as reader:
        assert [(m.offset, m.body) for m in reader.scan()] == twin.messages()
        assert reader.verify().is_ok


@pytest.mark.parametrize("length", [238, 494, 750])
def test_a_length_that_begins_like_the_end_marker_is_a_frame(tmp_path: Path, length: int) -> None:
    Twin(tmp_path / "q", 2048)
    put = [b"e" * length] * 9
    with Queue(tmp_path / "q", create=False) as queue:
        for body in put:
            queue.put(body)
        assert [m.body for m in queue.get_many(20)] == put
    assert [body for _, body in Twin(tmp_path / "q").messages()] == put


def test_bodies_full_of_markers_are_bodies(tmp_path: Path) -> None:
    Twin(tmp_path / "q", SIZE)
    put = [b"\xff" * 20, b"\xee" * 20, b"\0" * 20, b"\xee\0\0\0\xff" * 4] * 3
    with Queue(tmp_path / "q", create=False) as queue:
        for body in put:
            queue.put(body)
        assert [m.body for m in queue.scan()] == put


def test_a_batch_larger_than_a_segment_goes_in_pieces(tmp_path: Path) -> None:
    Twin(tmp_path / "q", SIZE)
    put = [b"%02d" % n * 10 for n in range(40)]
    with Queue(tmp_path / "q", create=False) as queue:
        queue.put_many(put)
        assert [m.body for m in queue.scan()] == put
    assert [body for _, body in Twin(tmp_path / "q").messages()] == put


def test_a_segment_that_another_process_has_just_begun_is_room_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Twin(tmp_path / "q", SIZE)
    with Queue(tmp_path / "q", create=False) as queue, Queue(tmp_path / "q") as other:
        queue.put(b"a" * 40)
        prepare = queue.store.format.prepare_segment

        def after_the_other(tail: int, number: int, needed: int) -> Any:
            monkeypatch.setattr(queue.store.format, "prepare_segment", prepare)
            other.store.roll(0, needed)
            return prepare(tail, number, needed)

        monkeypatch.setattr(queue.store.format, "prepare_segment", after_the_other)
        assert queue.put(b"b" * 40) == 45
        assert [message.body for message in other.scan()] == [b"a" * 40, b"b" * 40]
    assert Twin(tmp_path / "q").bases() == [0, 45]


def test_trim_deletes_whole_segments_and_waits_for_the_consumer(tmp_path: Path) -> None:
    twin = Twin(tmp_path / "q", SIZE)
    with Queue(tmp_path / "q", create=False) as queue:
        offsets = [queue.put(bytes([n]) * 20) for n in range(20)]
        twin.set("consumer.offset", offsets[7])
        assert queue.trim("latest") > 0
        assert twin.bases()[0] <= offsets[7] < twin.bases()[1]
        twin.set("consumer.offset", queue.offsets().tail)
        queue.trim("latest")
        assert len(twin.bases()) == 1
        assert queue.offsets().head == twin.bases()[0]
        assert next(iter(queue.scan())).offset == twin.bases()[0]


def test_what_is_noted_for_one_message_is_not_taken_for_its_neighbours(tmp_path: Path) -> None:
    clock = ManualClock()
    with Queue(tmp_path / "q", format="mfq", clock=clock) as queue:
        bodies = [b"first", b"keyed", b"late", b"last"]
        queue.put(bodies[0])
        queue.put(bodies[1], key="k")
        queue.put(bodies[2], delay=5)
        queue.put(bodies[3])
        group = queue.group("readers", ack="auto")
        found = [group.get(0), group.get(0), group.get(0)]
        assert [(m.body, m.key) for m in found] == [
            (b"first", None),
            (b"keyed", "k"),
            (b"last", None),
        ]
        clock.advance(5)
        late = group.get(0)
        assert (late.body, late.key) == (b"late", None)
        found = list(queue.scan())
        assert [m.key for m in found] == [None, "k", None, None]


def test_what_was_put_trimmed_and_passed_meanwhile_is_no_foreign_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One looks between the two stores of another's put, and lists what came long after it."""
    path = tmp_path / "q"
    options: dict[str, Any] = {"segment_bytes": 16384, "durability": "process"}
    with Queue(path, format="mfq", **options) as one, Queue(path, **options) as other:
        one.put(b"first")
        store, usual = one.store, one.store.format.list_segments
        offset = path / "offset" / "producer.offset"
        ahead = one.offsets().tail + 14
        offset.write_bytes(ahead.to_bytes(8, "little"))  # The tail is about to follow.

        def list_late() -> list[SegmentInfo]:
            offset.write_bytes((ahead - 14).to_bytes(8, "little"))
            for number in range(20):
                other.put(b"later %d" % number + bytes(3000))
            other.store.trim(other.offsets().tail)
            return usual()

        monkeypatch.setattr(store.format, "list_segments", list_late)
        store.follow()
        assert one.offsets().tail == other.offsets().tail
        monkeypatch.undo()
        assert one.verify().is_ok


def test_a_queue_is_opened_while_its_offset_waits_for_a_sync(tmp_path: Path) -> None:
    path = tmp_path / "q"
    options: dict[str, Any] = {"segment_bytes": 16384, "durability": "process"}
    with Queue(path, format="mfq", **options) as queue:
        for number in range(20):
            queue.put(b"message %d" % number + bytes(3000))
        queue.store.trim(queue.offsets().tail)
        offset = path / "offset" / "producer.offset"
        offset.write_bytes(bytes(8))  # Of a put at `always`, which stores it when it is synced.
        with (path / ".penstock" / "control").open("r+b") as control:
            for word in ("publishing", "published"):
                control.seek(CONTROL.offset_of(word))
                control.write(bytes(8))
        with Queue(path, **options) as other, Queue(path, read_only=True) as reader:
            assert other.offsets().tail == reader.offsets().tail == queue.offsets().tail
