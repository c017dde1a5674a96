"""Several processes append; one is killed at any moment: nothing is lost, numbers are unique."""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from penstock import Queue
from penstock.formats.zbus.structs import CREATED

SPAWN = multiprocessing.get_context("spawn")
OPTIONS = {"segment_bytes": 16384, "durability": "process"}


def put_own(path: Path, who: int, count: int) -> None:
    with Queue(path, create=False, **OPTIONS) as queue:  # type: ignore[arg-type]
        for number in range(count):
            queue.put(b"%d %d" % (who, number), id=f"{who}-{number}")


def put_until_killed(path: Path, channel: Any) -> None:
    queue = Queue(path, create=False, **OPTIONS)  # type: ignore[arg-type]
    channel.send("ready")
    number = 0
    while True:
        queue.put(b"%d" % number * 50)
        channel.send(number)
        number += 1


@pytest.mark.parametrize("layout", CREATED)
def test_two_processes_append_and_nothing_is_lost(layout: str, tmp_path: Path) -> None:
    path = tmp_path / "mq"
    Queue(path, format="zbus", layout=layout, **OPTIONS).close()  # type: ignore[arg-type]
    writers = [SPAWN.Process(target=put_own, args=(path, who, 300)) for who in (0, 1)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    with Queue(path, read_only=True) as queue:
        found = list(queue.scan())
        assert len({message.id for message in found}) == len(found) == 600
        numbers = [message.number or 0 for message in found]
        assert numbers == list(range(numbers[0], numbers[0] + 600))
        for who in (b"0", b"1"):
            own = [int(m.body.split()[1]) for m in found if m.body.startswith(who + b" ")]
            assert own == list(range(300))
        assert queue.verify().is_ok
        assert queue.verify().unchecked == 0
        assert queue.meta["block_count"] > 2


@pytest.mark.parametrize("layout", ["doc000", "flag", "crc"])
def test_a_killed_process_loses_nothing_it_was_told_is_there(layout: str, tmp_path: Path) -> None:
    path = tmp_path / "mq"
    Queue(path, format="zbus", layout=layout, **OPTIONS).close()  # type: ignore[arg-type]
    put = 0
    for _ in range(4):
        here, there = SPAWN.Pipe()
        writer = SPAWN.Process(target=put_until_killed, args=(path, there), daemon=True)
        writer.start()
        there.close()
        assert here.recv() == "ready"
        told = [here.recv() for _ in range(70)]
        assert writer.pid is not None
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
        while here.poll():
            try:
                told.append(here.recv())
            except EOFError:
                break
        put += len(told)
        with Queue(path, create=False, **OPTIONS) as queue:  # type: ignore[arg-type]
            found = list(queue.scan())
            assert len(found) >= put
            put = len(found)  # One may be there that nobody was told of.
            numbers = [message.number or 0 for message in found]
            assert numbers == list(range(numbers[0], numbers[0] + len(found)))
            assert queue.verify().corrupt == []
            assert queue.verify().unchecked == 0
