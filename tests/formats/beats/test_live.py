"""A Beats queue in use: hand-over, state.dat, deleting, limits, crashes, a Beat in between."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import shutil
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from penstock import Full, ManualClock, OffsetError, PoisonedError, Queue
from penstock.engine import retention
from penstock.formats.beats import state
from penstock.formats.beats.format import BeatsFormat
from tests.failing import failing_syncs
from tests.formats.beats.helpers import CREATED, KEY, event, key_for

SPAWN = multiprocessing.get_context("spawn")


def opened(path: Path, layout: str = "1", **options: object) -> Queue:
    given = {"durability": "process", "key": key_for(layout)} | options
    return Queue(path, format="beats", layout=layout, **given)  # type: ignore[arg-type]


def numbers(queue: Queue) -> list[int]:
    return [json.loads(message.body)["n"] for message in queue.scan()]


def names(path: Path) -> list[str]:
    return sorted((file.name for file in path.glob("*.seg")), key=lambda name: int(name[:-4]))


def put_when_told(path: Path, layout: str, channel: Connection) -> None:
    """Another process: puts what it is told to, until it is told nothing."""
    with opened(path, layout) as queue:
        channel.send("open")
        while (number := channel.recv()) is not None:
            channel.send(queue.put(event(number)))


@pytest.mark.parametrize("layout", CREATED)
def test_two_processes_hand_the_open_segment_over(layout: str, tmp_path: Path) -> None:
    path = tmp_path / "q"
    here, there = SPAWN.Pipe()
    with opened(path, layout) as queue:
        queue.group("hold")
        other = SPAWN.Process(target=put_when_told, args=(path, layout, there), daemon=True)
        other.start()
        assert here.recv() == "open"
        offsets = []
        for number in range(12):
            if number // 3 % 2:
                here.send(number)
                offsets.append(here.recv())
            else:
                offsets.append(queue.put(event(number)))
        # Three puts of one process share a segment, then the other begins its own.
        assert [offset >> 40 for offset in offsets] == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
        assert numbers(queue) == list(range(12))
        here.send(None)
        other.join(30)
        assert other.exitcode == 0
        assert queue.verify().is_ok
    with Queue(path, read_only=True, key=key_for(layout)) as queue:
        assert numbers(queue) == list(range(12))
        assert queue.verify().is_ok


def put_and_die(path: Path, layout: str) -> None:
    queue = opened(path, layout)
    for number in range(5):
        queue.put(event(number))
    queue.put_many([event(number) for number in range(5, 10)])
    os._exit(0)


@pytest.mark.parametrize("layout", CREATED)
def test_a_killed_writer_leaves_a_queue_that_comes_back_whole(layout: str, tmp_path: Path) -> None:
    path = tmp_path / "q"
    process = SPAWN.Process(target=put_and_die, args=(path, layout))
    process.start()
    process.join(30)
    copy = Path(shutil.copytree(path, tmp_path / "copy"))
    with Queue(copy, read_only=True, key=key_for(layout)) as queue:
        assert numbers(queue) == list(range(10))
    with Queue(path, key=key_for(layout)) as queue:
        queue.put(event(10))
        assert numbers(queue) == list(range(11))
        assert names(path) == ["0.seg", "1.seg"]
    # Without our own folder, as a Beat or another tool sees it.
    shutil.rmtree(path / ".penstock")
    with Queue(path, read_only=True, key=key_for(layout)) as queue:
        assert numbers(queue) == list(range(11))
        assert queue.verify().is_ok


def test_a_stream_cut_by_a_crash_is_whole_without_our_copy(tmp_path: Path) -> None:
    path = tmp_path / "q"
    process = SPAWN.Process(target=put_and_die, args=(path, "2-released-lz4"))
    process.start()
    process.join(30)
    shutil.rmtree(path / ".penstock")
    with Queue(path, read_only=True) as queue:
        assert numbers(queue) == list(range(10))


def test_an_encrypted_segment_is_never_appended_to_again(tmp_path: Path) -> None:
    path = tmp_path / "q"
    before: dict[str, bytes] = {}
    for turn in range(4):
        with opened(path, "2") as queue:
            queue.put(event(turn))
        for name, raw in before.items():
            assert (path / name).read_bytes() == raw
        before = {name: (path / name).read_bytes() for name in names(path)}
    assert len(before) == 4


def test_state_follows_every_ack_of_the_default_group_alone(tmp_path: Path) -> None:
    path = tmp_path / "q"
    with opened(path) as queue:
        offsets = [queue.put(event(number)) for number in range(6)]
        other = queue.group("other")
        for message in other.get_many(6):
            message.ack()
        assert (path / "state.dat").read_bytes() == b""
        first, second, third, *_ = queue.get_many(6)
        second.ack()
        assert state.read(path / "state.dat") == state.StateFile(1, 0, 8, 0)
        first.ack()
        assert state.read(path / "state.dat") == state.StateFile(1, 0, offsets[2], 2)
        third.ack()
        assert state.read(path / "state.dat") == state.StateFile(1, 0, offsets[3], 3)


def test_a_place_in_a_later_segment_has_its_own_frame_index(tmp_path: Path) -> None:
    path = tmp_path / "q"
    with opened(path, segment_bytes=16384) as queue:
        offsets = [queue.put(event(number, pad="x" * 500)) for number in range(100)]
        for message in queue.get_many(50):
            message.ack()
    wanted = offsets[50]
    index = sum(1 for offset in offsets[:50] if offset >> 40 == wanted >> 40)
    assert state.read(path / "state.dat") == state.StateFile(
        1, wanted >> 40, wanted & 0xFFFFFFFFFF, index
    )
    with Queue(path) as queue:
        assert queue.get(0).offset == wanted


def test_what_a_beat_acked_meanwhile_is_acked(tmp_path: Path) -> None:
    path = tmp_path / "q"
    with opened(path) as queue:
        offsets = [queue.put(event(number)) for number in range(6)]
        queue.get(0).ack()
    later = state.StateFile.at(1, offsets[4], 4)
    (path / "state.dat").write_bytes(later.pack())
    with Queue(path) as queue:
        assert [message.offset for message in queue.get_many(9)] == offsets[4:]


def test_what_a_beat_wrote_meanwhile_is_read(tmp_path: Path) -> None:
    path = tmp_path / "q"
    with opened(path) as queue:
        queue.put(event(0))
    shutil.copy(path / "0.seg", path / "1.seg")
    with Queue(path, read_only=True) as queue:
        assert numbers(queue) == [0, 0]
    with Queue(path) as queue:
        assert numbers(queue) == [0, 0]
        assert queue.put(event(1)) >> 40 == 2


def test_a_state_that_names_no_event_begins_its_segment_again(tmp_path: Path) -> None:
    path = tmp_path / "q"
    with opened(path) as queue:
        offsets = [queue.put(event(number)) for number in range(3)]
    (path / "state.dat").write_bytes(state.StateFile(1, 0, offsets[1] + 3, 1).pack())
    with Queue(path) as queue:
        assert [message.offset for message in queue.get_many(9)] == offsets


@pytest.mark.parametrize("raw", [b"\1", b"\7\0\0\0" + bytes(24), bytes([1]) * 28])
def test_a_broken_state_starts_at_the_oldest_event(raw: bytes, tmp_path: Path) -> None:
    path = tmp_path / "q"
    with opened(path) as queue:
        queue.put(event(0))
    shutil.rmtree(path / ".penstock")
    (path / "state.dat").write_bytes(raw)
    with Queue(path) as queue:
        assert len(queue.get_many(9)) == 1
    kept = list((path / ".penstock" / "quarantine").iterdir())
    assert [file.read_bytes() for file in kept] == [raw]


def test_segments_go_when_every_group_has_acked_them(tmp_path: Path) -> None:
    path = tmp_path / "q"
    with opened(path, segment_bytes=16384) as queue:
        slow = queue.group("slow")
        offsets = [queue.put(event(number, pad="x" * 500)) for number in range(100)]
        everything = names(path)
        for message in queue.get_many(100):
            message.ack()
        assert not retention.free_consumed(queue)
        for message in slow.get_many(50):
            message.ack()
        assert retention.free_consumed(queue)
        kept = names(path)
        assert kept == everything[-len(kept) :]
        assert int(kept[0][:-4]) == offsets[50] >> 40
        assert queue.offsets().head == offsets[50]
        with pytest.raises(OffsetError, match=str(offsets[50])):
            slow.seek(offsets[49])
        assert [message.offset for message in slow.get_many(99)] == offsets[50:]


def test_max_size_is_never_passed_and_room_comes_by_acking(tmp_path: Path) -> None:
    path = tmp_path / "q"
    most = 40_000
    with opened(path, max_bytes=most, segment_bytes=16384, when_full="reject") as queue:
        queue.group()
        taken = 0
        while True:
            try:
                queue.put(event(taken, pad="x" * 300))
            except Full:
                break
            taken += 1
            assert sum(file.stat().st_size for file in path.glob("*.seg")) <= most
        assert taken > 80
        for message in queue.get_many(taken):
            message.ack()
        queue.put(event(taken))
        assert [json.loads(m.body)["n"] for m in queue.get_many(9)] == [taken]


def test_keys_and_delays_are_kept_beside_the_queue(tmp_path: Path) -> None:
    clock = ManualClock()
    with opened(tmp_path / "q", "3", clock=clock) as queue:
        queue.put(event(0), key="a", delay=5)
        queue.put(event(1), key="b")
        assert [message.key for message in queue.get_many(9)] == ["b"]
        clock.advance(6)
        assert [message.key for message in queue.get_many(9)] == ["a"]


def test_a_reader_without_rights_to_write_reads(tmp_path: Path) -> None:
    path = tmp_path / "q"
    with opened(path, "2") as queue:
        queue.put(event(0))
        with Queue(path, read_only=True, key=KEY) as reader:
            assert numbers(reader) == [0]
            queue.put(event(1))
            assert numbers(reader) == [0, 1]


@pytest.mark.parametrize("layout", CREATED)
def test_after_a_failed_sync_what_was_not_synced_is_written_anew(
    layout: str, tmp_path: Path
) -> None:
    path, key = tmp_path / "q", key_for(layout)
    options: dict[str, Any] = {"format": "beats", "layout": layout, "key": key}
    with Queue(path, durability="always", **options) as queue:
        queue.put(event(0))
        with failing_syncs():
            with pytest.raises(PoisonedError):
                queue.put(event(1))
            with pytest.raises(PoisonedError):
                queue.put(event(2))
    before = (path / "0.seg").stat().st_ino
    with Queue(path, **options) as queue:
        # What was put when the sync failed may be there; nobody was told that it is.
        assert numbers(queue) in ([0], [0, 1])
        assert (path / "0.seg").stat().st_ino != before
        queue.put(event(3))
        assert queue.verify().is_ok


def test_what_every_group_has_acked_stays_done_when_the_queue_is_opened_again(
    tmp_path: Path,
) -> None:
    with Queue(tmp_path / "q", format="beats", durability="process") as queue:
        groups = [queue.group(name) for name in ("one", "other")]
        for number in range(3):
            queue.put(b'{"n": %d}' % number)
        for group in groups:
            group.get().ack()
        queue.sync()
        head = queue.offsets().head
        assert len([*queue.scan()]) == 2
    for read_only in (True, False, True):
        with Queue(tmp_path / "q", create=False, read_only=read_only) as queue:
            assert queue.offsets().head == head
            assert [message.json()["n"] for message in queue.scan()] == [1, 2]


@pytest.mark.parametrize("layout", CREATED)
def test_what_a_purge_took_is_gone_when_the_queue_is_opened_again(
    tmp_path: Path, layout: str
) -> None:
    key = key_for(layout)
    with Queue(tmp_path / "q", format="beats", layout=layout, key=key) as queue:
        queue.group("one")
        queue.put(event(0))
        queue.purge()
        assert [*queue.scan()] == []
    for read_only in (True, False, True):
        with Queue(tmp_path / "q", create=False, key=key, read_only=read_only) as queue:
            assert [*queue.scan()] == []
    with Queue(tmp_path / "q", create=False, key=key) as queue:
        queue.put(event(1))
        assert [message.json()["n"] for message in queue.group("new").get_many(5)] == [1]


def test_a_listing_ends_however_fast_others_begin_segments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Queue(tmp_path / "q", format="beats", durability="process") as queue:
        queue.put(b"{}")
        format, bases = queue.store.format, itertools.count(1)
        assert isinstance(format, BeatsFormat)
        monkeypatch.setattr(format, "_live_base", lambda: next(bases) << 40)
        assert format.list_segments()
