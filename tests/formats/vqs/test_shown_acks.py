"""The header follows acks at once: whatever becomes of us, the original pops what is left."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from penstock import Queue
from penstock.options import DurabilityName
from tests.crash.killing import in_a_small_process
from tests.originals.vqs_twin import Ring

BODIES = [b"message %d" % number for number in range(6)]
LAYOUTS = ("doc", "stage4")


def opened(path: Path, layout: str, level: DurabilityName = "process") -> Queue:
    return Queue(path, format="vqs", layout=layout, max_bytes=65536, durability=level)


def left(path: Path, layout: str) -> list[bytes]:
    return Ring(path, layout).everything()


@pytest.fixture(params=LAYOUTS)
def layout(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def path(tmp_path: Path, layout: str) -> Path:
    return tmp_path / ("q.bin" if layout == "doc" else "q")


def consume_and_die(path: Path, layout: str, level: DurabilityName) -> None:
    pid = os.fork()
    if not pid:
        queue = opened(path, layout, level)
        queue.put_many(BODIES)
        for message in queue.get_many(4):
            message.ack()
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)


@pytest.mark.parametrize("level", ["process", "interval", "always"])
def test_the_original_pops_nothing_that_a_killed_process_had_acked(
    path: Path, layout: str, level: DurabilityName
) -> None:
    in_a_small_process(consume_and_die, path, layout, level)
    assert left(path, layout) == BODIES[4:]


def test_opening_after_a_kill_brings_nothing_back(path: Path, layout: str) -> None:
    in_a_small_process(consume_and_die, path, layout, "process")
    with opened(path, layout) as queue:
        assert left(path, layout) == BODIES[4:]
        assert [message.body for message in queue.get_many(9)] == BODIES[4:]


def test_the_header_shows_acks_in_order_and_a_way_back(path: Path, layout: str) -> None:
    with opened(path, layout) as queue:
        queue.put_many(BODIES)
        found = queue.get_many(3)
        found[1].ack()
        assert left(path, layout) == BODIES
        found[0].ack()
        assert left(path, layout) == BODIES[2:]
        queue.put(b"one more")
        assert left(path, layout) == [*BODIES[2:], b"one more"]
        queue.group().seek("earliest")
        assert left(path, layout) == [*BODIES, b"one more"]


def test_what_another_group_has_not_read_stays_in_the_header(path: Path, layout: str) -> None:
    with opened(path, layout) as queue:
        queue.put_many(BODIES)
        for message in queue.get_many(3):
            message.ack()
        other = queue.group("other")
        assert left(path, layout) == BODIES
        queue.get().ack()
        assert left(path, layout) == BODIES
        other.delete()
        queue.get().ack()
        assert left(path, layout) == BODIES[5:]


def test_acks_are_shown_in_a_file_of_another_size(path: Path, layout: str) -> None:
    with opened(path, layout) as queue:
        queue.put_many(BODIES)
        queue.get().ack()
        queue.store.resize(1 << 18)
        assert left(path, layout) == BODIES[1:]
        queue.store.format.tend()
        queue.get().ack()
        assert left(path, layout) == BODIES[2:]
