"""Counts of a group that several processes move at once."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

from penstock import Empty, Queue

SPAWN = multiprocessing.get_context("spawn")
COUNT = 40_000


def drain(path: Path, channel: Any) -> None:
    with Queue(path, durability="process") as queue:
        group = queue.group("readers", ack="auto")
        channel.send("ready")
        channel.recv()
        taken = 0
        while group.get_many(1):  # By the list and
            taken += 1
            try:
                group.get(0)  # by itself: two ways to the same word.
            except Empty:
                break
            taken += 1
        channel.send(taken)


def test_two_processes_count_every_message_that_they_take(tmp_path: Path) -> None:
    path = tmp_path / "queue"
    with Queue(path, durability="process") as queue:
        queue.put_many([b"x"] * COUNT)
        group = queue.group("readers", ack="auto")
        pairs = [SPAWN.Pipe() for _ in range(2)]
        workers = [SPAWN.Process(target=drain, args=(path, there)) for _, there in pairs]
        for worker in workers:
            worker.start()
        for here, _ in pairs:
            assert here.recv() == "ready"
        for here, _ in pairs:
            here.send("go")
        taken = [here.recv() for here, _ in pairs]
        for worker in workers:
            worker.join()
        assert sum(taken) == COUNT
        assert group.stats()["delivered"] == COUNT
