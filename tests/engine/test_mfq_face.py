"""Producer and consumer as MappedFileQueues.Stream draws them."""

from __future__ import annotations

import multiprocessing
import os
import threading
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from penstock import ClosedError, Empty, OffsetError, OptionError, Queue, UnsupportedError
from penstock.disk import files
from penstock.errors import CodecError
from penstock.mfq import (
    CborSerializer,
    CommitError,
    JsonSerializer,
    MappedFileQueue,
    MappedFileQueueOptions,
    MsgspecSerializer,
)
from tests.formats.checks import alarm
from tests.formats.mfq.twin import Twin
from tests.waiting import LONG_S, words_of


@dataclass
class Order:
    number: int
    region: str


SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture
def queue(tmp_path: Path) -> Any:
    with MappedFileQueue(tmp_path / "store", segment_size=16384, durability="process") as queue:
        yield queue


def test_options_have_the_original_s_names_and_defaults() -> None:
    options = MappedFileQueueOptions(store_path="x")
    assert options.consumer_spin_wait_duration == 0.1
    assert options.consumer_retry_interval == 1.0
    for wrong in ({"consumer_retry_interval": 0}, {"consumer_spin_wait_duration": -1.0}):
        with pytest.raises(OptionError):
            MappedFileQueueOptions(store_path="x", **wrong)


def test_what_is_produced_is_consumed(queue: MappedFileQueue) -> None:
    assert (queue.producer.next_offset, queue.consumer.next_offset) == (0, 0)
    assert queue.producer.produce(b"one") == 0
    assert queue.producer.next_offset == 8
    view = queue.consumer.consume()
    assert isinstance(view, memoryview)
    assert (bytes(view), view.readonly) == (b"one", True)
    queue.consumer.commit()
    assert queue.consumer.next_offset == 8


def test_without_a_commit_the_same_message_comes_again(queue: MappedFileQueue) -> None:
    queue.producer.produce(b"one")
    queue.producer.produce(b"two")
    assert [bytes(queue.consumer.consume()) for _ in range(3)] == [b"one"] * 3
    queue.consumer.commit()
    assert bytes(queue.consumer.consume()) == b"two"


def test_a_commit_without_a_message_is_an_error(queue: MappedFileQueue) -> None:
    with pytest.raises(CommitError, match="consume one first"):
        queue.consumer.commit()
    queue.producer.produce(b"x")
    queue.consumer.consume()
    queue.consumer.commit()
    with pytest.raises(CommitError):
        queue.consumer.commit()


def test_a_second_consumer_is_told_and_sets_nobody_back(tmp_path: Path) -> None:
    options = {"segment_size": 16384, "durability": "process"}
    with (
        MappedFileQueue(tmp_path / "store", **options) as queue,
        MappedFileQueue(tmp_path / "store", **options) as other,
    ):
        queue.producer.produce_many([b"0", b"1", b"2"])
        assert other.consumer.consume(bytes) == b"0"
        assert queue.consumer.consume_many(2) == [b"0", b"1"]
        queue.consumer.commit()
        with pytest.raises(CommitError, match="one consumer"):
            other.consumer.commit()
        assert queue.consumer.next_offset == other.consumer.next_offset == 12
        assert other.consumer.consume(bytes) == b"2"
        other.consumer.commit()


def test_a_view_ends_with_its_commit(queue: MappedFileQueue) -> None:
    queue.producer.produce(b"bytes")
    view = queue.consumer.consume()
    part = view[1:3]
    queue.consumer.commit()
    with pytest.raises(ValueError, match="released"):
        bytes(view)
    assert bytes(part) == b"yt"


def test_the_offset_can_be_set_only_before_consuming(queue: MappedFileQueue) -> None:
    offsets = [queue.producer.produce(b"%d" % n) for n in range(3)]
    with pytest.raises(OffsetError):
        queue.consumer.next_offset = offsets[1] + 1
    queue.consumer.next_offset = offsets[1]
    assert bytes(queue.consumer.consume()) == b"1"
    with pytest.raises(CommitError, match="before consuming"):
        queue.consumer.next_offset = 0


@pytest.mark.parametrize("serializer", [JsonSerializer(), CborSerializer()])
def test_objects_go_through_a_serializer(queue: MappedFileQueue, serializer: Any) -> None:
    value = {"int": 1, "text": "é", "list": [1.5, None, True]}
    queue.producer.produce(value, serializer)
    assert queue.consumer.consume(serializer) == value
    queue.consumer.commit()


def test_msgspec_gives_back_the_type_that_was_asked_for(queue: MappedFileQueue) -> None:
    serializer = MsgspecSerializer(Order)
    queue.producer.produce(Order(17, "eu"), serializer)
    queue.producer.produce({"no": "order"}, MsgspecSerializer())
    assert queue.consumer.consume(serializer) == Order(17, "eu")
    queue.consumer.commit()
    with pytest.raises(CodecError, match="msgspec"):
        queue.consumer.consume(serializer)
    assert queue.consumer.consume(MsgspecSerializer()) == {"no": "order"}
    with pytest.raises(CodecError, match="msgspec"):
        queue.producer.produce(object(), serializer)


def test_a_serializer_of_your_own(queue: MappedFileQueue) -> None:
    class Number:
        def serialize(self, message: int) -> bytes:
            return message.to_bytes(4, "little")

        def deserialize(self, buffer: memoryview) -> int:
            return int.from_bytes(buffer, "little")

    queue.producer.produce(77, Number())
    assert queue.consumer.consume(Number()) == 77


def test_bytes_that_are_no_object_are_an_error_and_stay(queue: MappedFileQueue) -> None:
    queue.producer.produce(b"{")
    with pytest.raises(CodecError):
        queue.consumer.consume(JsonSerializer())
    assert bytes(queue.consumer.consume()) == b"{"


def test_nothing_comes_within_the_timeout(queue: MappedFileQueue) -> None:
    with pytest.raises(Empty):
        queue.consumer.consume(timeout=0.01)


def test_ctrl_c_ends_a_waiting_consume(tmp_path: Path) -> None:
    for spin in (0.0, 60.0):
        options = {"consumer_spin_wait_duration": spin, "consumer_retry_interval": 60.0}
        with (
            MappedFileQueue(tmp_path / f"store{spin}", segment_size=16384, **options) as queue,
            pytest.raises(KeyboardInterrupt),
            alarm(0.05),
        ):
            queue.consumer.consume()


def test_a_producer_of_ours_ends_the_sleep_at_once(tmp_path: Path) -> None:
    options = {"consumer_spin_wait_duration": 0.0, "consumer_retry_interval": 60.0}
    with MappedFileQueue(tmp_path / "store", segment_size=16384, **options) as queue:
        seen: list[bytes] = []
        thread = threading.Thread(target=lambda: seen.append(bytes(queue.consumer.consume())))
        thread.start()
        while not words_of(queue.queue.store.need_shared())["waiters"]:
            assert thread.is_alive()
        queue.producer.produce(b"awake")
        thread.join(LONG_S)
        assert seen == [b"awake"]


def test_an_original_producer_is_seen_at_the_next_look(tmp_path: Path) -> None:
    twin = Twin(tmp_path / "store", 64)
    options = {"consumer_spin_wait_duration": 0.0, "consumer_retry_interval": 0.002}
    with MappedFileQueue(tmp_path / "store", **options) as queue:
        seen: list[bytes] = []

        def consume() -> None:
            for _ in range(50):
                seen.append(bytes(queue.consumer.consume()))
                queue.consumer.commit()

        thread = threading.Thread(target=consume)
        thread.start()
        put = [bytes([n]) * (1 + n % 40) for n in range(50)]
        for body in put:
            twin.produce(body)
        thread.join(LONG_S)
        assert seen == put
        assert twin.get("consumer.offset") == twin.get("producer.offset")
        assert len(twin.bases()) > 5


def test_a_sync_leaves_the_frame_that_an_original_producer_writes_just_now(tmp_path: Path) -> None:
    twin = Twin(tmp_path / "store", 4096)
    twin.produce(b"first")
    with Queue(tmp_path / "store") as queue:
        assert queue._maintenance is not None
        queue._maintenance.stop()
        twin.produce(b"second")
        assert [queue.get(LONG_S).body for _ in range(2)] == [b"first", b"second"]
        end = twin.get("producer.offset")
        twin._write(end, b"\x05\0\0\0third\xff")  # Its offset comes next.
        queue.sync()
        assert queue.offsets().durable == end
        assert twin.poll(end) == b"third"


@pytest.mark.parametrize("listing", range(1, 9))
def test_two_segments_begun_while_the_folder_is_listed_leave_no_hole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listing: int
) -> None:
    """A listing may leave out what comes meanwhile, and still have what comes after it."""
    twin, list_folder, listings = Twin(tmp_path / "store", 64), files.entries, count(1)
    bodies = [bytes([n]) * 40 for n in range(8)]
    left = bodies[4:]

    def entries(folder: Path) -> list[os.DirEntry[str]]:
        if folder.name != "commitlog" or next(listings) != listing:
            return list_folder(folder)
        while left:
            twin.produce(left.pop(0))  # Each begins a segment.
        return [entry for entry in list_folder(folder) if int(entry.name) != twin.bases()[-2]]

    twin.produce(bodies[0])
    with MappedFileQueue(tmp_path / "store") as queue:
        monkeypatch.setattr(files, "entries", entries)
        for body in bodies[1:4]:
            twin.produce(body)
        for body in bodies:
            if body in left:  # So often nobody has listed.
                twin.produce(left.pop(0))
            assert bytes(queue.consumer.consume(timeout=LONG_S)) == body
            queue.consumer.commit()


def test_an_original_consumer_reads_what_we_produce(tmp_path: Path) -> None:
    twin = Twin(tmp_path / "store", 64)
    put = [bytes([n]) * (1 + n % 40) for n in range(50)]
    with MappedFileQueue(tmp_path / "store") as queue:
        offsets = [queue.producer.produce(body) for body in put]
    assert twin.messages() == list(zip(offsets, put, strict=True))


def test_what_the_format_can_t_hold_is_refused(queue: MappedFileQueue) -> None:
    with pytest.raises(UnsupportedError, match=r"empty body.*penstock"):
        queue.producer.produce(b"")
    with pytest.raises(UnsupportedError, match=r"16379.*penstock"):
        queue.producer.produce(bytes(16380))
    assert queue.producer.next_offset == 0


def test_progress_is_the_default_group_s(tmp_path: Path) -> None:
    with MappedFileQueue(tmp_path / "store", segment_size=16384) as queue:
        for n in range(4):
            queue.producer.produce(b"%d" % n)
        queue.consumer.consume()
        queue.consumer.commit()
    with Queue(tmp_path / "store") as plain:
        plain.get(0).ack()
    with MappedFileQueue(tmp_path / "store") as queue:
        assert bytes(queue.consumer.consume()) == b"2"
        queue.consumer.commit()
    with Queue(tmp_path / "store") as plain:
        assert [m.body for m in plain.get_many(9)] == [b"3"]


def produce_all(path: Path, count: int) -> None:
    with MappedFileQueue(path, segment_size=16384, durability="process") as queue:
        for n in range(count):
            queue.producer.produce(n.to_bytes(4, "little") * (1 + n % 100))


def test_two_processes_pass_everything_in_order(tmp_path: Path) -> None:
    count = 5000
    with MappedFileQueue(tmp_path / "store", segment_size=16384, durability="process") as queue:
        process = SPAWN.Process(target=produce_all, args=(tmp_path / "store", count))
        process.start()
        for n in range(count):
            with queue.consumer.consume(timeout=60) as view:
                assert bytes(view) == n.to_bytes(4, "little") * (1 + n % 100)
            queue.consumer.commit()
        process.join()
        assert queue.consumer.next_offset == queue.producer.next_offset


def test_a_forked_child_consumes_with_an_opening_of_its_own(tmp_path: Path) -> None:
    with MappedFileQueue(tmp_path / "store", segment_size=16384) as queue:
        for number in range(3):
            queue.producer.produce(b"%d" % number)
        assert bytes(queue.consumer.consume()) == b"0"
        queue.consumer.commit()
        pid = os.fork()
        if pid == 0:
            try:
                found = bytes(queue.consumer.consume(timeout=60))
                queue.consumer.commit()
                os._exit(0 if found == b"1" else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert bytes(queue.consumer.consume()) == b"2"


def test_methods_that_were_bound_before_a_fork_open_anew_in_the_child(tmp_path: Path) -> None:
    with MappedFileQueue(tmp_path / "store", segment_size=16384) as queue:
        produce, consume, commit = (
            queue.producer.produce, queue.consumer.consume, queue.consumer.commit
        )  # fmt: skip
        produce(b"0")
        consume()
        pid = os.fork()
        if pid == 0:
            try:
                try:
                    commit()  # That was the parent's message.
                except CommitError:
                    produce(b"child")
                    found = [consume(bytes, timeout=60), commit(), consume(bytes, timeout=60)]
                    commit()
                    os._exit(0 if found == [b"0", None, b"child"] else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        produce(b"parent")
        assert queue.consumer.next_offset == 6 + 10
        assert consume(bytes) == b"parent"


def test_a_copy_outlives_its_commit(queue: MappedFileQueue) -> None:
    queue.producer.produce(b"bytes")
    copy = queue.consumer.consume(bytes)
    assert (type(copy), copy) == (bytes, b"bytes")
    assert queue.consumer.consume(bytes) == b"bytes"
    queue.consumer.commit()
    assert copy == b"bytes"


def test_a_view_that_comes_again_ends_the_one_before(queue: MappedFileQueue) -> None:
    queue.producer.produce(b"one")
    first = queue.consumer.consume()
    again = queue.consumer.consume()
    assert bytes(again) == b"one"
    with pytest.raises(ValueError, match="released"):
        bytes(first)


def test_views_of_several_messages_stay_apart(queue: MappedFileQueue) -> None:
    bodies = [bytes([n]) * n for n in range(1, 9)]
    queue.producer.produce_many(bodies)
    parts = []
    for _ in bodies:
        parts.append(queue.consumer.consume()[:])
        queue.consumer.commit()
    assert [bytes(part) for part in parts] == bodies


def test_many_are_produced_and_consumed_by_one_call(queue: MappedFileQueue) -> None:
    bodies = [b"%d" % n for n in range(10)]
    assert queue.producer.produce_many([]) is None
    assert queue.producer.produce_many(bodies) == 0
    assert queue.consumer.consume_many(4) == bodies[:4]
    assert queue.consumer.consume_many(6) == bodies[:6]
    queue.consumer.commit()
    assert queue.consumer.consume_many() == bodies[6:]
    queue.consumer.commit()
    assert queue.consumer.next_offset == queue.producer.next_offset
    with pytest.raises(CommitError):
        queue.consumer.commit()
    with pytest.raises(Empty):
        queue.consumer.consume_many(timeout=0)
    with pytest.raises(ValueError, match="1 or more"):
        queue.consumer.consume_many(0)


def test_many_objects_go_through_a_serializer(queue: MappedFileQueue) -> None:
    values = [{"n": n} for n in range(5)]
    queue.producer.produce_many(iter(values), JsonSerializer())
    assert queue.consumer.consume_many(9, JsonSerializer()) == values


def test_many_across_segments_come_whole_and_in_order(queue: MappedFileQueue) -> None:
    bodies = [n.to_bytes(2, "little") * 50 for n in range(1000)]
    for first in range(0, 1000, 50):
        queue.producer.produce_many(bodies[first : first + 50])
    found: list[bytes] = []
    while len(found) < len(bodies):
        found += queue.consumer.consume_many(300, timeout=60)
        queue.consumer.commit()
    assert found == bodies
    assert len(queue.queue.store.format.list_segments()) > 5


def test_a_closed_queue_says_so(tmp_path: Path) -> None:
    queue = MappedFileQueue(tmp_path / "store", segment_size=16384)
    consumer, producer = queue.consumer, queue.producer
    producer.produce(b"x")
    queue.close()
    with pytest.raises(ClosedError):
        consumer.consume()
    with pytest.raises(ClosedError):
        consumer.commit()
    with pytest.raises(ClosedError):
        producer.produce(b"y")
    with pytest.raises(ClosedError):
        producer.produce_many([b"y"])
