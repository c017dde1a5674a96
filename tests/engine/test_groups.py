"""Groups as things: copied, renamed, deleted, reset and reconfigured while others use them."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import penstock
from penstock.formats.values import End
from tests.waiting import LONG_S, until_it_waits


def taken(group: penstock.Group) -> list[bytes]:
    return [message.body for message in group.get_many(100)]


def test_a_copied_group_begins_where_the_other_one_is(tmp_path: Path) -> None:
    with penstock.Queue(tmp_path / "q") as queue:
        queue.put_many([b"a", b"b", b"c", b"d"])
        source = queue.group("source")
        leased, acked = source.get_many(2)
        acked.ack()
        copy = queue.group("copy", start=source)
        assert taken(copy) == [b"a", b"c", b"d"]
        leased.ack()
        assert taken(source) == [b"c", b"d"]


def test_a_copy_survives_a_restart(tmp_path: Path) -> None:
    with penstock.Queue(tmp_path / "q") as queue:
        queue.put_many([b"a", b"b", b"c"])
        source = queue.group("source")
        source.get_many(2)[1].ack()
        queue.group("copy", start=source)
    with penstock.Queue(tmp_path / "q") as queue:
        assert taken(queue.group("copy", create=False)) == [b"a", b"c"]


def test_a_renamed_group_keeps_its_progress(tmp_path: Path) -> None:
    with penstock.Queue(tmp_path / "q") as queue:
        queue.put_many([b"a", b"b", b"c"])
        group = queue.group("old", visibility_s=77)
        group.get(0).ack()
        group.rename("new")
        assert queue.groups() == ["new"]
        assert queue.group("new") is group
        assert group.options.visibility_s == 77
        assert taken(group) == [b"b", b"c"]


def test_a_group_can_t_take_the_name_of_another(tmp_path: Path) -> None:
    with penstock.Queue(tmp_path / "q") as queue:
        queue.group("a")
        with pytest.raises(penstock.GroupError, match="already"):
            queue.group("b").rename("a")


@pytest.mark.parametrize("how", ["delete", "rename"])
def test_other_handles_on_a_removed_group_are_told(tmp_path: Path, how: str) -> None:
    with penstock.Queue(tmp_path / "q") as queue, penstock.Queue(tmp_path / "q") as other:
        queue.put_many([b"a", b"b"])
        theirs = other.group("g")
        leased = theirs.get(0)
        group = queue.group("g")
        group.delete() if how == "delete" else group.rename("h")
        with pytest.raises(penstock.GroupError, match="deleted or renamed"):
            theirs.get(0)
        with pytest.raises(penstock.ReceiptError):
            leased.ack()
        assert taken(other.group("g")) == [b"a", b"b"]


def test_deleting_a_group_ends_the_wait_of_another_consumer(tmp_path: Path) -> None:
    with penstock.Queue(tmp_path / "q") as queue, penstock.Queue(tmp_path / "q") as other:
        theirs = other.group("g")
        seen: list[Exception] = []

        def wait() -> None:
            try:
                theirs.get()
            except penstock.PenstockError as error:
                seen.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        until_it_waits(thread, queue)
        queue.group("g").delete()
        thread.join(LONG_S)
        assert isinstance(seen[0], penstock.GroupError)


def test_reset_reads_everything_again(tmp_path: Path) -> None:
    with penstock.Queue(tmp_path / "q") as queue:
        queue.put_many([b"a", b"b"])
        group = queue.group(ack="auto")
        assert taken(group) == [b"a", b"b"]
        group.reset()
        assert taken(group) == [b"a", b"b"]


def test_lag_is_told_in_messages_and_bytes(tmp_path: Path) -> None:
    with penstock.Queue(tmp_path / "q") as queue:
        group = queue.group()
        queue.put_many([bytes(1000)] * 3)
        assert (group.lag, group.lag_bytes) == (3, queue.offsets().tail)
        for message in group.get_many(3):
            message.ack()
        assert (group.lag, group.lag_bytes) == (0, 0)


def test_changed_options_reach_another_opener_without_a_reopen(tmp_path: Path) -> None:
    with penstock.Queue(tmp_path / "q") as queue, penstock.Queue(tmp_path / "q") as other:
        theirs = other.group("g")
        queue.group("g").configure(tags="eu.#")
        queue.put(b"us", tag="us.a")
        queue.put(b"eu", tag="eu.a")
        assert theirs.get(0).body == b"eu"
        assert theirs.options.tags == "eu.#"


def test_a_waiting_consumer_notices_changed_options(tmp_path: Path) -> None:
    with penstock.Queue(tmp_path / "q") as queue, penstock.Queue(tmp_path / "q") as other:
        theirs = other.group("g", tags="us.#")
        seen: list[bytes] = []
        thread = threading.Thread(target=lambda: seen.append(theirs.get().body))
        thread.start()
        until_it_waits(thread, queue)
        queue.group("g").configure(tags="eu.#")
        queue.put(b"eu", tag="eu.a")
        thread.join(LONG_S)
        assert seen == [b"eu"]


def test_joining_a_group_that_others_use_does_not_move_it_back(tmp_path: Path) -> None:
    with penstock.Queue(tmp_path / "q") as busy, penstock.Queue(tmp_path / "q") as late:
        busy.put(b"one")
        busy.get(0).ack()
        look = late.store.end

        def look_slowly() -> End:
            end = look()
            busy.put(b"two")
            busy.get(0).ack()
            return end

        late.store.end = look_slowly  # type: ignore[method-assign]
        assert late.group().get_many(5) == []


def test_threads_that_open_a_group_at_once_all_get_it(tmp_path: Path) -> None:
    clock = penstock.ManualClock()
    for turn in range(10):
        path = tmp_path / str(turn)
        with penstock.Queue(path, clock=clock) as queue:
            queue.put(b"x")
            queue.group("g").get_many(1)
        clock.restart()  # The first to open a group in a new boot makes its table anew.
        with penstock.Queue(path, clock=clock) as queue:
            start, raised = threading.Barrier(4), list[Exception]()

            def open_it() -> None:
                start.wait()  # noqa: B023
                try:
                    queue.group("g")
                except Exception as error:
                    raised.append(error)  # noqa: B023

            threads = [threading.Thread(target=open_it) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert raised == []


def test_get_many_goes_on_behind_a_message_that_needs_the_table(tmp_path: Path) -> None:
    with penstock.Queue(tmp_path / "q") as queue:
        group = queue.group("g", ack="auto")
        queue.put(b"plain")
        queue.put(b"keyed", key="a")
        queue.put(b"plain again")
        assert taken(group) == [b"plain", b"keyed", b"plain again"]
