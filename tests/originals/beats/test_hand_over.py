"""What an operator does with a Beat's queue between two of its runs costs none of its events."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock import Queue, UnsupportedError
from tests.originals.beats.beat import NEWEST, RELEASES, Beat, Event
from tests.originals.beats.parties import as_event, as_message, penstock_turn

LAYOUTS = RELEASES[NEWEST]
OPTIONS: dict[str, Any] = {"format": "beats", "durability": "process"}


def events(start: int, count: int) -> list[Event]:
    return [
        {
            "timestamp_ns": 5 + n,
            "guaranteed": False,
            "meta": {},
            "fields": {"n": n, "pad": "x" * 60},
        }
        for n in range(start, start + count)
    ]


def numbers(found: list[Event]) -> list[int]:
    return [event["fields"]["n"] for event in found]


def drained_by_a_beat(path: Path, layout: str) -> None:
    beat = Beat(NEWEST, path, layout)
    beat.put(*events(0, 10))
    assert numbers(beat.get(10)) == list(range(10))
    beat.ack(10)
    beat.close()


def drained_by_penstock(path: Path, layout: str) -> None:
    beat = Beat(NEWEST, path, layout)
    beat.put(*events(0, 10))
    beat.close()
    steps = [("take", 10), ("ack", 10)]
    assert numbers(penstock_turn(path, steps, killed=False)) == list(range(10))


@pytest.mark.parametrize("drain", [drained_by_a_beat, drained_by_penstock])
@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_opening_a_drained_spool_costs_a_beat_nothing(
    layout: str, killed: bool, drain: Any, tmp_path: Path
) -> None:
    path = tmp_path / "q"
    drain(path, layout)
    for _ in range(2):
        penstock_turn(path, [], killed=killed)
    beat = Beat(NEWEST, path, layout)
    beat.put(*events(10, 10))
    assert numbers(beat.get(10)) == list(range(10, 20))
    beat.close()
    if layout.endswith("lz4"):
        penstock_turn(path, [], killed=False)  # A Beat alone can't read its own streams again.
    beat = Beat(NEWEST, path, layout)
    assert numbers(beat.get(10)) == list(range(10, 20))
    beat.close()
    with Queue(path, **OPTIONS) as queue:
        assert numbers([as_event(m) for m in queue.get_many(99)]) == list(range(10, 20))
        assert queue.verify().is_ok


@pytest.mark.parametrize("at_once", [1, 100])
def test_a_beat_reads_all_of_a_compressed_queue(at_once: int, tmp_path: Path) -> None:
    path = tmp_path / "q"
    with Queue(path, layout="2-released-lz4", **OPTIONS) as queue:
        for start in range(0, 3000, at_once):
            queue.put_many([as_message(event)[0] for event in events(start, at_once)])
    beat = Beat(NEWEST, path, "2-released-lz4")
    assert numbers(beat.get(3000)) == list(range(3000))
    beat.close()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_a_beat_read_while_penstock_lay_killed_is_read(layout: str, tmp_path: Path) -> None:
    path = tmp_path / "q"
    put = [("put", events(0, 20)), ("take", 6), ("ack", 6)]
    penstock_turn(path, put, killed=True, format="beats", layout=layout)
    beat = Beat(NEWEST, path, layout)
    assert numbers(beat.get(9)) == list(range(6, 15))
    beat.ack(9)
    beat.kill()
    assert numbers(penstock_turn(path, [("take", 1), ("ack", 1)], killed=False)) == [15]
    beat = Beat(NEWEST, path, layout)
    assert numbers(beat.rest()) == list(range(16, 20))
    beat.close()


@pytest.mark.parametrize("release", RELEASES)
def test_a_beat_that_runs_has_its_queue_for_itself(release: str, tmp_path: Path) -> None:
    path = tmp_path / "q"
    layout = RELEASES[release][0]
    beat = Beat(release, path, layout)
    beat.put(*events(0, 10))
    with pytest.raises(UnsupportedError, match="stop the Beat first"):
        Queue(path, format="beats")
    with Queue(path, read_only=True, format="beats") as looking:
        assert looking.offsets() is not None
    assert numbers(beat.get(10)) == list(range(10))
    beat.ack(10)
    beat.close()
    penstock_turn(path, [], killed=False)
