"""`max_bytes`: a full queue blocks, refuses or drops, and wakes a put when room comes."""

from __future__ import annotations

import multiprocessing
import threading
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

import penstock
from penstock.engine import when_full
from tests.opening import open_queue
from tests.waiting import LONG_S, until_it_waits

BODY = bytes(1000)
LIMIT = 200_000


def fill(queue: penstock.Queue) -> int:
    """Puts until it would have to wait; answers how many went in."""
    count = 0
    with queue.put_timeout(0):
        while True:
            try:
                queue.put(BODY)
            except penstock.Full:
                return count
            count += 1


def test_a_queue_that_rejects_says_full_at_its_limit(tmp_path: Path) -> None:
    with penstock.Queue(tmp_path / "q", max_bytes=LIMIT, when_full="reject") as queue:
        queue.group()
        fill(queue)
        with pytest.raises(penstock.Full, match="max_bytes=200000"):
            queue.put(BODY)
        end = queue.offsets()
        assert 0.9 * LIMIT < end.tail - end.head <= LIMIT


def test_a_put_that_can_never_fit_is_refused(tmp_path: Path) -> None:
    queue = penstock.Queue(tmp_path / "q", max_bytes=LIMIT)
    with queue, pytest.raises(penstock.UnsupportedError, match="never fit"):
        queue.put(bytes(LIMIT + 1))


def test_a_blocked_put_gives_up_after_its_timeout(tmp_path: Path) -> None:
    with penstock.Queue(tmp_path / "q", max_bytes=LIMIT, put_timeout_s=0.15) as queue:
        queue.group()
        fill(queue)
        with pytest.raises(penstock.Full, match="still full after"):
            queue.put(BODY)


def test_a_blocked_put_counts_time_by_the_queue_s_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = penstock.ManualClock()
    path = tmp_path / "q"
    with penstock.Queue(path, clock=clock, max_bytes=LIMIT, put_timeout_s=3600) as queue:
        queue.group()
        fill(queue)
        usual = when_full.has_room

        def look_late(queue: penstock.Queue, needed: int) -> bool:
            clock.advance(3601)  # By now the put knows when it gives up.
            return usual(queue, needed)

        monkeypatch.setattr(when_full, "has_room", look_late)
        with pytest.raises(penstock.Full):
            queue.put(BODY)


def test_what_every_group_has_read_makes_room(tmp_path: Path) -> None:
    with penstock.Queue(tmp_path / "q", max_bytes=LIMIT, when_full="reject") as queue:
        group = queue.group(ack="auto")
        for _ in range(2000):
            queue.put(BODY)
            assert group.get(0).body == BODY
        end = queue.offsets()
        assert end.tail > 5 * LIMIT
        assert end.tail - end.head <= LIMIT


def test_a_blocked_put_is_woken_by_an_ack_in_another_thread(tmp_path: Path) -> None:
    with penstock.Queue(tmp_path / "q", max_bytes=LIMIT) as queue:
        group = queue.group()
        count = fill(queue)
        done = threading.Event()

        def put_one() -> None:
            queue.put(b"last" + BODY)
            done.set()

        thread = threading.Thread(target=put_one)
        thread.start()
        until_it_waits(thread, queue, "room_wanted")
        assert not done.is_set()
        for _ in range(count):
            group.get(0).ack()
            if done.is_set():
                break
        assert done.wait(LONG_S)
        thread.join()
        assert group.get_many(1000)[-1].body == b"last" + BODY


def drain(path: Path, start: Event) -> None:
    with penstock.Queue(path, max_bytes=LIMIT) as queue:
        group = queue.group(create=False)
        start.wait()
        for message in group.messages(1):
            if message.body == b"stop":
                message.ack()
                return


def test_a_blocked_put_is_woken_by_a_consumer_in_another_process(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    start = context.Event()
    with penstock.Queue(tmp_path / "q", max_bytes=LIMIT) as queue:
        queue.group()
        fill(queue)
        consumer = context.Process(target=drain, args=(tmp_path / "q", start))
        consumer.start()
        start.set()
        with queue.put_timeout(60):
            for _ in range(300):
                queue.put(BODY)
            queue.put(b"stop")
        consumer.join(60)
        assert consumer.exitcode == 0


def test_dropping_the_oldest_keeps_the_newest_within_the_limit(tmp_path: Path) -> None:
    with penstock.Queue(tmp_path / "q", max_bytes=LIMIT, when_full="drop-oldest") as queue:
        group = queue.group(ack="auto")
        for number in range(1000):
            queue.put(b"%d" % number + BODY)
        end = queue.offsets()
        assert end.tail - end.head <= LIMIT
        bodies = [message.body[:3] for message in group.get_many(1000)]
        assert bodies[-1] == b"999"
        assert 100 < len(bodies) < 200


def test_closing_ends_a_put_that_waits_for_room(tmp_path: Path) -> None:
    queue = penstock.Queue(tmp_path / "q", max_bytes=LIMIT)
    queue.group()
    fill(queue)
    seen: list[Exception] = []

    def put_one() -> None:
        try:
            queue.put(BODY)
        except penstock.PenstockError as error:
            seen.append(error)

    thread = threading.Thread(target=put_one)
    thread.start()
    until_it_waits(thread, queue, "room_wanted")
    queue.close()
    thread.join(LONG_S)
    assert isinstance(seen[0], penstock.ClosedError)


@pytest.mark.parametrize("is_opened_here", [True, False])
@pytest.mark.parametrize("format", ["penstock", "zbus", "mfq"])
def test_what_came_back_to_a_group_goes_with_the_oldest(
    tmp_path: Path, format: str, is_opened_here: bool
) -> None:
    with (
        open_queue(
            tmp_path / "q", format=format, max_bytes=60_000, when_full="drop-oldest"
        ) as queue,
        open_queue(tmp_path / "q", format=format) as other,
    ):
        group = (queue if is_opened_here else other).group("one")
        for number in range(5):
            queue.put(b"%d" % number)
        out, back, later = group.get_many(3)
        back.nack()
        later.nack(delay=60)
        count = 5
        while queue.offsets().head <= (later.offset or 0):
            queue.put(BODY)
            count += 1
        head = queue.offsets().head
        assert group.cursor == head
        assert group.stats()["skipped"] == count - len(queue) - 1  # All that went, but what is out.
        assert group.get(0).offset == head
        with pytest.raises(penstock.ReceiptError):
            out.ack()


@pytest.mark.parametrize("tags", ["", "eu.#"])
@pytest.mark.parametrize("format", ["penstock", "zbus", "mfq"])
def test_what_is_dropped_unread_is_counted_and_told(
    tmp_path: Path, format: str, tags: str, caplog: pytest.LogCaptureFixture
) -> None:
    tag = {} if format == "mfq" else {"tag": "eu.de"}
    options = {"max_bytes": 100_000, "when_full": "drop-oldest", "segment_bytes": 16 << 10}
    with penstock.Queue(tmp_path / "q", format=format, **options) as queue:  # type: ignore[arg-type]
        group = queue.group("g", tags="" if format == "mfq" else tags)
        queue.put_many([bytes(1000)] * 20, **tag)  # type: ignore[arg-type]
        read = len(group.get_many(5))
        for _ in range(20):
            queue.put_many([bytes(1000)] * 10, **tag)  # type: ignore[arg-type]
        facts = group.stats()
        assert facts["skipped"] == 220 - read - group.lag > 100
    told = [record.args for record in caplog.records if "was overtaken" in record.msg]
    assert all(args[1:3] == ("g", "drop-oldest") for args in told)  # type: ignore[index]
    texts = [str(args[3]) for args in told]  # type: ignore[index]
    unread = [int(text.split()[0]) for text in texts if text.endswith("that it had not read")]
    assert sum(unread) == facts["skipped"]
