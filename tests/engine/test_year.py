"""A year of delays, leases and retention in seconds, while the wall clock is set back and forth.

Nothing comes early and nothing never comes; what a step may change is in `tests.model.held`.
"""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

import penstock
from penstock.formats import registry
from penstock.formats.penstock.format import PenstockFormat
from tests import counting
from tests.model.held import Held
from tests.opening import path_for, small_segments

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
SLACK_S = 0.001
SEED = 1000 * int(os.environ.get("PENSTOCK_SEED", "0"))
YEARS = 1000
"""Of each format, in the slow test."""


class World:
    """A queue, its clock, and what is known about every message that is not done."""

    def __init__(self, folder: Path, format: str, seed: int) -> None:
        self.path, self.random = path_for(folder, format), random.Random(seed)
        self.options = {"format": format} | small_segments(format)
        self.lasts_s = float("inf")
        if format == "vqs":  # A message goes after its period, read or not; this is the longest.
            self.options["retention_age_s"] = 14 * DAY
            self.lasts_s = 14 * DAY
        self.put_at: dict[bytes, float] = {}
        self.clock = penstock.ManualClock()
        self.now = 0.0
        self.held: dict[bytes, Held] = {}
        self.count = self.acked = self.outlived = 0
        self.open()

    def open(self) -> None:
        self.queue = penstock.Queue(
            self.path, clock=self.clock, durability="process", **self.options
        )
        self.group = self.queue.group()

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.now += seconds

    def step(self, seconds: float) -> None:
        """The wall clock is set; time itself goes on as before."""
        self.clock.set_wall(self.clock.wall() + seconds)
        for held in self.held.values():
            held.step(seconds)

    def restart(self, off_s: float) -> None:
        self.queue.close()
        self.clock.restart(off_s)
        self.now += off_s
        for held in self.held.values():
            held.looked_at = self.now
            held.restart(self.now)
        self.open()

    def put(self, delay: float) -> None:
        body = b"%d" % self.count
        self.count += 1
        self.queue.put(body, delay=delay)
        self.held[body] = Held(delay, self.now)
        self.put_at[body] = self.now

    def is_old(self, body: bytes) -> bool:
        """It may have outlived its period, by a wall clock that is set now and then."""
        return self.now - self.put_at[body] > self.lasts_s - 4 * DAY

    def drain(self) -> None:
        """Takes all there is; checks who came and who should have."""
        due = {body for body, held in self.held.items() if held.latest() + SLACK_S <= self.now}
        visibility = self.random.choice([MINUTE, HOUR, DAY])
        messages = self.group.get_many(1000, 0, visibility=visibility)
        came = {message.body for message in messages}
        for held in self.held.values():
            held.looked_at = self.now if held.looked_at is None else held.looked_at
        missing = {body for body in due - came if not self.is_old(body)}
        assert not missing, f"never came: {sorted(missing)[:3]} at {self.now}"
        for body in due - came:
            del self.held[body]
            self.outlived += 1
        for message in messages:
            held = self.held[message.body]
            early = held.earliest() - SLACK_S - self.now
            assert early <= 0, f"{message.body!r} came {early} s early"
            self.settle(message, visibility)

    def settle(self, message: penstock.Message, visibility: float) -> None:
        what = self.random.random()
        if what < 0.6:
            message.ack()
            del self.held[message.body]
            self.acked += 1
        elif what < 0.8:
            delay = self.random.choice([0.0, HOUR, 2 * DAY])
            message.nack(delay)
            self.held[message.body] = Held(delay, self.now, looked_at=self.now)
        else:
            self.held[message.body] = Held(visibility, self.now, looked_at=self.now)


def live_a_year(folder: Path, format: str, seed: int) -> None:
    world = World(folder, format, seed)
    pick = world.random
    while world.now < 365 * DAY:
        for _ in range(pick.randrange(3)):
            world.put(pick.choice([0.0, MINUTE, HOUR, DAY, 3 * DAY]))
        world.advance(pick.choice([1.0, MINUTE, HOUR, 6 * HOUR, DAY]))
        if pick.random() < 0.2:
            world.step(pick.choice([-DAY, -HOUR, -1.0, 1.0, HOUR, DAY]))
        world.drain()
        if pick.random() < 0.02:
            leases_end(world)
            world.restart(pick.choice([0.0, MINUTE, DAY]))
    while world.held:
        world.advance(7 * DAY)
        world.drain()
    assert world.acked + world.outlived == world.count > 300
    assert world.outlived < world.count / 20
    assert world.group.lag_bytes == 0
    world.queue.close()
    counting.count("years")


@pytest.mark.parametrize("format", registry.MODULES)
def test_a_year_of_clock_steps_brings_nothing_early_and_everything_once(
    tmp_path: Path, format: str
) -> None:
    live_a_year(tmp_path, format, SEED)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("format", registry.MODULES)
@pytest.mark.parametrize("part", range(YEARS // 20))
def test_a_thousand_years_bring_nothing_early_and_everything_once(
    tmp_path: Path, format: str, part: int
) -> None:
    # In parts, each of which goes through all formats: a run that has no time for all goes on.
    for seed in range(SEED + 20 * part + 1, SEED + 20 * part + 21):
        (tmp_path / str(seed)).mkdir()
        live_a_year(tmp_path / str(seed), format, seed)
        shutil.rmtree(tmp_path / str(seed))


def leases_end(world: World) -> None:
    """Closing gives back what this consumer has out: from then on it may come at any time."""
    out = {offset for offset, state, _, _ in world.group.core.outstanding() if state == "leased"}
    for offset in out:
        world.held[world.queue.message_at(offset).body].is_free = True


def test_a_year_of_retention_keeps_the_last_thirty_days(tmp_path: Path) -> None:
    clock, pick = penstock.ManualClock(), random.Random(1)
    options = {"retention_age_s": 30 * DAY, "segment_bytes": 16 << 10, "durability": "process"}
    with penstock.Queue(tmp_path / "q", clock=clock, retain_unread=False, **options) as queue:  # type: ignore[arg-type]
        for day in range(365):
            queue.put(b"%d" % day + bytes(4000))
            clock.advance(DAY)
            if pick.random() < 0.3:
                clock.set_wall(clock.wall() + pick.choice([-HOUR, HOUR]))
            assert isinstance(queue.store.format, PenstockFormat)
            queue.store.format.tend()  # Only a sealed segment says how old it is.
            queue.trim()
            kept = [int(message.body.rstrip(b"\0")) for message in queue.scan()]
            assert kept[-1] == day
            assert kept == list(range(kept[0], day + 1)), "a hole"
            assert kept[0] <= max(0, day - 28), "too young to go"
            assert len(kept) <= 30 + 6 + 1, "too old to stay"
            assert ages_ok(queue, clock)


def ages_ok(queue: penstock.Queue, clock: penstock.ManualClock) -> bool:
    """A new group gets nothing that is older than thirty days, though its segment may stay."""
    oldest = clock.wall() - 30 * DAY
    with queue.broadcast(start="earliest", ack="auto") as group:
        stamps = [message.timestamp_ns or 0 for message in group.get_many(100)]
    return bool(stamps) and min(stamps) >= int(oldest * 1e9) - 1000


def test_a_delay_put_before_the_clock_went_back_waits_no_longer_than_itself(
    tmp_path: Path,
) -> None:
    clock = penstock.ManualClock()
    with penstock.Queue(tmp_path / "q", clock=clock) as queue:
        queue.put(b"a", delay=HOUR)
        clock.set_wall(clock.wall() - 300 * DAY)
        with pytest.raises(penstock.Empty):
            queue.get(0)
        clock.advance(HOUR - 1)
        with pytest.raises(penstock.Empty):
            queue.get(0)
        clock.advance(1)
        assert queue.get(0).body == b"a"


def test_a_lease_is_not_shortened_by_a_clock_set_forward(tmp_path: Path) -> None:
    clock = penstock.ManualClock()
    with penstock.Queue(tmp_path / "q", clock=clock) as queue:
        queue.put(b"a")
        queue.get(0, visibility=HOUR)
        clock.set_wall(clock.wall() + 300 * DAY)
        with pytest.raises(penstock.Empty):
            queue.get(0)
        clock.advance(HOUR)
        assert queue.get(0).receives == 2


def test_a_delay_over_a_restart_counts_the_time_the_machine_was_off(tmp_path: Path) -> None:
    clock = penstock.ManualClock()
    with penstock.Queue(tmp_path / "q", clock=clock) as queue:
        queue.put(b"a", delay=DAY)
        assert queue.get_many(1) == []
    clock.restart(off_s=DAY - HOUR)
    with penstock.Queue(tmp_path / "q", clock=clock) as queue:
        assert queue.get_many(1) == []
        clock.advance(HOUR)
        assert queue.get(0).body == b"a"
