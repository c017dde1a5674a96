"""Counts of a group that several processes move at once."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import pytest

from penstock import Empty, Queue
from penstock.engine.group import folder_of
from penstock.options import AckMode
from penstock.sidecar import groups

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


@pytest.mark.parametrize(("ack", "following"), [("auto", b"d"), ("lease", b"b")])
def test_the_table_of_a_build_before_the_release_is_gone_on_with(
    tmp_path: Path, ack: AckMode, following: bytes
) -> None:
    with Queue(tmp_path / "queue") as queue:
        queue.put_many([b"a", b"b", b"c", b"d"])
        group = queue.group("readers", ack=ack)
        first, *_ = group.get_many(3)
        if ack == "lease":
            first.ack()
        table, run = folder_of(queue.store, "readers") / "table", queue.store.run
        counts = group.stats()
    raw = bytearray(table.read_bytes())
    raw[:8] = b"PENSTGRP"
    raw[40:48], raw[192:200] = raw[192:200], raw[40:48]
    table.write_bytes(raw)
    seen = groups.peek(table.parent, run)
    assert seen is not None
    assert (seen.cursor, seen.counts) == (counts["cursor"], {})
    with Queue(tmp_path / "queue") as queue:
        group = queue.group("readers", create=False)
        assert group.stats()["delivered"] == 3
        assert group.cursor == counts["cursor"]
        assert group.get(0).body == following
        assert group.stats()["delivered"] == 4
    assert table.read_bytes()[:8] == groups.MAGIC
