"""Clocks that jump, differ or were never looked at: nobody is idle, early, late or gone by them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.engine import retention
from penstock.formats import registry

DAY_S = 86400.0
YEAR_S = 365 * DAY_S
WEEK_S = 7 * DAY_S


def open_format(path: Path, format: str, clock: penstock.ManualClock, **options: Any) -> Any:
    if format == "vqs":
        path, options = path.with_suffix(".bin"), {"max_bytes": 1 << 20} | options
    else:
        options = {"segment_bytes": 16384} | options
    return penstock.Queue(path, format=format, clock=clock, durability="process", **options)


def hold(queue: penstock.Queue) -> set[str]:
    return set(retention.holding_cursors(queue))


@pytest.mark.parametrize("ack", ["lease", "auto"])
def test_a_busy_group_is_never_idle(tmp_path: Path, ack: str) -> None:
    clock = penstock.ManualClock()
    with open_format(tmp_path / "q", "penstock", clock, retention_bytes=1) as queue:
        group = queue.group("slow", ack=ack)
        for i in range(60):
            queue.put_many([b"%03d" % i + b"x" * 2000] * 3)
            message = group.get(0)
            if ack == "lease":
                message.ack()
            clock.advance(DAY_S)
            queue.trim()
        assert hold(queue) == {"slow"}
        assert len(group.get_many(1000)) == 120


@pytest.mark.parametrize("ack", ["lease", "auto"])
def test_a_group_that_stands_still_holds_retention_up_for_a_week(tmp_path: Path, ack: str) -> None:
    clock = penstock.ManualClock()
    with open_format(tmp_path / "q", "penstock", clock) as queue:
        queue.group("still", ack=ack)
        queue.put(b"a")
        assert hold(queue) == {"still"}
        clock.advance(WEEK_S)
        assert hold(queue) == {"still"}
        clock.advance(1)
        assert hold(queue) == set()
        queue.group("still").get(0)
        assert hold(queue) == {"still"}


def test_a_group_with_nothing_to_read_is_not_idle(tmp_path: Path) -> None:
    clock = penstock.ManualClock()
    with open_format(tmp_path / "q", "vqs", clock) as queue:
        group = queue.group("g", ack="auto")
        for _ in range(6):
            queue.put(b"x" * 250_000)
            assert len(group.get_many(10)) == 1
            assert hold(queue) == {"g"}
            clock.advance(2 * WEEK_S)


def test_the_wall_clock_makes_no_group_idle(tmp_path: Path) -> None:
    clock = penstock.ManualClock()
    with open_format(tmp_path / "q", "penstock", clock) as queue:
        queue.group("g", ack="auto")
        queue.put(b"a")
        assert hold(queue) == {"g"}
        clock.set_wall(clock.wall() + 10 * YEAR_S)
        assert hold(queue) == {"g"}


def test_idle_time_adds_up_over_restarts_of_the_machine_without_the_time_it_was_off(
    tmp_path: Path,
) -> None:
    clock = penstock.ManualClock()
    for is_last in (False, False, True):
        with open_format(tmp_path / "q", "penstock", clock) as queue:
            queue.group("g")
            queue.put(b"a")
            assert hold(queue) == {"g"}
            clock.advance(3 * DAY_S)
            assert bool(hold(queue)) is not is_last
        clock.restart(30 * DAY_S)


@pytest.mark.parametrize("format", ["penstock", "zbus", "beats"])
def test_a_clock_that_jumps_forward_makes_no_message_older(tmp_path: Path, format: str) -> None:
    clock = penstock.ManualClock()
    age = {"retention_age_s": DAY_S, "retain_unread": False}
    with open_format(tmp_path / "q", format, clock, **age) as queue:
        group = queue.group("g")
        for i in range(200):
            queue.put(b"%03d" % i + b"x" * 1000)
        clock.advance(1)
        clock.set_wall(clock.wall() + 10 * YEAR_S)
        assert queue.trim() == 0
        queue.put(b"after the jump")
        assert len(group.get_many(1000)) == 201
        clock.set_wall(clock.wall() - 10 * YEAR_S)
        clock.advance(2 * DAY_S)
        late = queue.group("late", start="earliest").get_many(1000)
        assert [message.body for message in late] == [b"after the jump"]


def test_after_the_clock_was_put_right_messages_age_as_they_should(tmp_path: Path) -> None:
    clock = penstock.ManualClock(wall_s=1000.0)
    with open_format(tmp_path / "q", "penstock", clock, retention_age_s=DAY_S) as queue:
        group = queue.group("g")
        queue.put(b"put in 1970")
        clock.set_wall(1_700_000_000.0)
        clock.advance(DAY_S / 2)
        queue.put(b"put later")
        clock.advance(DAY_S * 3 / 4)
        assert [message.body for message in group.get_many(9)] == [b"put later"]
        clock.advance(DAY_S)
        queue.group("late")
        assert queue.group("late").get_many(9) == []


@pytest.mark.parametrize("format", sorted(registry.MODULES))
def test_a_delay_that_nobody_saw_ends_though_the_clock_was_set_back(
    tmp_path: Path, format: str
) -> None:
    clock = penstock.ManualClock()
    with open_format(tmp_path / "q", format, clock) as queue:
        group = queue.group("g")
        queue.put(b"later", delay=60)
        clock.set_wall(clock.wall() - 10 * YEAR_S)
        assert group.get_many(9) == []
        clock.advance(59)
        assert group.get_many(9) == []
        clock.advance(2)
        assert [message.body for message in group.get_many(9)] == [b"later"]


GET = """
import penstock, sys
with penstock.Queue(sys.argv[1]) as queue:
    print(len(queue.group("g").get_many(9)))
"""


def test_a_lease_runs_in_every_time_namespace(tmp_path: Path) -> None:
    shifted = ["unshare", "-T", "--boottime", "100000"]
    try:
        subprocess.run([*shifted, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no time namespaces for this user")
    with penstock.Queue(tmp_path / "q") as queue:
        queue.put(b"once")
        message = queue.group("g", visibility_s=3600).get(0)
        command = [*shifted, sys.executable, "-c", GET, str(tmp_path / "q")]
        assert subprocess.run(command, check=True, capture_output=True).stdout == b"0\n"
        message.ack()
