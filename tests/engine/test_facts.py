"""Lag and counts are the same whoever asks: an open queue, a look at its files, a table."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import penstock
from penstock.engine import facts, overview
from penstock.formats import registry


@pytest.mark.parametrize("format", sorted(registry.MODULES))
def test_an_open_queue_and_a_look_at_it_say_the_same(tmp_path: Path, format: str) -> None:
    path = tmp_path / ("q.bin" if format == "vqs" else "q")
    sizes = {"max_bytes": 1 << 20} if format == "vqs" else {"segment_bytes": 16384}
    with penstock.Queue(path, format=format, durability="process", **sizes) as queue:  # type: ignore[arg-type]
        group = queue.group("g")
        for _ in range(50):
            queue.put(b"x" * 1000)
        group.get(0).ack()
        group.get(0)
        ours, size = group.stats(), queue.stats()["bytes"]
        with penstock.Queue(path, create=False, read_only=True) as seen:
            theirs = overview.group_facts(seen.store, "g")
        assert {name: ours[name] for name in theirs} == theirs
        assert (ours["lag"], 48_000 < ours["lag_bytes"] <= size) == (48, True)


def test_the_lag_of_a_filtered_group_is_what_it_will_get(tmp_path: Path) -> None:
    with penstock.Queue(tmp_path / "q") as queue:
        group = queue.group("g", tags="eu.#")
        for i in range(20):
            queue.put(b"x", tag="eu.orders" if i % 5 == 0 else "us.orders")
        assert group.lag == 4
        group.get(0)
        assert group.lag == 3
        with penstock.Queue(tmp_path / "q", create=False, read_only=True) as seen:
            assert overview.group_facts(seen.store, "g")["lag"] == 3
        assert len(group.get_many(20)) == 3


def test_stats_of_a_queue_tell_of_every_group_whoever_has_it_open(tmp_path: Path) -> None:
    with penstock.Queue(tmp_path / "q") as queue:
        queue.put_many([b"a", b"b"])
        queue.group("billing").get(0).ack()
        for other in (
            penstock.Queue(tmp_path / "q"),
            penstock.Queue(tmp_path / "q", create=False, read_only=True),
        ):
            with other:
                (group,) = other.stats()["groups"]
                assert (group["name"], group["lag"], group["acked"]) == ("billing", 1, 1)


class Taken:
    """A group with one message, which a consumer takes as soon as one fact was asked for."""

    def __init__(self) -> None:
        self.lag_now, self.leased = 1, 0
        self.core: Any = self

    def _take(self) -> None:
        self.lag_now, self.leased = 0, 1

    @property
    def lag(self) -> int:
        unread = self.lag_now
        self._take()
        return unread

    def counts(self) -> dict[str, int]:
        counts = {"leased": self.leased, "delayed": 0, "ready": 0, "blocked": 0}
        self._take()
        return counts


def test_a_message_that_is_taken_while_one_counts_is_not_left_out() -> None:
    assert facts.waiting(Taken(), "leased", "ready") >= 1


def test_a_queue_of_the_standard_library_counts_it_as_unfinished(tmp_path: Path) -> None:
    with penstock.StandardQueue(tmp_path / "q") as queue:
        queue._group = Taken  # type: ignore[assignment, method-assign]
        assert queue.unfinished >= 1


def test_who_waits_for_all_tasks_of_dramatiq_waits_for_it(tmp_path: Path) -> None:
    pytest.importorskip("dramatiq")
    from penstock.dramatiq import PenstockBroker

    broker, jobs = PenstockBroker(tmp_path), SimpleNamespace(group=Taken())
    broker.folder = lambda: SimpleNamespace(jobs=lambda _: jobs)  # type: ignore[assignment]
    assert broker._unfinished("default") >= 1
