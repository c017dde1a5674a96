"""Hand-over between a Beat and penstock, by the files alone: what each finds and believes."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from penstock import Queue, _core
from penstock.engine import retention
from penstock.formats.beats import closing, state
from penstock.formats.beats.structs import KINDS
from tests.formats.beats.helpers import CREATED, KEY, event, key_for, pack_frame

SPAWN = multiprocessing.get_context("spawn")
COUNTED = ("1", "2-released", "2-released-lz4")


def opened(path: Path, layout: str = "1", **options: Any) -> Queue:
    given = {"durability": "process", "key": key_for(layout)} | options
    return Queue(path, format="beats", layout=layout, **given)


def names(path: Path) -> list[str]:
    return sorted((file.name for file in path.glob("*.seg")), key=lambda name: int(name[:-4]))


def numbers(messages: Any) -> list[int]:
    return [json.loads(message.body)["n"] for message in messages]


def filled(path: Path, layout: str = "1", count: int = 5, acked: int = 0, **options: Any) -> None:
    with opened(path, layout, **options) as queue:
        for number in range(count):
            queue.put(event(number))
        for message in queue.get_many(acked) if acked else ():
            message.ack()


# ── a queue that is drained ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("layout", CREATED)
def test_the_newest_segment_with_events_stays_and_no_empty_one_is_left(
    layout: str, tmp_path: Path
) -> None:
    path = tmp_path / "q"
    filled(path, layout, acked=5)
    for _ in range(3):
        with opened(path, layout) as queue:
            queue.group()
            retention.free_consumed(queue)
            assert names(path)[0] == "0.seg"
        assert names(path) == ["0.seg"]
    found = state.read(path / "state.dat")
    with Queue(path, read_only=True, key=key_for(layout)) as reader:
        end = reader.offsets().tail
    frame = None if layout == "0" else 5
    assert found == state.StateFile(0 if layout == "0" else 1, 0, end, frame)
    with opened(path, layout) as queue:
        assert queue.put(event(5)) >> 40 == 1
        assert numbers(queue.get_many(9)) == [5]
        retention.free_consumed(queue)
        assert names(path) == ["1.seg"]


def open_and_die(path: Path, layout: str) -> None:
    opened(path, layout)
    os._exit(0)


def test_what_a_beat_writes_under_the_name_of_our_empty_segment_stays(tmp_path: Path) -> None:
    path = tmp_path / "q"
    filled(path, "2-released-lz4", acked=5)
    process = SPAWN.Process(target=open_and_die, args=(path, "2-released-lz4"))
    process.start()
    process.join(30)
    kind, payload = KINDS["2-released-lz4"], b"\xa1\x66fields\xa1\x61n\x07"
    closing.write_stream(path / "1.seg", kind, pack_frame(payload))
    with Queue(path) as queue:
        assert numbers(queue.get_many(9)) == [7]


def put_and_die(path: Path, layout: str) -> None:
    queue = opened(path, layout)
    for number in range(6):
        queue.put(event(number))
    for message in queue.get_many(2):
        message.ack()
    os._exit(0)


def test_both_sides_keep_their_events_when_a_beat_took_our_name(tmp_path: Path) -> None:
    path = tmp_path / "q"
    process = SPAWN.Process(target=put_and_die, args=(path, "2-released-lz4"))
    process.start()
    process.join(30)
    payload = b"\xa1\x66fields\xa1\x61n\x07"
    closing.write_stream(path / "0.seg", KINDS["2-released-lz4"], pack_frame(payload))
    (path / "state.dat").write_bytes(b"")
    with Queue(path) as queue:
        assert sorted(numbers(queue.scan())) == [2, 3, 4, 5, 7]
        assert queue.verify().is_ok


def test_progress_made_while_we_lay_killed_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "q"
    process = SPAWN.Process(target=put_and_die, args=(path, "1"))
    process.start()
    process.join(30)
    with Queue(path, read_only=True) as reader:
        offsets = [message.offset or 0 for message in reader.scan()]
    (path / "state.dat").write_bytes(state.StateFile.at(1, offsets[4], 4).pack())
    with Queue(path):
        pass  # Also when nobody asks for the group at first.
    with Queue(path) as queue:
        first = queue.get(0)
        assert first.offset == offsets[4]
        first.ack()
    assert state.read(path / "state.dat") == state.StateFile(1, 0, offsets[5], 5)


def test_first_acks_that_a_beat_counts_in_the_segment_before_are_acks(tmp_path: Path) -> None:
    path = tmp_path / "q"
    with opened(path) as queue:
        queue.group("hold")
    filled(path, count=5, acked=5)
    with opened(path) as queue:
        offsets = [queue.put(event(number)) for number in range(5, 9)]
    before = state.read(path / "state.dat")
    assert before is not None
    more = offsets[2] - offsets[0]
    later = state.StateFile(1, 0, before.position + more, (before.frame or 0) + 2)
    (path / "state.dat").write_bytes(later.pack())
    with Queue(path) as queue:
        assert numbers(queue.get_many(9)) == [7, 8]


# ── folders and states of other releases ───────────────────────────────────────────────────


def test_the_folder_of_a_beat_that_has_queued_nothing_opens(tmp_path: Path) -> None:
    path = tmp_path / "q"
    path.mkdir()
    (path / "state.dat").write_bytes(b"")
    with Queue(path, read_only=True) as reader:
        assert list(reader.scan()) == []
        assert reader.verify().is_ok
    with Queue(path) as queue:
        assert queue.get_many(1) == []
        queue.put(event(0))
        assert numbers(queue.get_many(1)) == [0]
    assert names(path) == ["0.seg"]
    assert (path / "0.seg").read_bytes()[:4] == b"\2\0\0\0"


def test_a_newer_state_over_segments_of_layout_0_stays_what_it_is(tmp_path: Path) -> None:
    path = tmp_path / "q"
    filled(path, "0", count=20)
    shutil.rmtree(path / ".penstock")
    with Queue(path, read_only=True) as reader:
        place = [message.offset or 0 for message in reader.scan()][15]
    (path / "state.dat").write_bytes(state.StateFile.at(1, place, 15).pack())
    with Queue(path) as queue:
        assert numbers(queue.get_many(1)) == [15]
    assert state.read(path / "state.dat") == state.StateFile(1, 0, place, 15)
    with Queue(path) as queue:
        queue.get(0).ack()
    found = state.read(path / "state.dat")
    assert found is not None
    assert (found.version, found.frame) == (1, 16)


# ── damage ─────────────────────────────────────────────────────────────────────────────────


def in_segments(path: Path, layout: str = "1") -> list[int]:
    """Five segments with four events each, alike in size; the first six events are acked."""
    for start in range(0, 20, 4):
        with opened(path, layout) as queue:
            for number in range(start, start + 4):
                queue.put(event(number + 100))
    with opened(path, layout) as queue:
        for message in queue.get_many(6):
            message.ack()
        retention.free_consumed(queue)
    return list(range(106, 120))


def test_no_wrong_bit_of_the_state_costs_an_unread_event(tmp_path: Path) -> None:
    path = tmp_path / "q"
    wanted = in_segments(path)
    raw, whole = (path / "state.dat").read_bytes(), tmp_path / "whole"
    shutil.copytree(path, whole)
    # Every bit that can name another place here, and some that can't.
    bits = [*range(3), *range(32, 40), *range(96, 108), *range(160, 166), 70, 140, 200]
    for bit in bits if len(raw) == 28 else ():
        shutil.rmtree(path)
        shutil.copytree(whole, path)
        wrong = bytearray(raw)
        wrong[bit // 8] ^= 1 << bit % 8
        (path / "state.dat").write_bytes(wrong)
        with Queue(path, durability="process") as queue:
            found = numbers(queue.get_many(99))
            retention.free_consumed(queue)
            assert found[-14:] == wanted, bit
            assert numbers(queue.scan())[-14:] == wanted, bit


@pytest.mark.parametrize("gone", [1, 2, 4])
def test_a_segment_that_is_gone_is_reported(gone: int, tmp_path: Path) -> None:
    path = tmp_path / "q"
    in_segments(path)
    assert names(path) == [f"{number}.seg" for number in range(1, 5)]
    (path / f"{gone}.seg").unlink()
    with Queue(path, read_only=True) as reader:
        assert [damage.path.name for damage in reader.verify().corrupt] == [f"{gone}.seg"]
    with Queue(path) as queue:
        assert [Path(found["path"]).name for found in queue.stats()["dropped"]] == [f"{gone}.seg"]


def test_segments_that_a_beat_has_read_and_deleted_are_not_missed(tmp_path: Path) -> None:
    path = tmp_path / "q"
    in_segments(path)
    with Queue(path, read_only=True) as reader:
        place = [message.offset or 0 for message in reader.scan()][7]
    for number in (1, 2):
        (path / f"{number}.seg").unlink()
    (path / "state.dat").write_bytes(state.StateFile.at(1, place, place >> 40 and 1).pack())
    with Queue(path, read_only=True) as reader:
        assert reader.verify().is_ok
    with Queue(path) as queue:
        assert not queue.stats()["dropped"]


@pytest.mark.parametrize("layout", ["2", "3"])
def test_a_tamper_evident_segment_that_is_cut_to_its_header_is_noticed(
    layout: str, tmp_path: Path
) -> None:
    path = tmp_path / "q"
    with opened(path, layout, tamper_evident=True) as queue:
        for number in range(5):
            queue.put(event(number))
    (path / "0.seg").write_bytes((path / "0.seg").read_bytes()[:20])
    with Queue(path, read_only=True, key=KEY, tamper_evident=True) as reader:
        assert "fewer than the closing tag says" in reader.verify().corrupt[0].found
    with Queue(path, key=KEY, tamper_evident=True) as queue:
        assert queue.put(event(5)) >> 40 == 1
        assert "fewer than the closing tag says" in queue.verify().corrupt[0].found


@pytest.mark.parametrize("layout", COUNTED)
def test_a_closed_segment_that_is_cut_to_its_header_is_noticed(layout: str, tmp_path: Path) -> None:
    path = tmp_path / "q"
    filled(path, layout)
    header = KINDS[layout].header_bytes
    (path / "0.seg").write_bytes((path / "0.seg").read_bytes()[:header])
    with Queue(path) as queue:
        assert queue.put(event(5)) >> 40 == 1
        assert not queue.verify().is_ok


# ── at durability `always` ─────────────────────────────────────────────────────────────────


@pytest.mark.crash
@pytest.mark.parametrize("is_handed_over", [True, False])
@pytest.mark.parametrize("layout", CREATED)
def test_a_full_segment_is_on_the_disk_with_its_count_before_the_next_one_has_its_name(
    layout: str, is_handed_over: bool, tmp_path: Path
) -> None:
    """Else a put into a later segment could return while this one was still to be synced."""
    path = tmp_path / "q"
    options: dict[str, Any] = {"durability": "always", "segment_bytes": 16384}
    with opened(path, layout, **options) as queue, opened(path, layout, **options) as other:
        queue.put_many([event(0), event(1)])
        queue.put(event(2))
        number = queue.offsets().segment_base >> 40
        file, following = path / f"{number}.seg", path / f"{number + 1}.seg"
        _core.take_effects()
        _core.record_effects(True)
        try:
            (other if is_handed_over else queue).put(event(3, text="x" * 16384))
        finally:
            _core.record_effects(False)
        effects = _core.take_effects()
        names = [Path(effect[2]) if effect[0] == "rename" else None for effect in effects]
        later = effects[names.index(following) :]
        if not KINDS[layout].is_stream:  # That is ended later; its plain copy is on the disk.
            assert [effect for effect in later if effect[1] == file.stat().st_ino] == []
        if KINDS[layout].is_counted:
            assert int.from_bytes(file.read_bytes()[4:8], "little") == 3
        assert numbers(queue.scan()) == [0, 1, 2, 3]
        assert queue.verify().is_ok
