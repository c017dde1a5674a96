"""Another process trims the queue between any look at its segments and the use of what was seen."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import NoQueueError, Queue
from penstock.engine import facts
from tests.formats.checks import filler

FORMATS = ("penstock", "zbus", "mfq")


@pytest.fixture(params=FORMATS)
def queues(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Queue, Queue]]:
    """Two openings of a queue with several segments."""
    options: dict[str, Any] = {
        "segment_bytes": 16 << 10,
        "durability": "process",
        "retain_unread": False,
    }
    with Queue(tmp_path / "queue", format=request.param, **options) as one:
        for number in range(100):
            one.put(filler(number, 1000))
        with Queue(tmp_path / "queue", **options) as other:
            yield one, other


def meanwhile(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, other: Queue
) -> Callable[[], int]:
    """The next call of `owner.name` comes too late: `other` has trimmed first."""
    usual = getattr(owner, name)
    gone: list[int] = []

    def late(*arguments: Any, **options: Any) -> Any:
        if not gone:
            gone.append(other.trim("latest"))
        return usual(*arguments, **options)

    monkeypatch.setattr(owner, name, late)
    return lambda: gone[0]


def test_a_trim_that_another_overtakes_moves_the_head_not_back(
    queues: tuple[Queue, Queue], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = queues
    second = one.store.segments(fresh=True)[2].base
    for name in ("describe", "store_head"):
        with monkeypatch.context() as patch:
            gone = meanwhile(patch, one.store.format, name, other)
            one.trim(second)
        assert one.offsets() == other.offsets()
        assert one.offsets().head == other.store.segments(fresh=True)[0].first
        assert one.verify().is_ok
        if name == "describe":
            assert gone() > 2
            for number in range(100, 200):
                one.put(filler(number, 1000))
            second = one.store.segments(fresh=True)[2].base


def test_verify_passes_over_what_was_trimmed(
    queues: tuple[Queue, Queue], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = queues
    if one.store.format.name == "penstock":
        meanwhile(monkeypatch, one.store.format, "header_of", other)
    else:
        meanwhile(monkeypatch, one.store, "open_tolerantly", other)
    assert one.verify().is_ok


def test_a_get_goes_on_behind_what_was_trimmed(
    queues: tuple[Queue, Queue], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = queues
    group = one.group("readers", ack="auto")
    one.store._opened.clear()
    meanwhile(monkeypatch, one.store.format, "open_segment", other)
    first = int(group.get(0).body[:6])
    assert first > 0
    rest = [int(message.body[:6]) for message in group.get_many(1000)]
    assert [first, *rest] == list(range(first, 100))


@pytest.mark.parametrize("count", [len, Queue.stats, lambda queue: facts.disk_bytes(queue.store)])
def test_counting_passes_over_what_was_trimmed(
    queues: tuple[Queue, Queue], monkeypatch: pytest.MonkeyPatch, count: Callable[[Queue], object]
) -> None:
    one, other = queues
    for name in ("ranges", "segments"):
        with monkeypatch.context() as patch:
            meanwhile(patch, one.store, name, other)
            count(one)
    left = len(list(one.scan()))
    assert len(one) == left


def test_retention_plans_without_what_was_trimmed(
    queues: tuple[Queue, Queue], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = queues
    one.store.options = other.store.options
    gone = meanwhile(monkeypatch, one.store.format, "describe", other)
    one.trim("latest")
    assert gone() > 2
    assert one.verify().is_ok


def test_a_queue_that_someone_deleted_says_so(tmp_path: Path) -> None:
    queue = Queue(tmp_path / "queue", durability="process")
    queue.put(b"one")
    shutil.rmtree(queue.path)
    with pytest.raises(NoQueueError):
        queue.close()
