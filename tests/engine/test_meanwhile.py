"""What others do between two looks of an opening: nothing is lost by it, nor remembered wrongly."""

from __future__ import annotations

import asyncio
import os
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import AsyncQueue, GroupError, ManualClock, OffsetError, Queue, _core
from penstock.engine import group, retention, table
from penstock.engine.open_groups import OpenGroups
from penstock.formats import registry
from penstock.formats.penstock import segments
from penstock.options import AckMode, GroupOptions
from penstock.sidecar import groups
from penstock.sidecar.control import CONTROL
from penstock.sidecar.groups import TABLE
from tests.opening import open_queue, path_for
from tests.waiting import LONG_S, words_of

NOBODY = 1 << 12 | 77
"""The name of an opener that there is not."""


def set_table(queue: Queue, **words: int) -> None:
    """What a consumer leaves in the default group's table that dies with the lock."""
    with (queue.store.sidecar / "groups/default/table").open("r+b") as table:
        for name, value in {"lock": NOBODY, **words}.items():
            table.seek(TABLE.offset_of(name))
            table.write(value.to_bytes(4 if name == "lock" else 8, "little"))


# ── where a group is ───────────────────────────────────────────────────────────────────────────


def test_what_is_out_holds_the_cursor_while_a_table_is_made_anew(tmp_path: Path) -> None:
    with open_queue(tmp_path / "q") as queue:
        queue.put_many([b"%d" % number for number in range(4)])
        first = queue.get(0)
        set_table(queue, order_len=0)  # Forgotten, and not yet entered again.
        assert queue.group().cursor == first.offset
        first.ack()


def test_what_a_dead_consumer_was_about_to_take_is_not_trimmed(tmp_path: Path) -> None:
    with open_queue(tmp_path / "q") as queue:
        for _ in range(20):
            queue.put(bytes(3000))
        queue.group()
        start, later = queue.offsets().head, queue.store.segments()[2].first
        set_table(queue, next=later)  # No record says who got what lies before.
        assert queue.trim(later) == 0
        assert queue.get(0).offset == start


def test_a_look_at_a_group_that_hands_out_meanwhile_counts_what_is_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_queue(tmp_path / "q") as queue:
        queue.put_many([b"1", b"2"])
        offset, folder = queue.offsets().head, queue.group().folder
        for name in ("_table", "_newest"):
            usual = getattr(groups, name)

            def look_late(path: Path, usual: Any = usual) -> Any:
                found = usual(path)
                queue.get_many(1)
                return found

            monkeypatch.setattr(groups, name, look_late)
        progress = groups.peek(folder, queue.store.run)
        assert progress is not None
        assert progress.cursor == offset


def test_a_dead_appender_s_message_counts(tmp_path: Path) -> None:
    with open_queue(tmp_path / "q") as queue:
        queue.put(b"1")
        with (queue.store.sidecar / "control").open("r+b") as control:
            control.seek(CONTROL.offset_of("next_number"))
            control.write(struct.pack("<Q", 0))  # He died between the tail and this.
        assert (queue.lag, len(queue)) == (1, 1)


def test_a_segment_that_is_trimmed_while_a_queue_is_opened_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_queue(tmp_path / "q") as queue:
        for _ in range(20):
            queue.put(bytes(3000))
        usual = segments.read_page

        def read_late(path: Path) -> bytes:
            monkeypatch.setattr(segments, "read_page", usual)
            queue.trim(queue.store.segments()[2].first)
            return usual(path)

        monkeypatch.setattr(segments, "read_page", read_late)
        with open_queue(tmp_path / "q", read_only=True) as other:
            assert next(iter(other.scan())).offset == queue.offsets().head


@pytest.mark.parametrize("format", registry.MODULES)
def test_a_look_at_any_moment_of_a_trim_finds_nothing_missing(
    tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, size = path_for(tmp_path, format), {"max_bytes": 1 << 18} if format == "vqs" else {}
    with open_queue(path, format=format, **size) as queue:
        for _ in range(40):
            queue.put(bytes(1500))
        messages = queue.group(ack="auto", start="earliest").get_many(30)

        def looking(work: Callable[..., Any]) -> Callable[..., Any]:
            def done(*arguments: Any) -> Any:
                answer = work(*arguments)
                with Queue(path, read_only=True) as reader:
                    assert reader.verify().is_ok
                return answer

            return done

        for owner, name in ((queue.store.format, "store_head"), (_core, "unlink_file")):
            monkeypatch.setattr(owner, name, looking(getattr(owner, name)))
        if not retention.free_consumed(queue):
            queue.trim(messages[-1].offset or 0)
        assert queue.offsets().head > (messages[0].offset or 0)


@pytest.mark.parametrize("format", registry.MODULES)
def test_what_others_delete_is_passed_over_by_who_has_found_its_place_before(
    tmp_path: Path, format: str
) -> None:
    path, size = path_for(tmp_path, format), {"max_bytes": 1 << 18} if format == "vqs" else {}
    with open_queue(path, format=format, **size) as queue:
        for number in range(40):
            queue.put(b"%2d" % number + bytes(1500))
        first, last = queue.offsets().head, queue.offsets().tail
        for message in queue.group(ack="auto", start="earliest").get_many(30):
            before = message.offset or 0
        if not retention.free_consumed(queue):
            queue.trim(before)
        found = [int(message.body[:2]) for message in table.remaining(queue.store, first, last)]
        assert found == list(range(40 - len(found), 40))
        assert 10 <= len(found) < 40
        queue.put(b"40")
        assert len(list(table.remaining(queue.store, first))) == len(found) + 1
        assert list(table.remaining(queue.store, first, first + 1)) == []


@pytest.mark.parametrize("format", registry.MODULES)
def test_there_is_no_message_at_the_end_of_a_queue(tmp_path: Path, format: str) -> None:
    with open_queue(path_for(tmp_path, format), format=format) as queue:
        first = queue.put(b"one")
        assert queue.message_at(first).body == b"one"
        with pytest.raises(OffsetError, match="no message is at offset"):
            queue.message_at(queue.offsets().tail)


# ── what a group's options are ─────────────────────────────────────────────────────────────────


def test_a_change_of_one_option_keeps_what_others_changed(tmp_path: Path) -> None:
    with open_queue(tmp_path / "q") as queue, open_queue(tmp_path / "q") as other:
        mine, others = queue.group(), other.group()
        others.configure(max_in_flight=7)
        mine.configure(visibility_s=9.0)
        assert other.group(max_in_flight=7).options == mine.options
        assert (mine.options.max_in_flight, mine.options.visibility_s) == (7, 9.0)
        assert other.group(max_in_flight=8).options.max_in_flight == 8
        assert queue.group(max_in_flight=7).options.max_in_flight == 7


def meanwhile(monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]) -> threading.Thread:
    """Another thread begins to work in the middle of the next opening of a group."""
    usual, thread = group.load_options, threading.Thread(target=work)

    def load_slowly(folder: Path) -> GroupOptions | None:
        found = usual(folder)
        monkeypatch.setattr(group, "load_options", usual)
        thread.start()
        thread.join(0.2)  # A chance to run ahead, which it must not use.
        return found

    monkeypatch.setattr(group, "load_options", load_slowly)
    return thread


def test_what_is_changed_while_a_group_is_opened_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_queue(tmp_path / "q") as queue, open_queue(tmp_path / "q") as other:
        others = other.group()
        thread = meanwhile(monkeypatch, lambda: others.configure(max_in_flight=7))
        queue.group(visibility_s=9.0)
        thread.join()
        found = queue.group(visibility_s=9.0).options
        assert (found.max_in_flight, found.visibility_s) == (7, 9.0)
        others.refresh()
        assert others.options == found


def test_of_two_that_make_a_group_at_once_the_first_says_how_it_acks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_queue(tmp_path / "q") as queue, open_queue(tmp_path / "q") as other:
        refused: list[str] = []

        def make_too() -> None:
            try:
                other.group(ack="auto")
            except GroupError as error:
                refused.append(str(error))

        thread = meanwhile(monkeypatch, make_too)
        queue.group(ack="lease")
        thread.join()
        assert "was made with ack='lease'" in refused[0]


def test_a_group_that_is_deleted_while_it_is_opened_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_queue(tmp_path / "q") as queue, open_queue(tmp_path / "q") as other:
        queue.put(b"1")
        others = other.group()
        thread = meanwhile(monkeypatch, others.delete)
        queue.group()
        thread.join()
        assert queue.group().get(0).body == b"1"
        others.delete()  # It is gone already: the new one stays.
        assert queue.groups() == ["default"]
        with pytest.raises(GroupError):
            others.configure(max_in_flight=7)


def test_who_died_before_a_group_was_deleted_has_not_deleted_it(tmp_path: Path) -> None:
    with open_queue(tmp_path / "q") as queue, open_queue(tmp_path / "q") as other:
        queue.put_many([b"1", b"2"])
        queue.get(0).ack()
        queue.group().core.retire()
        assert other.group().get(0).body == b"2"


def test_the_format_s_own_file_of_a_group_goes_before_another_one_is_made(tmp_path: Path) -> None:
    with open_queue(tmp_path / "q", format="zbus") as queue:
        with open_queue(tmp_path / "q") as other:
            others = other.group("some")
            queue.group("some").delete()
            made = queue.group("some")
            others.delete()
            assert "some" in queue.store.format.groups.bookmarks()
        queue.put(b"1")
        assert made.get(0).body == b"1"


@pytest.mark.parametrize("ack", ["lease", "auto"])
def test_a_renamed_group_reads_on_where_it_was(tmp_path: Path, ack: AckMode) -> None:
    with open_queue(tmp_path / "q") as queue:
        queue.put_many([b"1", b"2", b"3"])
        readers = queue.group("readers", ack=ack)
        for message in readers.get_many(2):
            message.settle(True)
        readers.rename("others")
        assert readers.get(0).body == b"3"


# ── who waits, and who ends ────────────────────────────────────────────────────────────────────


def test_who_still_waits_when_his_opening_ends_does_not_hide_the_next_one(tmp_path: Path) -> None:
    queue = open_queue(tmp_path / "q")
    late = _core.Watch(queue.store.need_shared())
    late.arm()
    queue.close()
    with open_queue(tmp_path / "q") as again:
        shared = again.store.need_shared()
        assert words_of(shared)["waiters"] == 0
        watch = _core.Watch(shared)
        watch.arm()
        late.close()
        assert words_of(shared)["waiters"] == 1
        watch.close()
        assert words_of(shared)["waiters"] == 0


def test_a_forked_child_does_not_end_its_parent_s_wait(tmp_path: Path) -> None:
    with open_queue(tmp_path / "q") as queue:
        watch = _core.Watch(queue.store.need_shared())
        watch.arm()
        pid = os.fork()
        if pid == 0:
            watch.close()
            os._exit(0)
        os.waitpid(pid, 0)
        assert words_of(queue.store.need_shared())["waiters"] == 1
        watch.close()


def test_threads_of_a_forked_child_wait_until_it_has_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_queue(tmp_path / "q") as queue:
        queue.put(b"1")
        queue.group().peek()
        pid = os.fork()
        if pid == 0:
            found: list[bytes] = []
            second = threading.Thread(target=lambda: found.append(queue.get(0).body))
            usual = OpenGroups.reopen

            def reopen_late(handles: OpenGroups) -> None:
                second.start()
                second.join(0.2)  # A chance to run ahead, which it must not use.
                usual(handles)

            monkeypatch.setattr(OpenGroups, "reopen", reopen_late)
            try:
                queue.ensure_open()
                second.join()
            finally:
                os._exit(0 if found == [b"1"] else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_lease_that_runs_out_while_its_message_is_buried_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock: ManualClock = ManualClock()
    with open_queue(tmp_path / "q", clock=clock) as queue:
        spent = queue.group(max_receives=1)
        queue.put(b"1")
        queue.get(0).nack()
        usual, turns = Queue.dead_letters, iter([3600])

        def slow(self: Queue, path: Path) -> Queue:
            for seconds in turns:
                clock.advance(seconds)
                assert spent.get_many(1) == []  # Buried by someone else, too.
            return usual(self, path)

        monkeypatch.setattr(Queue, "dead_letters", slow)
        assert spent.get_many(1) == []
        assert len(queue.dead_letters(spent.dead_letter_path)) == 2
        assert spent.cursor == queue.offsets().tail


def test_what_comes_while_a_slow_get_finds_nothing_wakes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def case() -> None:
        options: dict[str, Any] = {"durability": "always"}
        async with AsyncQueue(tmp_path / "q", **options) as queue:
            readers = queue.group("readers", ack="auto")
            usual, usual_pump, turns = readers._take, readers.pump, iter([b"1"])
            has_put, told = threading.Event(), threading.Event()

            def take_early(count: int, visibility: float | None) -> list[_core.Message]:
                found = usual(count, visibility)
                for body in turns:
                    has_put.set()
                    queue.queue.put(body)
                    assert told.wait(LONG_S)  # Until the loop was told of it.
                return found

            def pump() -> None:
                usual_pump()
                if has_put.is_set():
                    told.set()

            monkeypatch.setattr(readers, "_take", take_early)
            monkeypatch.setattr(readers, "pump", pump)
            assert (await asyncio.wait_for(readers.get(), LONG_S)).body == b"1"

    asyncio.run(case())


# ── where peeking begins ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("format", registry.MODULES)
def test_peeking_goes_on_where_others_have_taken_and_freed_what_was_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    path = tmp_path / ("q.bin" if format == "vqs" else "q")
    size: Any = {"max_bytes": 65536} if format == "vqs" else {"segment_bytes": 16384}
    with Queue(path, format=format, durability="process", **size) as queue:
        ours, scan = queue.group("g"), Queue.scan
        queue.put_many([bytes(900)] * 20)

        def scan_late(self: Queue, **asked: Any) -> Any:
            monkeypatch.setattr(Queue, "scan", scan)
            for message in ours.get_many(20):
                message.ack()
            queue.put_many([b"n" * 900] * 20)
            retention.free_consumed(queue)
            queue.trim(ours.cursor)
            assert queue.offsets().head > asked["start"]
            return scan(self, **asked)

        monkeypatch.setattr(Queue, "scan", scan_late)
        assert [message.body for message in ours.peek(2)] == [b"n" * 900] * 2
