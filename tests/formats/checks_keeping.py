"""Conformance: scanning, batches, limits, trimming, verifying, reading only."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock import ClosedError, Full, ManualClock, Message, Queue, UnsupportedError
from penstock.engine import retention
from penstock.sidecar import side_files
from tests.formats.checks import SMALL, Checks, filler, tree_hash
from tests.reading import bodies_of


class Keeping(Checks):
    def test_scan_messages_and_arrow_rows_agree(self, queue: Queue) -> None:
        put = self.fill(queue, 30)
        messages = list(queue.scan())
        table = pa.table(queue.scan())
        assert bodies_of(messages) == put == table.column("body").to_pylist()
        offsets = [message.offset or 0 for message in messages]
        assert offsets == sorted(offsets) == table.column("offset").to_pylist()
        assert bodies_of(queue.scan(start=offsets[10], end=offsets[20])) == put[10:20]
        assert bodies_of(queue.get_many(40)) == put

    def test_scan_goes_over_segments(self, queue: Queue) -> None:
        offsets = self.fill_segments(queue)
        assert [message.offset for message in queue.scan()] == offsets
        assert pa.table(queue.scan()).column("offset").to_pylist() == offsets
        if self.has_segments:
            assert queue.stats()["segments"] > 2

    def test_put_many_is_seen_whole_or_not_at_all(self, queue: Queue) -> None:
        batch = [b"%04d" % number for number in range(100)]
        seen: list[int] = []
        stop = threading.Event()

        def watch() -> None:
            while not stop.is_set():
                seen.append(sum(1 for _ in queue.scan()))

        watcher = threading.Thread(target=watch)
        watcher.start()
        for _ in range(5):
            assert queue.put_many(batch) is not None
        stop.set()
        watcher.join()
        assert {count % 100 for count in seen} <= {0}
        assert queue.put_many([]) is None
        assert bodies_of(queue.get_many(1000)) == batch * 5

    def test_put_many_refuses_all_or_nothing(self, queue: Queue) -> None:
        tail = queue.offsets().tail
        with pytest.raises((UnsupportedError, TypeError)):
            queue.put_many([b"good", "text"])
        assert queue.offsets().tail == tail

    def test_put_many_takes_messages_and_arrow(self, queue: Queue) -> None:
        queue.put_many(Message(b"%d" % number) for number in range(3))
        queue.put_many(pa.array([b"3", b"4"], pa.binary()))
        assert bodies_of(queue.get_many(9)) == [b"0", b"1", b"2", b"3", b"4"]

    @pytest.mark.parametrize("level", ["process", "interval", "always"])
    def test_each_durability_keeps_what_it_says(self, path: Path, level: str) -> None:
        with self.make(path, durability=level) as queue:
            self.hold(queue)
            put = self.fill(queue, 5)
            put += [b"a", b"b"]
            queue.put_many(put[5:])
            if level == "always":
                assert queue.offsets().durable == queue.offsets().tail
            queue.sync()
            assert queue.offsets().durable == queue.offsets().tail
        with self.reopen(path) as again:
            assert bodies_of(again.get_many(9)) == put

    def test_a_body_over_the_limit_is_refused(self, path: Path) -> None:
        with self.make(path, max_message_bytes=100) as queue:
            queue.put(b"x" * 100)
            tail = queue.offsets().tail
            with pytest.raises(UnsupportedError, match="max_message_bytes"):
                queue.put(b"x" * 101)
            assert queue.offsets().tail == tail

    def test_a_body_larger_than_a_segment_has_its_own_or_is_refused(self, queue: Queue) -> None:
        put = [b"small", b"L" * (3 * SMALL), b"small again"]
        queue.put(put[0])
        if not self.holds(queue, False, lambda: queue.put(put[1])):
            del put[1]
        queue.put(put[-1])
        assert bodies_of(queue.get_many(9)) == put
        assert queue.verify().is_ok

    def test_an_empty_queue_takes_what_is_larger_than_its_segment(self, queue: Queue) -> None:
        if not self.holds(queue, False, lambda: queue.put(b"L" * (3 * SMALL))):
            return
        batch = [filler(number, 200) for number in range(300)]
        queue.put_many(batch)
        assert bodies_of(queue.scan())[1:] == batch
        assert len(queue.get_many(999)) == 301
        assert queue.verify().is_ok

    # ── limits ─────────────────────────────────────────────────────────────────────────────

    def full(self, path: Path, **options: Any) -> Queue:
        queue = self.make(path, max_bytes=4 * SMALL, durability="process", **options)
        queue.group()
        return queue

    def put_until_full(self, queue: Queue) -> int:
        for number in range(1000):
            try:
                queue.put(filler(number, 500))
            except Full:
                break
        assert 10 < number < 999
        return number

    def test_a_full_queue_rejects(self, path: Path) -> None:
        with self.full(path, when_full="reject") as queue:
            count = self.put_until_full(queue)
            assert len(queue.get_many(1000)) == count

    def test_a_full_queue_blocks_for_a_while(self, path: Path) -> None:
        with self.full(path, when_full="block", put_timeout_s=0.02) as queue:
            count = self.put_until_full(queue)
            assert len(queue.get_many(1000)) == count

    def test_a_full_queue_has_room_again_once_everyone_has_read(self, path: Path) -> None:
        with self.full(path, when_full="reject") as queue:
            self.put_until_full(queue)
            for message in queue.get_many(1000):
                message.ack()
            put = [filler(number, 500) for number in range(40)]
            for body in put:
                queue.put(body)
            assert bodies_of(queue.get_many(99)) == put

    def test_a_blocked_put_goes_on_when_a_consumer_makes_room(self, path: Path) -> None:
        with self.full(path, when_full="block", put_timeout_s=30) as queue:
            seen: list[bytes] = []

            def consume() -> None:
                while len(seen) < 300:
                    message = queue.get(30)
                    seen.append(message.body[:6])
                    message.ack()

            consumer = threading.Thread(target=consume)
            consumer.start()
            for number in range(300):
                queue.put(filler(number, 500))
            consumer.join()
        assert seen == [b"%06d" % number for number in range(300)]

    def test_a_full_queue_drops_its_oldest(self, path: Path) -> None:
        if not self.has_segments:
            return
        with self.full(path, when_full="drop-oldest") as queue:
            for number in range(300):
                queue.put(filler(number, 500))
            kept = [int(message.body[:6]) for message in queue.get_many(1000)]
            assert queue.stats()["bytes"] <= 4 * SMALL
        assert kept == list(range(kept[0], 300))
        assert 0 < kept[0] < 299

    # ── trimming ───────────────────────────────────────────────────────────────────────────

    def test_trim_deletes_what_was_asked_and_no_more(self, queue: Queue) -> None:
        if self.can(queue).deletes_consumed:
            return  # Its head is the lowest cursor: `test_what_every_group_acked_goes`.
        offsets = self.fill_segments(queue)
        assert queue.trim(offsets[40], dry_run=True) == queue.trim(offsets[40])
        kept = [message.offset or 0 for message in queue.scan()]
        assert kept == offsets[len(offsets) - len(kept) :]
        assert kept[0] <= offsets[40]
        assert queue.offsets().head == kept[0]
        if self.has_segments:
            assert kept[0] > offsets[0]
        if self.can(queue).numbers:
            first = next(iter(queue.scan())).number
            assert queue.offsets().head_number == first
        assert len(queue) == len(kept)
        assert queue.verify().is_ok

    def test_retention_waits_for_groups(self, path: Path, clock: ManualClock) -> None:
        options = {"retention_bytes": 2 * SMALL, "clock": clock, "durability": "process"}
        if not self.has_segments:
            return
        with self.make(path, **options) as queue:
            if self.can(queue).deletes_consumed:
                return
            group = queue.group()
            offsets = self.fill_segments(queue)
            assert queue.trim() == 0
            for message in group.get_many(60):
                message.ack()
            assert queue.trim() > 0
            assert queue.offsets().head <= group.cursor
            assert [m.offset for m in group.get_many(99)] == offsets[60:]

    def test_what_every_group_acked_goes(self, path: Path) -> None:
        with self.make(path, durability="process") as queue:
            if not self.can(queue).deletes_consumed:
                return
            group = queue.group()
            offsets = self.fill_segments(queue)
            for message in group.get_many(99):
                message.ack()
            retention.free_consumed(queue)
            assert queue.offsets().head > offsets[0]

    def test_an_expired_message_is_not_delivered(self, path: Path, clock: ManualClock) -> None:
        with self.make(path, clock=clock, durability="process") as queue:
            if not self.can(queue).timestamps:
                return
            queue.set_options(retention_age_s=60)
        with self.reopen(path, clock=clock, durability="process") as queue:
            queue.put(b"old")
            clock.advance(61)
            queue.put(b"new")
            assert bodies_of(queue.get_many(9)) == [b"new"]

    def test_purge_leaves_nothing_unread(self, queue: Queue) -> None:
        self.fill_segments(queue)
        other = queue.group("other")
        assert queue.purge() == 80
        assert queue.get_many(9) == other.get_many(9) == []
        queue.put(b"after")
        assert bodies_of(queue.get_many(9)) == bodies_of(other.get_many(9)) == [b"after"]

    # ── reading only, and checking ─────────────────────────────────────────────────────────

    def test_reading_only_changes_nothing(self, path: Path) -> None:
        with self.make(path) as queue:
            self.hold(queue)
            put = self.fill(queue, 20)
            queue.get(0).ack()
        before = tree_hash(path)
        with self.reopen(path, read_only=True) as reader:
            assert bodies_of(reader.scan()) == put
            assert reader.verify().is_ok
            assert reader.stats()["messages"] == len(reader) == 20
            for change in (lambda: reader.put(b"x"), lambda: reader.get(0), reader.sync):
                with pytest.raises(ClosedError):
                    change()
        assert tree_hash(path) == before

    def test_a_reader_sees_what_a_writer_puts(self, queue: Queue, clock: ManualClock) -> None:
        with self.reopen(queue.path, read_only=True, clock=clock) as reader:
            put = self.fill(queue, 3)
            assert bodies_of(reader.scan()) == put

    def test_verify_counts_what_is_there(self, queue: Queue) -> None:
        self.fill_segments(queue)
        verdict = queue.verify()
        assert verdict.is_ok
        assert verdict.messages == 80
        assert verdict.corrupt == verdict.torn == []

    def test_verify_reports_a_broken_record_beside_a_segment(self, path: Path) -> None:
        with self.make(path) as queue:
            for number in range(5):
                queue.put(b"%d" % number, key="k")
            beside = queue.store.sidecar / "extras"
        begin = side_files.EXTRAS.size
        for file in beside.glob("*.ext"):
            raw = bytearray(file.read_bytes())
            if not any(raw[begin:]):
                continue  # The frames themselves have the keys.
            raw[begin + 40] ^= 0xFF
            file.write_bytes(raw)
            with self.reopen(path, read_only=True) as reader:
                assert [damage.path for damage in reader.verify().corrupt] == [file]
