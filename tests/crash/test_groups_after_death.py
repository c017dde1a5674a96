"""Groups over closing, forking and new boots."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from penstock import ClosedError, ManualClock, Queue, ReceiptError, _core
from penstock.engine import orphans
from penstock.options import AckMode
from penstock.sidecar.groups import TABLE, number_of
from tests.waiting import LONG_S


def test_a_checkpoint_does_not_start_a_delay_anew(tmp_path: Path, clock: ManualClock) -> None:
    with Queue(tmp_path / "q", clock=clock) as queue:
        queue.put(b"late", delay=100)
        assert queue.get_many(1) == []
        clock.advance(90)
        queue.group().core.checkpoint()
    clock.restart(off_s=5)
    with Queue(tmp_path / "q", clock=clock) as queue:
        assert queue.get_many(1) == []
        clock.advance(6)
        assert [message.body for message in queue.get_many(1)] == [b"late"]


def test_a_lease_is_not_acked_through_a_closed_queue(tmp_path: Path, clock: ManualClock) -> None:
    with Queue(tmp_path / "q", clock=clock) as queue:
        queue.put(b"x")
        message = queue.group(release_on_exit=False).get(0)
    with pytest.raises(ClosedError):
        message.ack()
    with Queue(tmp_path / "q", clock=clock) as queue:
        assert queue.get_many(1) == []
        clock.advance(31)
        assert queue.get(0).receives == 2


def test_a_forked_child_does_not_ack_what_its_parent_was_given(tmp_path: Path) -> None:
    with Queue(tmp_path / "q", durability="process") as queue:
        queue.put(b"x")
        message = queue.get(0)
        pid = os.fork()
        if pid == 0:
            try:
                message.ack()
            except ClosedError:
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        message.ack()


def test_a_new_boot_begins_a_new_journal(tmp_path: Path, clock: ManualClock) -> None:
    with Queue(tmp_path / "q", clock=clock) as queue:
        queue.put_many([b"a", b"b"])
        queue.get(0).ack()
    folder = tmp_path / "q/.penstock/groups/default"
    before = {entry.name for entry in folder.glob("journal-*")}
    clock.restart()
    with Queue(tmp_path / "q", clock=clock) as queue:
        queue.group()
        assert {entry.name for entry in folder.glob("journal-*")}.isdisjoint(before)
        assert [message.body for message in queue.get_many(5)] == [b"b"]


def test_keys_of_another_boot_hold_nobody_back(tmp_path: Path, clock: ManualClock) -> None:
    keys = [f"key-{n}" for n in range(40)]
    with Queue(tmp_path / "q", clock=clock) as queue:
        queue.put_many([b"first", b"second"])
        for key in keys:
            queue.put(b"1", key=key)
            queue.put(b"2", key=key)
        for message in queue.get_many(7):
            message.ack()  # From here on no entry is where it will be after the restart.
        queue.get_many(100)
    clock.restart()
    with Queue(tmp_path / "q", clock=clock) as queue:
        came = 0
        while found := queue.get_many(100):
            came += len(found)
            for message in found:
                message.ack()
        assert came == 2 * len(keys) - 5
        assert queue.group().cursor == queue.offsets().tail


def test_no_receipt_of_before_a_power_cut_fits_a_later_lease(
    tmp_path: Path, clock: ManualClock
) -> None:
    with Queue(tmp_path / "q", clock=clock) as queue:
        queue.put(b"x")
        group = queue.group(release_on_exit=False)
        old = group.get(0).receipt or ""
        group.nack(old)
        group.core.checkpoint()
        queue.sync()
    (tmp_path / "q/.penstock/groups/default/table").unlink()  # None of its pages reached the disk.
    clock.restart()
    with Queue(tmp_path / "q", clock=clock) as queue:
        group = queue.group()
        new = group.get(0)
        with pytest.raises(ReceiptError):
            group.ack(old)
        new.ack()


def test_a_sync_reaches_the_journal_that_another_began(tmp_path: Path) -> None:
    with (
        Queue(tmp_path / "q", durability="process") as one,
        Queue(tmp_path / "q", durability="process") as other,
    ):
        one.put_many([b"a", b"b"])
        one.group().core.outstanding()
        other.group().core.checkpoint()
        other.get(0).ack()
        _core.take_effects()
        _core.record_effects(True)
        one.sync()
        _core.record_effects(False)
        synced = {effect[1] for effect in _core.take_effects() if effect[0] == "sync"}
        (journal,) = one.group().folder.glob("journal-*")
        assert journal.stat().st_ino in synced


def test_a_death_in_a_checkpoint_leaves_one_journal(tmp_path: Path) -> None:
    with Queue(tmp_path / "q", durability="process") as queue:
        queue.put_many([b"a", b"b"])
        message = queue.get(0)
        folder = queue.group().folder
        (journal,) = folder.glob("journal-*")
        content = journal.read_bytes()
        queue.group().core.checkpoint()
        journal.write_bytes(content)  # As if it had not been retired any more.
        with (folder / "table").open("r+b") as table:
            table.seek(TABLE.offset_of("lock"))
            table.write((1 << 12 | 77).to_bytes(4, "little"))  # A name that nobody has.
        message.ack()
        (last,) = folder.glob("journal-*")
        assert number_of(last) == number_of(journal) + 1
        assert [message.body for message in queue.get_many(9)] == [b"b"]


def ack_and_be_killed(path: Path) -> None:
    """One of two messages is acked by a process that never syncs and has the group for itself."""
    pid = os.fork()
    if pid == 0:
        group = Queue(path, durability="process").group("theirs")
        group.get_many(2)[0].ack()
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)


def is_unsynced(path: Path) -> bool:
    words = TABLE.unpack((path / ".penstock" / "groups" / "theirs" / "table").read_bytes())
    is_ahead = words["synced_next"] not in (0, words["next"])
    return words["journal_end"] != words["journal_synced"] or is_ahead


@pytest.mark.parametrize("ack", ["lease", "auto"])
def test_what_a_killed_process_acked_is_synced_by_who_never_opened_the_group(
    tmp_path: Path, ack: AckMode
) -> None:
    with Queue(tmp_path / "q", durability="process") as queue:
        queue.put_many([b"a", b"b"])
        pid = os.fork()
        if pid == 0:
            Queue(tmp_path / "q", durability="process").group("theirs", ack=ack).get(0)
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(pid, 0)
        upkeep = _core.Upkeep(queue.store.need_writer(), True)
        assert is_unsynced(tmp_path / "q")
        assert not upkeep.stuck_groups(), "its own process may still sync it"
        assert upkeep.stuck_groups() == ["theirs"]
        assert is_unsynced(tmp_path / "q")
        orphans.sync(queue, ["theirs"])
        assert not is_unsynced(tmp_path / "q")
        assert not upkeep.stuck_groups()
        assert queue.known_groups() == set()


def test_the_maintenance_thread_of_any_process_takes_the_duty_over(tmp_path: Path) -> None:
    with Queue(tmp_path / "q") as queue:
        queue.put_many([b"a", b"b"])
        ack_and_be_killed(tmp_path / "q")
        until, turn = time.monotonic() + LONG_S, threading.Event()
        while is_unsynced(tmp_path / "q"):
            assert time.monotonic() < until, "nobody synced it"
            turn.wait(0.01)


def test_without_anyone_else_the_next_opener_goes_on_where_it_was(tmp_path: Path) -> None:
    with Queue(tmp_path / "q", durability="process") as queue:
        queue.put_many([b"a", b"b"])
    ack_and_be_killed(tmp_path / "q")
    assert is_unsynced(tmp_path / "q")
    with Queue(tmp_path / "q") as queue:
        group = queue.group("theirs")
        message = group.get(LONG_S)
        assert (message.body, message.receives) == (b"b", 2)
        queue.sync()
        assert not is_unsynced(tmp_path / "q")


def test_a_table_of_another_boot_says_nothing_of_what_was_acked(tmp_path: Path) -> None:
    """After a power cut its words about the disk are of a journal that may have gone back."""
    path = tmp_path / "q"
    with Queue(path, durability="process") as queue:
        queue.put_many([b"a", b"b"])
        ack_and_be_killed(path)
        table = path / ".penstock" / "groups" / "theirs" / "table"
        upkeep = _core.Upkeep(queue.store.need_writer(), True)
        assert [upkeep.stuck_groups() for _ in range(2)] == [[], ["theirs"]]
        of_this_boot = table.read_bytes()
        boot = TABLE.unpack(of_this_boot)["boot"] + 1
        table.write_bytes(TABLE.pack(**TABLE.unpack(of_this_boot) | {"boot": boot}))
        assert [upkeep.stuck_groups() for _ in range(2)] == [[], []]
        table.unlink()
        assert [upkeep.stuck_groups() for _ in range(2)] == [[], []]


@pytest.mark.parametrize("format", ["penstock", "zbus", "beats", "vqs", "mfq"])
def test_the_journal_of_another_group_is_not_believed(tmp_path: Path, format: str) -> None:
    """A copy that went wrong, or a disk that wrote to another place."""
    path, bodies = tmp_path / ("q.bin" if format == "vqs" else "q"), [b"%d" % n for n in range(9)]
    with Queue(path, format=format) as queue:
        queue.put_many(bodies)
        for name, count in (("slow", 2), ("quick", 7)):
            for message in queue.group(name).get_many(count):
                message.ack()
        folders = [queue.group(name).folder for name in ("slow", "quick")]
    journals = [next(folder.glob("journal-*")) for folder in folders]
    contents = [journal.read_bytes() for journal in journals]
    for journal, content in zip(journals, reversed(contents), strict=True):
        journal.write_bytes(content)
    with Queue(path) as queue:
        found = [message.body for message in queue.group("slow").get_many(9)]
    assert found[-7:] == bodies[2:]
