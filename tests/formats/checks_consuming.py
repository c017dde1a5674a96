"""Conformance: getting, acking, groups, tags, keys, delays, dead letters, seeking."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from penstock import Empty, GroupError, ManualClock, OffsetError, Queue, ReceiptError
from tests.formats.checks import Checks
from tests.reading import bodies_of


class Consuming(Checks):
    def test_what_is_put_is_got_in_order(self, queue: Queue) -> None:
        put = self.fill(queue, 20)
        assert [queue.get(0).body for _ in put] == put
        with pytest.raises(Empty):
            queue.get(0)

    def test_offsets_rise_and_name_their_message(self, queue: Queue) -> None:
        offsets = [queue.put(b"%d" % number) for number in range(5)]
        assert offsets == sorted(set(offsets))
        assert [queue.message_at(offset).body for offset in offsets] == [
            b"0",
            b"1",
            b"2",
            b"3",
            b"4",
        ]

    def test_a_body_comes_back_as_it_was(self, queue: Queue) -> None:
        kinds = [b"\0", bytes(range(256)), b"\xff" * 37, b"x" * 5000]
        for body in kinds:
            queue.put(body)
        assert bodies_of(queue.get_many(10)) == kinds

    def test_an_empty_body_is_kept_or_refused(self, queue: Queue) -> None:
        if self.can(queue).empty_bodies:
            queue.put(b"")
            assert queue.get(0).body == b""
        else:
            self.refuses(queue, lambda: queue.put(b""))

    def test_an_id_is_kept_or_refused(self, queue: Queue) -> None:
        if self.can(queue).ids:
            queue.put(b"x", id="order-17")
            assert queue.get(0).id == "order-17"
        else:
            self.refuses(queue, lambda: queue.put(b"x", id="order-17"))

    def test_headers_are_kept_or_refused(self, queue: Queue) -> None:
        if self.can(queue).headers:
            queue.put(b"x", headers={"trace": "7", "país": "日本"})
            assert queue.get(0).headers == {"trace": "7", "país": "日本"}
            for odd in ({"none": ""}, {"": "7"}, {"": ""}):
                if self.holds(queue, "" not in odd, partial(queue.put, b"x", headers=odd)):
                    assert queue.get(0).headers == odd
        else:
            self.refuses(queue, lambda: queue.put(b"x", headers={"trace": "7"}))

    def test_times_and_numbers_are_kept_or_absent(self, queue: Queue, clock: ManualClock) -> None:
        for _ in range(3):
            queue.put(b"x")
            clock.advance(1)
        found = queue.get_many(3)
        can = self.can(queue)
        if can.timestamps:
            seconds = [round((m.timestamp_ns or 0) / 1e9) for m in found]
            assert seconds == [1_700_000_000, 1_700_000_001, 1_700_000_002]
        else:
            assert [m.timestamp_ns for m in found] == [None] * 3
        numbers = [m.number for m in found]
        if can.numbers:
            first = numbers[0] or 0
            assert numbers == [first, first + 1, first + 2]
        else:
            assert numbers == [None] * 3

    # ── leases ─────────────────────────────────────────────────────────────────────────────

    def test_an_acked_message_never_comes_back(self, queue: Queue, clock: ManualClock) -> None:
        self.fill(queue, 3)
        for message in queue.get_many(3):
            message.ack()
        clock.advance(1e6)
        assert queue.get_many(10) == []

    def test_a_nacked_message_comes_back_first(self, queue: Queue) -> None:
        put = self.fill(queue, 3)
        first, second, _ = queue.get_many(3)
        second.nack()
        first.nack()
        assert bodies_of(queue.get_many(3)) == put[:2]

    def test_a_nack_with_a_delay_keeps_it_back(self, queue: Queue, clock: ManualClock) -> None:
        put = self.fill(queue, 1)
        queue.get(0).nack(10)
        clock.advance(9.9)
        assert queue.get_many(1) == []
        clock.advance(0.2)
        assert bodies_of(queue.get_many(1)) == put

    def test_a_lease_ends_with_its_time_and_not_before(
        self, queue: Queue, clock: ManualClock
    ) -> None:
        self.fill(queue, 1)
        first = queue.get(0)
        clock.advance(29.9)
        assert queue.get_many(1) == []
        clock.advance(0.2)
        second = queue.get(0)
        assert (first.receives, second.receives) == (1, 2)
        with pytest.raises(ReceiptError):
            first.ack()
        second.ack()

    def test_a_visibility_of_its_own(self, queue: Queue, clock: ManualClock) -> None:
        self.fill(queue, 2)
        queue.get(0, visibility=5)
        queue.get(0)
        clock.advance(6)
        assert len(queue.get_many(5)) == 1

    def test_an_extended_lease_ends_later(self, queue: Queue, clock: ManualClock) -> None:
        self.fill(queue, 1)
        message = queue.get(0)
        clock.advance(20)
        message.extend(30)
        clock.advance(29)
        assert queue.get_many(1) == []
        message.ack()

    def test_a_receipt_works_as_text(self, queue: Queue) -> None:
        self.fill(queue, 2)
        group = queue.group()
        one, two = (message.receipt or "" for message in queue.get_many(2))
        group.ack(one)
        group.nack(two)
        with pytest.raises(ReceiptError):
            group.ack(one)
        with pytest.raises(ReceiptError):
            group.ack("not a receipt")
        assert queue.get(0).receives == 2

    def test_a_wall_clock_that_jumps_ends_no_lease(self, queue: Queue, clock: ManualClock) -> None:
        self.fill(queue, 1)
        queue.get(0)
        clock.set_wall(clock.wall() + 1e7)
        assert queue.get_many(1) == []
        clock.set_wall(clock.wall() - 2e7)
        clock.advance(31)
        assert len(queue.get_many(1)) == 1

    def test_a_new_boot_ends_the_leases_of_the_old_one(
        self, queue: Queue, clock: ManualClock, path: Path
    ) -> None:
        put = self.fill(queue, 2)
        queue.get(0).ack()
        queue.get(0)
        queue.close()
        clock.restart()
        with self.reopen(path, clock=clock) as again:
            found = again.get_many(5)
        assert bodies_of(found) == put[1:]
        assert found[0].receives == 2

    def test_auto_ack_hands_each_out_once(self, queue: Queue, clock: ManualClock) -> None:
        put = self.fill(queue, 5)
        group = queue.group("auto", ack="auto")
        assert bodies_of(group.get_many(3) + group.get_many(3)) == put
        clock.advance(1e6)
        assert group.get_many(5) == []

    # ── groups ─────────────────────────────────────────────────────────────────────────────

    def test_consumers_of_a_group_share_and_groups_do_not(self, queue: Queue) -> None:
        put = self.fill(queue, 4)
        one = queue.group("one")
        assert bodies_of(one.get_many(2) + one.get_many(2)) == put
        assert bodies_of(queue.group("two").get_many(9)) == put

    def test_a_group_starts_where_it_is_told(self, queue: Queue) -> None:
        put = self.fill(queue, 3)
        late = queue.group("late", start="latest")
        put += self.fill(queue, 1, 3)
        assert bodies_of(late.get_many(9)) == put[3:]
        third = queue.get_many(9)[2].offset
        assert third is not None
        assert bodies_of(queue.group("at", start=third).get_many(9)) == put[2:]

    def test_a_broadcast_group_sees_what_comes_and_goes_with_its_consumer(
        self, queue: Queue
    ) -> None:
        self.fill(queue, 1)
        first, second = queue.broadcast(), queue.broadcast()
        put = self.fill(queue, 2, 1)
        assert bodies_of(first.get_many(9)) == bodies_of(second.get_many(9)) == put
        before = set(queue.groups())
        first.close()
        assert before - set(queue.groups()) == {first.name}

    def test_a_paused_group_hands_nothing_out(self, queue: Queue) -> None:
        put = self.fill(queue, 2)
        queue.group().pause()
        assert queue.get_many(5) == []
        queue.group().resume()
        assert bodies_of(queue.get_many(5)) == put

    def test_a_window_limits_what_is_out(self, queue: Queue) -> None:
        self.fill(queue, 5)
        group = queue.group("narrow", max_in_flight=2)
        held = group.get_many(9)
        assert len(held) == 2
        held[0].ack()
        assert len(group.get_many(9)) == 1

    def test_names_that_are_none_are_refused(self, queue: Queue) -> None:
        for name in ("", ".", "..", "a/b", "../up", ".dot", "x" * 81, "é", "a\0b", "a b"):
            with pytest.raises(GroupError):
                queue.group(name)
        assert not [n for n in queue.groups() if n not in ("default", "hold")]

    # ── tags, keys, delays ─────────────────────────────────────────────────────────────────

    def test_tags_filter_or_are_refused(self, queue: Queue) -> None:
        if not self.can(queue).tags:
            self.refuses(queue, lambda: queue.put(b"x", tag="eu.orders"))
            return
        for tag in ("eu.orders.new", "us.orders", "eu.orders", None, "eu", "asia.x.y.z"):
            queue.put((tag or "none").encode(), tag=tag)
        group = queue.group("some", tags="eu.#;*.orders")
        assert bodies_of(group.get_many(9)) == [b"eu.orders.new", b"us.orders", b"eu.orders", b"eu"]
        assert [m.tag for m in queue.get_many(9)][3] is None

    def test_tags_change_at_run_time(self, queue: Queue, path: Path, clock: ManualClock) -> None:
        if not self.can(queue).tags:
            return
        group = queue.group("some", tags="a")
        for tag in ("a", "b"):
            queue.put(tag.encode(), tag=tag)
        assert bodies_of(group.get_many(9)) == [b"a"]
        group.configure(tags="b;c")
        for tag in ("a", "b", "c"):
            queue.put(tag.encode(), tag=tag)
        assert bodies_of(group.get_many(9)) == [b"b", b"c"]
        queue.close()
        with self.reopen(path, clock=clock) as again:
            again.put(b"later", tag="a")
            assert again.group("some").options.tags == "b;c"

    def test_one_key_goes_out_one_at_a_time_in_order(
        self, queue: Queue, clock: ManualClock
    ) -> None:
        if not self.holds(queue, self.can(queue).keys, lambda: queue.put(b"a1", key="a")):
            return
        queue.put(b"a2", key="a")
        queue.put(b"b1", key="b")
        queue.put(b"a3", key="a")
        first, other = queue.get_many(9)
        assert bodies_of([first, other]) == [b"a1", b"b1"]
        first.nack(5)
        assert queue.get_many(9) == []
        clock.advance(6)
        for wanted in (b"a1", b"a2", b"a3"):
            (message,) = queue.get_many(9)
            assert message.body == wanted
            message.ack()

    def test_a_delayed_message_is_never_early(
        self, queue: Queue, clock: ManualClock, path: Path
    ) -> None:
        if not self.holds(queue, self.can(queue).delays, lambda: queue.put(b"late", delay=60)):
            return
        queue.put(b"now")
        assert bodies_of(queue.get_many(9, visibility=1000)) == [b"now"]
        clock.advance(59)
        assert queue.get_many(9) == []
        queue.close()
        clock.restart()
        with self.reopen(path, clock=clock) as again:
            assert bodies_of(again.get_many(9)) == [b"now"]
            clock.advance(2)
            assert bodies_of(again.get_many(9)) == [b"late"]

    def test_dead_letters_and_the_way_back(self, queue: Queue, path: Path) -> None:
        put = self.fill(queue, 2)
        group = queue.group("strict", max_receives=2, dead_letter="graves")
        for _ in range(2):
            for message in group.get_many(9):
                message.nack()
        assert group.get_many(9) == []
        key = queue.options.key  # Dead letters of an encrypted queue are under its key.
        with Queue(path.parent / "graves", create=False, key=key) as graves:
            dead = graves.get_many(9)
            assert bodies_of(dead) == put
            assert dead[0].headers["penstock.group"] == "strict"
            assert graves.redrive(queue) == 2
        again = group.get_many(9)
        assert bodies_of(again) == put
        assert [message.receives for message in again] == [1, 1]

    # ── position ───────────────────────────────────────────────────────────────────────────

    def test_seek_by_offset_and_to_the_ends(self, queue: Queue) -> None:
        offsets = [queue.put(b"%d" % number) for number in range(4)]
        queue.seek(offsets[2])
        assert bodies_of(queue.get_many(9)) == [b"2", b"3"]
        queue.seek("earliest")
        assert bodies_of(queue.get_many(9)) == [b"0", b"1", b"2", b"3"]
        queue.seek("latest")
        assert queue.get_many(9) == []
        for wrong in (offsets[1] + 1, offsets[3] + 10**9, -1):
            with pytest.raises(OffsetError):
                queue.seek(wrong)

    def test_seek_by_number_or_say_that_there_are_none(self, queue: Queue) -> None:
        self.fill(queue, 4)
        if not self.can(queue).numbers:
            with pytest.raises(OffsetError, match="number"):
                queue.seek("number:2")
            return
        third = list(queue.scan())[2]
        queue.seek(f"number:{third.number}")
        assert queue.get(0).body == third.body

    def test_seek_by_time_or_say_that_there_are_none(
        self, queue: Queue, clock: ManualClock
    ) -> None:
        for number in range(4):
            queue.put(b"%d" % number)
            clock.advance(10)
        moment = datetime.fromtimestamp(1_700_000_015, UTC)
        if not self.can(queue).timestamps:
            with pytest.raises(OffsetError, match="time"):
                queue.seek(moment)
            return
        queue.seek(moment)
        assert queue.get(0).body == b"2"
        queue.seek("25s")
        assert queue.get(0).body == b"2"

    def test_peek_takes_nothing_and_lag_counts(self, queue: Queue) -> None:
        put = self.fill(queue, 5)
        assert bodies_of(queue.peek(2)) == bodies_of(queue.peek(2)) == put[:2]
        assert queue.lag == 5
        queue.get_many(2)
        assert queue.lag == 3
        assert bodies_of(queue.peek(9)) == put[2:]
