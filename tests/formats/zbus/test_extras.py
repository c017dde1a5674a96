"""Keys and due times that a zbus frame has no place for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock import ManualClock, Queue, _core
from penstock.sidecar.side_files import EXTRAS

SIDE = ".penstock/extras/00000000000000000000.ext"


def open_crc(path: Path, clock: ManualClock, **options: Any) -> Queue:
    return Queue(path, format="zbus", layout="crc", clock=clock, durability="process", **options)


def test_keys_and_due_times_survive_a_restart(tmp_path: Path, clock: ManualClock) -> None:
    with open_crc(tmp_path / "mq", clock) as queue:
        queue.put(b"plain")
        queue.put(b"keyed", key="customer-9")
        queue.put(b"late", delay=60)
        queue.put(b"both", key="customer-9", delay=5)
    with open_crc(tmp_path / "mq", clock) as queue:
        due = int(clock.wall() * 1e9)
        assert [(m.body, m.key, m.due_ns) for m in queue.scan()] == [
            (b"plain", None, None),
            (b"keyed", "customer-9", None),
            (b"late", None, due + 60_000_000_000),
            (b"both", "customer-9", due + 5_000_000_000),
        ]
        queue.group(visibility_s=600)
        first = queue.get_many(9)
        assert [m.body for m in first] == [b"plain", b"keyed"]
        clock.advance(61)
        assert [m.body for m in queue.get_many(9)] == [b"late"]
        first[1].ack()
        assert [m.body for m in queue.get_many(9)] == [b"both"]


def test_a_process_sees_what_another_one_notes(tmp_path: Path, clock: ManualClock) -> None:
    with (
        open_crc(tmp_path / "mq", clock) as writer,
        open_crc(tmp_path / "mq", clock) as reader,
    ):
        for number in range(3):
            writer.put(b"%d" % number, key=f"k{number}")
            assert [m.key for m in reader.scan()] == [f"k{n}" for n in range(number + 1)]


def test_a_list_has_its_own_keys(tmp_path: Path, clock: ManualClock) -> None:
    messages = [_core.Message(b"%d" % n, key="odd" if n % 2 else None) for n in range(6)]
    with open_crc(tmp_path / "mq", clock) as queue:
        queue.put_many(messages)
        assert [m.key for m in queue.scan()] == [None, "odd"] * 3


def test_without_keys_and_delays_nothing_is_noted(tmp_path: Path, clock: ManualClock) -> None:
    with open_crc(tmp_path / "mq", clock) as queue:
        queue.put_many([b"x"] * 100)
    assert EXTRAS.unpack((tmp_path / "mq" / SIDE).read_bytes())["end"] <= EXTRAS.size


def cut_last(path: Path, frames: int) -> None:
    """As if the last message had been noted and never published."""
    data = path / "data/00000000000000000000.zbus"
    data.write_bytes(data.read_bytes()[:frames])
    index = bytearray((path / "mq.idx").read_bytes())
    index[1024 + 16 : 1024 + 20] = frames.to_bytes(4, "big")
    (path / "mq.idx").write_bytes(index)
    (path / ".penstock/control").unlink()


def test_a_note_of_a_message_that_never_was_does_not_apply_to_the_next(
    tmp_path: Path, clock: ManualClock
) -> None:
    path = tmp_path / "mq"
    with open_crc(path, clock) as queue:
        queue.put(b"one", key="a")
        queue.put(b"two", key="b", delay=99)
    cut_last(path, 207)
    with open_crc(path, clock) as queue:
        queue.put(b"new")
        assert [(m.body, m.key, m.due_ns) for m in queue.scan()] == [
            (b"one", "a", None),
            (b"new", None, None),
        ]
        queue.put(b"keyed", key="c")
        assert [m.key for m in queue.scan()] == ["a", None, "c"]


def test_a_note_does_not_apply_to_what_another_program_wrote_there(
    tmp_path: Path, clock: ManualClock
) -> None:
    path = tmp_path / "mq"
    with open_crc(path, clock) as queue:
        queue.put(b"one", key="a")
        queue.put(b"two", key="b", delay=99)
    extras = (path / SIDE).read_bytes()
    cut_last(path, 207)
    clock.advance(5)
    with open_crc(path, clock, checksums=False) as queue:
        queue.put(b"new")
    (path / SIDE).write_bytes(extras)  # The note came back, with an older time in it.
    with open_crc(path, clock) as queue:
        assert [(m.body, m.key, m.due_ns) for m in queue.scan()][1] == (b"new", None, None)


def test_a_torn_record_is_dropped_by_recovery_and_reported_before(
    tmp_path: Path, clock: ManualClock
) -> None:
    path = tmp_path / "mq"
    with open_crc(path, clock) as queue:
        queue.put(b"one", key="a")
        queue.put(b"two", key="b")
    raw = bytearray((path / SIDE).read_bytes())
    end = EXTRAS.unpack(raw)["end"]
    raw[end - 10] ^= 1
    (path / SIDE).write_bytes(raw)
    with open_crc(path, clock) as queue:
        assert [d.path.name for d in queue.verify().corrupt] == [Path(SIDE).name]
        assert [m.key for m in queue.scan()] == ["a", None]
    (path / ".penstock/control").unlink()
    with open_crc(path, clock) as queue:
        assert queue.verify().is_ok
        queue.put(b"three", key="c")
        assert [m.key for m in queue.scan()] == ["a", None, "c"]


def test_at_always_the_note_is_synced_before_the_frame_is_there(tmp_path: Path) -> None:
    path = tmp_path / "mq"
    with Queue(path, format="zbus", layout="crc", durability="always") as queue:
        queue.put(b"first")
        inodes = {
            name: (path / name).stat().st_ino
            for name in (SIDE, "data/00000000000000000000.zbus", "mq.idx")
        }
        _core.record_effects(True)
        queue.put(b"late", delay=60)
        _core.record_effects(False)
        log = [(e[0], e[1]) for e in _core.take_effects() if e[0] in ("store", "sync")]
    extras, data, index = inodes.values()
    order = [log.index(step) for step in (
        ("store", extras), ("sync", extras), ("store", data), ("sync", data), ("store", index),
        ("sync", index),
    )]  # fmt: skip
    assert order == sorted(order)
