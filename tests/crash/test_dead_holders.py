"""What processes leave behind that died in the middle of something, with others still there."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import PoisonedError, Queue, _core
from penstock.sidecar.control import CONTROL
from tests import lockwords
from tests.failing import failing_syncs
from tests.opening import open_queue
from tests.reading import bodies

SPAWN = multiprocessing.get_context("spawn")
KEY = bytes(range(32))
GROUP_LOCK_AT = 16


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queue"


@pytest.fixture
def queue(path: Path) -> Iterator[Queue]:
    with open_queue(path) as queue:
        yield queue


def hold_append_lock(path: Path, channel: Any) -> None:
    queue = open_queue(path)
    lockwords.hold_append_lock(queue)
    channel.send(queue.store.need_shared().owner)
    signal.pause()


def hold_group_lock(path: Path, channel: Any) -> None:
    queue = open_queue(path)
    queue.group()
    owner = queue.store.need_shared().owner
    with (path / ".penstock/groups/default/table").open("r+b") as table:
        table.seek(GROUP_LOCK_AT)
        table.write(struct.pack("<I", owner))
    channel.send(owner)
    signal.pause()


def put_and_get(path: Path, channel: Any) -> None:
    with open_queue(path) as queue:
        queue.put(b"from a newcomer")
        channel.send(queue.get(10).body)


def die_holding(work: Callable[[Path, Any], None], path: Path) -> int:
    here, there = SPAWN.Pipe()
    process = SPAWN.Process(target=work, args=(path, there))
    process.start()
    assert here.poll(120)
    owner: int = here.recv()
    os.kill(process.pid or 0, signal.SIGKILL)
    process.join()
    return owner


def run(work: Callable[[Path, Any], None], path: Path) -> Any:
    here, there = SPAWN.Pipe()
    process = SPAWN.Process(target=work, args=(path, there), daemon=True)
    process.start()
    try:
        return here.recv() if here.poll(120) else None
    finally:
        process.kill()
        process.join()


@pytest.mark.parametrize("work", [hold_append_lock, hold_group_lock])
def test_a_newcomer_in_a_dead_holders_slot_does_not_keep_its_lock_alive(
    path: Path, queue: Queue, work: Callable[[Path, Any], None]
) -> None:
    die_holding(work, path)
    assert run(put_and_get, path) == b"from a newcomer"
    queue.put(b"x")
    assert len(queue.get_many(9)) == 2


@pytest.mark.parametrize("work", [hold_append_lock, hold_group_lock])
def test_the_next_opener_is_not_held_up_by_a_lock_of_the_last_one(
    path: Path, work: Callable[[Path, Any], None]
) -> None:
    die_holding(work, path)
    assert run(put_and_get, path) == b"from a newcomer"


def test_receipts_of_the_living_hold_when_a_table_is_made_anew(path: Path, queue: Queue) -> None:
    queue.put_many([b"%d" % n for n in range(6)])
    first, done, back, longer, looped, open_one = queue.get_many(6)
    done.ack()  # From here on no entry of a table made anew is where it was.
    die_holding(hold_group_lock, path)
    first.ack()
    back.nack()
    longer.extend(60)
    looped.settle(True)
    assert queue.get(0).offset == back.offset
    outstanding = [offset for offset, *_ in queue.group().core.outstanding()]
    assert outstanding == [back.offset, longer.offset, open_one.offset]


def half_appended(path: Path, queue: Queue, **words: int) -> None:
    """As if someone had died after `reserve`, having copied half a frame."""
    end = queue.offsets()
    segment = queue.store.need_writer().segment
    with segment.path.open("r+b") as file:
        file.seek(segment.position(end.tail) + 4)
        file.write(b"\x11" * 200)
    lock = 1 << 12 | 77  # a name that nobody has
    lockwords.set_control(path, reserved_end=end.tail + 208, lock=lock, **words)


def test_half_an_append_is_cleared_before_the_next(path: Path, queue: Queue) -> None:
    queue.put(b"one")
    half_appended(path, queue, reserved_number=2)
    queue.put(b"two")
    assert [(m.body, m.number) for m in queue.scan()] == [(b"one", 0), (b"two", 1)]
    segment = queue.store.need_writer().segment
    rest = segment.read(segment.position(queue.offsets().tail), 400)
    assert rest == bytes(400)


def test_half_an_append_is_cleared_also_by_one_who_must_first_find_the_segment(path: Path) -> None:
    with open_queue(path) as stale, open_queue(path) as queue:
        for _ in range(60):
            queue.put(bytes(500))
        half_appended(path, queue, reserved_number=61)
        stale.put(b"last")
        assert [m.number for m in queue.scan()] == list(range(61))
        segment = queue.store.need_writer().segment
        assert segment.read(segment.position(queue.offsets().tail), 400) == bytes(400)


def test_a_tail_that_moved_without_its_number_gets_it(path: Path, queue: Queue) -> None:
    queue.put(b"one")
    queue.put(b"two")
    lockwords.set_control(path, next_number=1, lock=1 << 12 | 77)
    queue.put(b"three")
    assert [m.number for m in queue.scan()] == [0, 1, 2]


def test_no_offset_is_encrypted_twice_under_one_key(path: Path) -> None:
    with open_queue(path, key=KEY) as queue:
        queue.put(b"one")
        base = queue.offsets().segment_base
        half_appended(path, queue, reserved_number=2)
        queue.put(b"two")
        assert queue.offsets().segment_base != base
        assert bodies(queue) == [b"one", b"two"]


def test_a_roll_that_died_after_the_rename_is_done_again(path: Path, queue: Queue) -> None:
    queue.put(b"one")
    tail = queue.offsets().tail
    prepared, new = queue.store.format.prepare_segment(tail, 1, 100)
    prepared.rename(new.path)
    lockwords.set_control(path, reserved_end=2**64 - 1, reserved_number=0, lock=1 << 12 | 77)
    queue.put(b"two")
    assert queue.offsets().segment_base == tail
    assert bodies(queue) == [b"one", b"two"]
    queue.close()
    with open_queue(path, create=False) as again:
        assert bodies(again) == [b"one", b"two"]
        assert again.verify().is_ok


@pytest.mark.parametrize("is_used", [True, False])
def test_a_roll_of_beats_that_died_before_the_tail_is_finished(path: Path, is_used: bool) -> None:
    with open_queue(path, format="beats") as queue:
        queue.put(b'{"number": 1}')
        tail = queue.offsets().tail
        prepared, new = queue.store.format.prepare_segment(tail, 1, 100)
        prepared.rename(new.path)
        lockwords.set_control(
            path, segment_base=new.base, reserved_end=2**64 - 1, lock=1 << 12 | 77
        )
        assert len(queue.get_many(9)) == len(list(queue.scan())) == 1
        if is_used:
            queue.put(b'{"number": 2}')
            assert len(queue.get_many(9)) == 1
    with open_queue(path, create=False) as again:
        assert len(bodies(again)) == 1 + is_used
        again.put(b'{"number": 3}')
        assert again.verify().is_ok


def test_rolling_works_for_one_who_has_not_noticed_the_last_roll(path: Path) -> None:
    with open_queue(path) as one, open_queue(path) as other:
        one.put(b"x")
        for _ in range(60):
            other.put(bytes(500))
        one.purge()
        assert bodies(one) == bodies(other) == []


def test_a_sync_does_not_call_durable_what_is_in_a_segment_it_did_not_know(path: Path) -> None:
    with open_queue(path) as one, open_queue(path) as other:
        one.put(b"x")
        other.store.roll(other.offsets().segment_base, 0)
        store = one.store
        listed = store.unsynced_segments

        def roll_meanwhile(durable: int) -> Iterator[_core.Segment]:
            known = list(listed(durable))
            store.unsynced_segments = listed  # type: ignore[method-assign]
            other.store.roll(other.offsets().segment_base, 0)
            other.put(b"in the newest")
            return iter(known)

        other.put(b"y")
        store.unsynced_segments = roll_meanwhile  # type: ignore[method-assign]
        _core.record_effects(True)
        one.sync()
        _core.record_effects(False)
        synced = {effect[1] for effect in _core.take_effects() if effect[0] == "sync"}
        assert one.offsets().durable == one.offsets().tail
        newest = one.store.segments(fresh=True)[-1].path
        assert newest.stat().st_ino in synced


@pytest.mark.parametrize("kind", ["penstock", "zbus", "mfq"])
def test_what_a_killed_process_never_synced_is_synced_before_it_counts(
    path: Path, kind: str
) -> None:
    options: dict[str, Any] = {"format": kind, "segment_bytes": 16384, "durability": "process"}
    pid = os.fork()
    if pid == 0:
        queue = Queue(path, **options)
        for _ in range(8):
            queue.put(bytes(11_000))
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    _core.record_effects(True)
    try:
        with Queue(path, **options) as queue:
            queue.sync()
            assert queue.offsets().durable == queue.offsets().tail
            files = [info.path for info in queue.store.segments(fresh=True)]
    finally:
        _core.record_effects(False)
    synced = {effect[1] for effect in _core.take_effects() if effect[0] == "sync"}
    assert len(files) > 3
    assert [file.name for file in files if file.stat().st_ino not in synced] == []


def test_a_failed_sync_of_an_old_segment_poisons_too(path: Path) -> None:
    with Queue(path, segment_bytes=16384, durability="process") as queue:
        queue.sync()
        durable = queue.offsets().durable
        while len(queue.store.segments()) < 20:
            queue.put(bytes(11_000))
        put = queue.offsets().next_number
        with failing_syncs(), pytest.raises(PoisonedError):
            queue.sync()
        assert queue.is_poisoned
        assert queue.offsets().durable == durable
    with Queue(path) as queue:
        assert queue.offsets().next_number == put
        assert len(list(queue.scan())) == 20
        assert queue.verify().is_ok


def test_a_failed_sync_poisons_everyone_and_reopening_rescues(path: Path) -> None:
    with open_queue(path) as other:
        queue = open_queue(path)
        queue.put(b"synced")
        queue.sync()
        durable = queue.offsets().durable
        put = [b"%03d" % number for number in range(20)]
        queue.put_many(put)
        with failing_syncs(), pytest.raises(PoisonedError):
            queue.sync()
        for one in (queue, other):
            assert one.is_poisoned
            with pytest.raises(PoisonedError):
                one.put(b"x")
            with pytest.raises(PoisonedError):
                one.put_many([b"x"])
            with pytest.raises(PoisonedError):
                one.sync()
        queue.close()
    with open_queue(path) as again:
        assert not again.is_poisoned
        assert bodies(again) == [b"synced", *put]
        assert again.store.segments(fresh=True)[-1].base == durable
        assert again.offsets().durable == again.offsets().tail
        again.put(b"after")
        assert [m.number for m in again.scan()] == list(range(22))
        assert again.verify().is_ok


@pytest.mark.parametrize("level", ["process", "interval", "always"])
def test_a_closed_queue_keeps_no_file_open(path: Path, level: str) -> None:
    def use() -> None:
        with open_queue(path, durability=level) as queue:
            queue.put(b"x")
            for message in queue.group("some").get_many(1):
                message.ack()
            list(queue.scan())

    use()
    gc.disable()
    try:
        before = len(list(Path("/proc/self/fd").iterdir()))
        for _ in range(5):
            use()
        assert len(list(Path("/proc/self/fd").iterdir())) == before
    finally:
        gc.enable()


def put_and_die(path: Path, options: dict[str, Any]) -> None:
    queue = open_queue(path, **options)
    for number in range(3):
        queue.put(b"%d" % number)
    os._exit(0)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"format": "mfq"},
        {"format": "zbus"},
        {"format": "vqs", "max_bytes": 65536},
        {"format": "vqs", "layout": "stage4", "max_bytes": 65536},
    ],
    ids=lambda options: "-".join(str(options.get(k, "")) for k in ("format", "layout")),
)
def test_who_died_between_the_tail_and_the_number_has_put_his_message(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    is_file = options.get("format") == "vqs" and "layout" not in options
    path = tmp_path / ("queue.bin" if is_file else "queue")
    process = SPAWN.Process(target=put_and_die, args=(path, options))
    process.start()
    process.join()
    sidecar = path.with_name("queue.bin.penstock") if is_file else path / ".penstock"
    with (sidecar / "control").open("r+b") as control:
        control.seek(CONTROL.offset_of("next_number"))
        control.write(struct.pack("<Q", 2))
    with open_queue(path, **options) as queue:
        assert queue.offsets().next_number == 3
        assert bodies(queue) == [b"0", b"1", b"2"]
        queue.put(b"3")
        assert queue.offsets().next_number == 4
        assert queue.verify().is_ok
    if options.get("format") == "vqs":
        with open_queue(path, **options) as queue:
            assert queue.meta["count"] == 4
