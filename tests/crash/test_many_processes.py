"""Many processes put and get at once, and some are killed: nothing is lost or invented."""

from __future__ import annotations

import functools
import multiprocessing
import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import Empty
from penstock.options import AckMode
from tests import counting, opening
from tests.crash.killing import Score

pytestmark = pytest.mark.crash
SPAWN = multiprocessing.get_context("spawn")
MEMORY = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else Path("/tmp")
SEED = int(os.environ.get("PENSTOCK_SEED", "20261115"))


@pytest.fixture
def folder() -> Iterator[Path]:
    path = MEMORY / f"penstock-many-{os.getpid()}"
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    yield path
    shutil.rmtree(path)


open_queue = functools.partial(opening.open_queue, segment_bytes=1 << 20)


def produce(path: Path, who: int, count: int) -> None:
    with open_queue(path) as queue:
        for number in range(count):
            queue.put(b"%03d:%08d" % (who, number))


def consume(path: Path, ack: AckMode, note: Path) -> None:
    """Writes down what it got, each line before the next get, until nothing more will come."""
    with open_queue(path) as queue, note.open("wb", buffering=0) as out:
        group = queue.group("all", ack=ack)
        while True:
            try:
                message = group.get(1.0)
            except Empty:
                if path.with_name("done").exists():
                    return
                continue
            out.write(message.body + b"\n")
            if ack == "lease":
                message.ack()


def start(work: Any, *arguments: Any) -> Any:
    process = SPAWN.Process(target=work, args=arguments, daemon=True)
    process.start()
    return process


def finish(processes: list[Any]) -> None:
    for process in processes:
        process.join(1500)
        assert process.exitcode == 0


def lines(folder: Path) -> list[list[bytes]]:
    return [note.read_bytes().split(b"\n")[:-1] for note in sorted(folder.glob("note-*"))]


def in_order(got: list[bytes]) -> bool:
    last: dict[bytes, bytes] = {}
    for line in got:
        who, _, number = line.partition(b":")
        if last.get(who, b"") >= number:
            return False
        last[who] = number
    return True


def all_at_once(folder: Path, each: int, producers: int, consumers: int) -> None:
    path = folder / "queue"
    with open_queue(path) as queue:
        queue.group("all", ack="auto")
        takers = [start(consume, path, "auto", folder / f"note-{n}") for n in range(consumers)]
        givers = [start(produce, path, n, each) for n in range(producers)]
        finish(givers)
        counting.count("messages", each * producers)
        (folder / "done").touch()
        finish(takers)
        got = lines(folder)
        counted = Counter(line for part in got for line in part)
        expected = {b"%03d:%08d" % (n, i) for n in range(producers) for i in range(each)}
        assert set(counted) == expected
        assert max(counted.values()) == 1
        assert all(in_order(part) for part in got), (
            "per producer, each consumer sees rising numbers"
        )
        assert queue.offsets().next_number == each * producers
        assert queue.verify().is_ok


def test_each_message_is_got_once_and_in_its_producers_order(folder: Path) -> None:
    all_at_once(folder, 2500, 3, 3)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_eight_processes_of_fifty_thousand_messages(folder: Path) -> None:
    all_at_once(folder, 50_000, 8, 8)


def produce_and_note(path: Path, who: int, count: int, noted: Score) -> None:
    """As `produce`; the score says how many puts have returned."""
    score = noted.writer()
    with open_queue(path) as queue:
        for number in range(count):
            queue.put(b"%03d:%08d" % (who, number))
            score(number + 1)


def with_a_death(folder: Path, each: int, producers: int, consumers: int) -> None:
    """One producer and one consumer of a group that acks by getting are killed on the way."""
    print(f"seed {SEED}")
    rng, path = random.Random(SEED), folder / "queue"
    with open_queue(path) as queue:
        group = queue.group("all", ack="auto")
        scores = [Score(folder / f"score-{n}") for n in range(producers)]
        takers = [start(consume, path, "auto", folder / f"note-{n}") for n in range(consumers)]
        givers = [start(produce_and_note, path, n, each, scores[n]) for n in range(producers)]
        total = each * producers
        when = sorted(rng.randrange(total // 10, total // 2) for _ in range(2))
        for processes, wanted in zip((givers, takers), when, strict=True):
            while queue.offsets().next_number < wanted:
                assert any(process.is_alive() for process in givers)
                processes[0].join(0.001)
            processes.pop(0).kill()
            counting.count("kills")
        finish(givers)
        counting.count("messages", each * producers)
        (folder / "done").touch()
        finish(takers)
        got = [line for part in lines(folder) for line in part]
        assert len(got) == len(set(got)), "none twice"
        put = [score.read() for score in scores]
        there = [message.body for message in queue.scan()]
        expected = {b"%03d:%08d" % (n, i) for n, count in enumerate(put) for i in range(count)}
        assert expected <= set(there), "a put that had returned is lost"
        assert len(set(there) - expected) <= 1, "one put may have been made and not noted"
        # What the killed consumer had just been given went with it: a get is the ack.
        missing = set(there) - set(got)
        print(f"{len(there)} put, {len(got)} got, {len(missing)} went with the killed consumer")
        assert len(missing) <= 1
        assert all(in_order(part) for part in lines(folder))
        assert group.cursor == queue.offsets().tail
        assert queue.verify().is_ok


def test_a_killed_producer_and_a_killed_consumer_take_nothing_with_them(folder: Path) -> None:
    with_a_death(folder, 1500, 3, 3)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_eight_processes_of_fifty_thousand_messages_and_two_deaths(folder: Path) -> None:
    with_a_death(folder, 50_000, 8, 8)


def with_kills(folder: Path, each: int, producers: int, consumers: int, kills: int) -> None:
    """Consumers with leases are killed and replaced; every message is acked by someone."""
    print(f"seed {SEED}")
    rng, path = random.Random(SEED), folder / "queue"
    with open_queue(path) as queue:
        group = queue.group("all", ack="lease")
        givers = [start(produce, path, n, each) for n in range(producers)]
        notes = iter(range(1000))

        def taker() -> Any:
            return start(consume, path, "lease", folder / f"note-{next(notes):03d}")

        takers = [taker() for _ in range(consumers)]
        total, began = each * producers, time.monotonic()
        for kill in range(kills):
            # By progress, not by time: as many kills on a busy machine as on an idle one.
            wanted = total * (kill + rng.random()) / (kills + 1)
            while group.core.counts()["acked"] < wanted:
                takers[0].join(0.002)
            victim = rng.randrange(len(takers))
            takers[victim].kill()
            takers[victim].join()
            takers[victim] = taker()
            counting.count("kills")
        finish(givers)
        counting.count("messages", total)
        (folder / "done").touch()
        finish(takers)
        counted = Counter(line for part in lines(folder) for line in part)
        expected = {b"%03d:%08d" % (n, i) for n in range(producers) for i in range(each)}
        assert set(counted) == expected, "none lost, none invented"
        again = sum(count - 1 for count in counted.values())
        assert again <= kills, f"{again} came twice, {kills} leases ended by a death"
        assert group.cursor == queue.offsets().tail
        seconds = time.monotonic() - began
        print(f"{total} messages, {kills} kills, {again} came twice, {seconds:.0f} s")


def test_killed_consumers_of_a_leased_group_lose_nothing(folder: Path) -> None:
    with_kills(folder, 1500, 2, 3, 4)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_many_killed_consumers_of_a_leased_group_lose_nothing(folder: Path) -> None:
    with_kills(folder, 50_000, 8, 8, 100)
