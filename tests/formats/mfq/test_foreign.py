"""An original program on the other side: it locks nothing and wakes nobody."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import signal
import threading
from pathlib import Path
from typing import Any

from penstock import AsyncQueue, ManualClock, Queue
from tests.copies import copy_open
from tests.formats.mfq.twin import Twin

SPAWN = multiprocessing.get_context("spawn")


def test_a_waiting_group_sees_what_an_original_produces(tmp_path: Path) -> None:
    twin = Twin(tmp_path / "q", 64)
    with Queue(tmp_path / "q", create=False) as queue:
        seen: list[bytes] = []

        def consume() -> None:
            while len(seen) < 30:
                message = queue.get(30)
                seen.append(message.body)
                message.ack()

        thread = threading.Thread(target=consume)
        thread.start()
        put = [bytes([n]) * (1 + 7 * n % 50) for n in range(30)]
        for body in put:
            twin.produce(body)
        thread.join(30)
        assert seen == put
        assert queue.offsets().tail == twin.get("producer.offset") == twin.get("consumer.offset")
        assert queue.verify().unchecked == 30


def test_a_waiting_task_sees_what_an_original_produces(tmp_path: Path) -> None:
    twin = Twin(tmp_path / "q", 64)

    async def consume() -> bytes:
        async with AsyncQueue(tmp_path / "q", create=False) as queue:
            waiting = asyncio.create_task(queue.get(30))
            while not queue.group().is_waiting:
                await asyncio.sleep(0)
            twin.produce(b"hello")
            return (await waiting).body

    assert asyncio.run(consume()) == b"hello"


def test_put_goes_behind_what_an_original_produced_meanwhile(tmp_path: Path) -> None:
    twin = Twin(tmp_path / "q", 64)
    with Queue(tmp_path / "q", create=False) as queue:
        put = [b"ours"]
        queue.put(b"ours")
        for turn in range(8):
            theirs = b"theirs %d" % turn
            twin.produce(theirs)
            queue.put(b"ours %d" % turn)
            put += [theirs, b"ours %d" % turn]
        assert [m.body for m in queue.scan()] == put
        assert len(queue) == len(put)
        assert queue.verify().is_ok
    assert [body for _, body in twin.messages()] == put


def test_a_reader_follows_an_original(tmp_path: Path) -> None:
    twin = Twin(tmp_path / "q", 64)
    with Queue(tmp_path / "q", create=False, read_only=True) as reader:
        for n in range(12):
            twin.produce(b"%d" % n * 9)
            assert len(list(reader.scan())) == n + 1


def test_progress_of_an_original_consumer_is_taken_over(tmp_path: Path) -> None:
    twin = Twin(tmp_path / "q", 1024)
    for n in range(6):
        twin.produce(b"%d" % n)
    with Queue(tmp_path / "q", create=False) as queue:
        queue.get(0).ack()
    twin.set("consumer.offset", 4 * 6)
    with Queue(tmp_path / "q", create=False) as queue:
        assert [m.body for m in queue.get_many(9)] == [b"4", b"5"]


def test_what_was_acked_out_of_order_stays_acked_after_reopening(tmp_path: Path) -> None:
    Twin(tmp_path / "q", 1024)
    with Queue(tmp_path / "q", create=False) as queue:
        queue.put_many([b"0", b"1", b"2"])
        held = queue.get_many(3)
        held[1].ack()
    with Queue(tmp_path / "q", create=False) as queue:
        assert [m.body for m in queue.get_many(9)] == [b"0", b"2"]


def test_what_an_original_produced_beside_us_is_kept_after_a_power_cut(tmp_path: Path) -> None:
    clock, path = ManualClock(), tmp_path / "q"
    with Queue(path, format="mfq", segment_bytes=16384, durability="process", clock=clock) as queue:
        queue.put(b"ours")
        Twin(path).produce(b"theirs")
        assert [message.body for message in queue.get_many(9)] == [b"ours", b"theirs"]
        Twin(path).produce(b"theirs, too")
        copy_open(path, tmp_path / "cut")
    clock.restart()
    for turn in range(2):
        with Queue(tmp_path / "cut", create=False, clock=clock) as again:
            found = [message.body for message in again.scan()]
            assert found == [b"ours", b"theirs", b"theirs, too", *[b"more"] * turn]
            again.put(b"more")
    assert not (tmp_path / "cut" / ".penstock" / "unchecked.json").exists()


def put_for_ever(path: Path, channel: Any) -> None:
    queue = Queue(path, create=False, durability="process")
    number = 0
    while True:
        queue.put(b"%08d" % number * (1 + number % 30))
        number += 1
        if number % 100 == 0:
            channel.send(number)


def test_a_killed_producer_loses_nothing_it_had_put(tmp_path: Path) -> None:
    Twin(tmp_path / "q", 4096)
    for _ in range(4):
        with Queue(tmp_path / "q", create=False) as queue:
            before = len(queue)
        here, there = SPAWN.Pipe()
        process = SPAWN.Process(target=put_for_ever, args=(tmp_path / "q", there))
        process.start()
        there.close()  # Should it die by itself, we hear of it.
        told = max(here.recv() for _ in range(5))
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        with contextlib.suppress(EOFError):
            while here.poll():
                told = max(told, here.recv())
        with Queue(tmp_path / "q", create=False) as queue:
            found = [m.body for m in queue.scan()][before:]
            assert len(found) >= told
            assert found == [b"%08d" % n * (1 + n % 30) for n in range(len(found))]
            assert queue.stats()["dropped"] == []
            queue.put(b"and on")
            assert queue.verify().is_ok
    assert [body for _, body in Twin(tmp_path / "q").messages()].count(b"and on") == 4
