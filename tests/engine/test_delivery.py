"""What is handed out when something is wrong: damage, dead consumers, segments that are gone."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.disk import files
from penstock.engine import deadletter, group
from penstock.options import AckMode
from penstock.sidecar import groups
from tests.waiting import LONG_S


def word_of(table: Path, name: str) -> int:
    """A word of a group's table."""
    return int(groups.TABLE.unpack(files.read_start(table, groups.TABLE.size))[name])


def rot(folder: Path, pattern: bytes) -> None:
    """One byte of the message that holds `pattern` goes bad."""
    all_files = (path for path in folder.rglob("*") if path.is_file() and path.name != "table")
    (segment,) = (path for path in all_files if pattern in path.read_bytes())
    at = segment.read_bytes().index(pattern) + len(pattern)
    with segment.open("r+b") as stream:
        stream.seek(at)
        stream.write(b"\xff")


FORMATS = ["penstock", "zbus", "beats", "vqs", "mfq"]


def queue_of(path: Path, format: str, **options: Any) -> penstock.Queue:
    """A queue of its own."""
    return penstock.Queue(path / "q.bin", format=format, **options)


def let_go_of_all(clock: penstock.ManualClock, messages: list[penstock.Message]) -> None:
    for message in messages:
        message.nack()


def let_go_of_all_for_a_while(
    clock: penstock.ManualClock, messages: list[penstock.Message]
) -> None:
    for message in messages:
        message.nack(delay=5)
    clock.advance(6)


def wait_until_the_leases_end(
    clock: penstock.ManualClock, messages: list[penstock.Message]
) -> None:
    clock.advance(31)


AGAIN = [let_go_of_all, let_go_of_all_for_a_while, wait_until_the_leases_end]


@pytest.mark.parametrize("again", AGAIN)
@pytest.mark.parametrize("format", FORMATS)
def test_a_damaged_message_that_comes_again_is_reported_before_it_is_given_up(
    tmp_path: Path,
    format: str,
    again: Callable[[penstock.ManualClock, list[penstock.Message]], None],
) -> None:
    clock = penstock.ManualClock()
    with queue_of(tmp_path, format, clock=clock) as queue:
        group = queue.group("g", visibility_s=30)
        queue.put_many([b"message-%d" % i + b"x" * 100 for i in range(3)])
        again(clock, group.get_many(3))
        rot(tmp_path, b"message-1xxx")
        assert [message.body[:9] for message in group.get_many(3)] == [b"message-0"]
        assert group.stats()["skipped"] == 0
        with pytest.raises(penstock.CorruptError):
            group.get_many(3)
        assert group.stats()["skipped"] == 1
        assert [message.body[:9] for message in group.get_many(3)] == [b"message-2"]


@pytest.mark.parametrize("format", FORMATS)
def test_a_damaged_message_is_reported_also_to_who_opens_the_queue_after_its_lease(
    tmp_path: Path, format: str
) -> None:
    with queue_of(tmp_path, format) as queue:
        group = queue.group("g")
        queue.put_many([b"message-%d" % i + b"x" * 100 for i in range(3)])
        assert len(group.get_many(3)) == 3
    rot(tmp_path, b"message-1xxx")
    with queue_of(tmp_path, format, create=False) as queue:
        group, got, reported = queue.group("g"), list[bytes](), 0
        for _ in range(4):
            try:
                got += [message.body[:9] for message in group.get_many(3)]
            except penstock.CorruptError:
                reported += 1
        assert got == [b"message-0", b"message-2"]
        assert (reported, group.stats()["skipped"]) == (1, 1)


@pytest.mark.parametrize("format", FORMATS)
def test_a_damaged_message_at_its_last_receive_is_reported(tmp_path: Path, format: str) -> None:
    """It can not become a dead letter: nobody knows what it said."""
    with queue_of(tmp_path, format) as queue:
        group = queue.group("g", max_receives=1)
        queue.put_many([b"message-%d" % i + b"x" * 100 for i in range(3)])
        for message in group.get_many(3):
            message.nack()
        rot(tmp_path, b"message-1xxx")
        reported = 0
        for _ in range(4):
            try:
                assert group.get_many(3) == []
            except penstock.CorruptError:
                reported += 1
        stats = group.stats()
        assert (reported, stats["dead"], stats["skipped"]) == (1, 2, 1)


@pytest.mark.parametrize("ack", ["lease", "auto"])
def test_what_was_claimed_before_a_segment_that_can_t_be_opened_is_handed_out(
    tmp_path: Path, ack: AckMode
) -> None:
    with penstock.Queue(tmp_path / "q", segment_bytes=16384) as queue:
        for i in range(30):
            queue.put(b"%02d" % i + b"x" * 1000)
    second = sorted((tmp_path / "q" / "log").glob("*.seg"))[1]
    second.write_bytes(b"\0" * 8192 + second.read_bytes()[8192:])
    with penstock.Queue(tmp_path / "q", segment_bytes=16384) as queue:
        consumer = queue.group("g", ack=ack)
        got = consumer.get_many(30)
        assert got
        assert [m.body[:2] for m in got] == [b"%02d" % i for i in range(len(got))]
        with pytest.raises(penstock.PenstockError):
            consumer.get_many(30)


def test_damage_behind_a_segment_s_end_is_not_passed_over_by_a_get_that_acks(
    tmp_path: Path,
) -> None:
    with penstock.Queue(tmp_path / "q", segment_bytes=16384) as queue:
        for i in range(30):
            queue.put(b"%02d" % i + b"x" * 1000)
        segments = sorted((tmp_path / "q" / "log").glob("*.seg"))
        with segments[1].open("r+b") as stream:
            stream.seek(4096 + 100)
            stream.write(b"\xff")
        consumer = queue.group("g", ack="auto")
        first = consumer.get_many(30)
        with pytest.raises(penstock.CorruptError):
            consumer.get_many(30)
        rest = consumer.get_many(30)
        assert len(first) + len(rest) == 29


def lease_and_die(path: Path, count: int) -> None:
    penstock.Queue(path, create=False).group("g").get_many(count)
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("window", [None, 4])
@pytest.mark.parametrize("format", FORMATS)
def test_a_dead_consumer_s_messages_come_back_while_there_is_a_backlog(
    tmp_path: Path, format: str, window: int | None
) -> None:
    """Also where no more may be in flight than it had, so that nothing else can be got."""
    with queue_of(tmp_path, format, durability="process") as queue:
        consumer = queue.group("g", visibility_s=3600, max_in_flight=window or 100_000)
        queue.put_many([b"first"] * (window or 1))
        process = multiprocessing.get_context("spawn").Process(
            target=lease_and_die, args=(queue.path, window or 1)
        )
        process.start()
        process.join()
        queue.put_many([b"work"] * 10)
        while (message := consumer.get(LONG_S)).body != b"first":  # Until the dead are looked for.
            message.ack()  # Or no more may be in flight before that.
            queue.put(b"work")  # So that there is a backlog all the while.


def test_dead_consumers_are_looked_for_a_few_times_a_second(tmp_path: Path) -> None:
    clock = penstock.ManualClock()
    with penstock.Queue(tmp_path / "q", clock=clock) as queue:
        consumer = queue.group("g", visibility_s=3600)
        queue.put_many([b"work"] * 100)
        held = consumer.get(0)
        looks = set()
        for _ in range(40):
            clock.advance(0.01)
            consumer.get(0).ack()
            table = tmp_path / "q" / ".penstock" / "groups" / "g" / "table"
            looks.add(word_of(table, "looked_for_dead"))
        assert held.receives == 1
        assert len(looks) == 2


@pytest.mark.parametrize("ack", ["lease", "auto"])
@pytest.mark.parametrize("format", ["penstock", "zbus"])
def test_a_delayed_message_behind_many_rejected_ones_is_not_early(
    tmp_path: Path, format: str, ack: AckMode
) -> None:
    """The formats whose messages have tags."""
    with queue_of(tmp_path, format, durability="process") as queue:
        for _ in range(4):
            queue.put_many([b"x" * 8] * 50_000, tag="other")
        put_at = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        queue.put(b"late", tag="mine", delay=0.5)
        consumer = queue.group("g", tags="mine", ack=ack)
        assert consumer.get(30).body == b"late"
        assert time.clock_gettime_ns(time.CLOCK_BOOTTIME) - put_at >= 500_000_000


@pytest.mark.parametrize("ack", ["lease", "auto"])
@pytest.mark.parametrize("format", FORMATS)
def test_a_delay_counts_from_the_put_wherever_the_message_waits(
    tmp_path: Path, format: str, ack: AckMode
) -> None:
    """Behind what is leased, behind another delay, behind more than one look, after a new start."""
    clock = penstock.ManualClock()
    with queue_of(tmp_path, format, clock=clock) as queue:
        queue.put(b"a")
        queue.put(b"b", delay=20)
        queue.put(b"c", delay=10)
        queue.put(b"d")
        group = queue.group("g", ack=ack, visibility_s=3600)
        assert [message.body for message in group.get_many(4)] == [b"a", b"d"]
        clock.advance(9.9)
        assert group.get_many(4) == []
    with queue_of(tmp_path, format, clock=clock, create=False) as queue:
        group = queue.group("g")
        kept = [b"a", b"d"] if ack == "lease" else []
        assert [message.body for message in group.get_many(4)] == kept
        clock.advance(0.1)
        assert [message.body for message in group.get_many(4)] == [b"c"]
        clock.advance(9.9)
        assert group.get_many(4) == []
        clock.advance(0.1)
        assert [message.body for message in group.get_many(4)] == [b"b"]


def test_a_failed_burial_does_not_take_the_other_messages_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with penstock.Queue(tmp_path / "q") as queue:
        consumer = queue.group("g", max_receives=1)
        queue.put_many([b"spent", b"fresh"])
        consumer.get(0).nack()

        def fail(*_: Any) -> None:
            raise penstock.StorageError(tmp_path, "no room for dead letters")

        monkeypatch.setattr(deadletter, "letter", fail)
        assert [message.body for message in consumer.get_many(2)] == [b"fresh"]
        with pytest.raises(penstock.StorageError, match="no room"):
            consumer.get(0)
        assert consumer.stats()["dead"] == 0


def test_redrive_ends_on_letters_that_name_no_source(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with penstock.Queue(tmp_path / "q") as queue, penstock.Queue(tmp_path / "dead") as dead:
        dead.put(b"stray")
        dead.put(b"lost", headers={deadletter.SOURCE: str(tmp_path / "q"), deadletter.GROUP: "g"})
        dead.put(b"stray too")
        assert dead.redrive() == 1
        assert "2 messages do not say which queue" in caplog.text
        assert queue.get(0).body == b"lost"
        assert dead.redrive(queue) == 2


def test_a_redrive_that_fails_gives_back_what_it_had_taken(tmp_path: Path) -> None:
    with penstock.Queue(tmp_path / "dead") as dead:
        source = {deadletter.SOURCE: str(tmp_path / "gone"), deadletter.GROUP: "g"}
        for i in range(3):
            dead.put(b"%d" % i, headers=source)
        with pytest.raises(penstock.NoQueueError):
            dead.redrive()
        assert dead.group("redrive").stats()["ready"] == 3


def test_purge_makes_no_group(tmp_path: Path) -> None:
    with penstock.Queue(tmp_path / "q") as queue:
        queue.put_many([b"a", b"b"])
        assert queue.purge() == 2
        assert queue.groups() == []
        assert len(queue) == 0


def test_a_group_that_could_not_be_made_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for format in ("penstock", "zbus"):
        with penstock.Queue(tmp_path / format, format=format) as queue:
            queue.put(b"a")

            def full(*_: Any) -> None:
                raise penstock.StorageError(tmp_path, "no room")

            with monkeypatch.context() as patched:
                patched.setattr(files, "write_json", full)
                with pytest.raises(penstock.StorageError):
                    queue.group("g", ack="auto")
            assert queue.groups() == []
            assert queue.group("g", ack="auto").options.ack == "auto"


def test_no_flipped_bit_of_a_group_s_options_goes_unnoticed(tmp_path: Path) -> None:
    with penstock.Queue(tmp_path / "q") as queue:
        queue.group("g", ack="auto", tags="a.*", visibility_s=7)
    folder = tmp_path / "q" / ".penstock" / "groups" / "g"
    known = group.load_options(folder)
    path = folder / "group.json"
    data = path.read_bytes()
    for at in range(len(data) * 8):
        changed = bytearray(data)
        changed[at // 8] ^= 1 << at % 8
        path.write_bytes(changed)
        with contextlib.suppress(penstock.GroupError):
            assert group.load_options(folder) == known
    path.write_bytes(data[: len(data) // 2])
    with penstock.Queue(tmp_path / "q") as queue, pytest.raises(penstock.GroupError) as told:
        queue.group("g")
    assert str(path) in str(told.value)
