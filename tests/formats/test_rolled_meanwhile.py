"""Others fill segments, begin new ones and trim the old between any two looks at them."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import Queue, _core
from penstock.disk import files
from penstock.formats.values import SegmentInfo
from penstock.options import DurabilityName
from tests.formats.checks import filler

KINDS: dict[str, dict[str, Any]] = {
    "penstock": {"format": "penstock"},
    "zbus": {"format": "zbus"},
    "mfq": {"format": "mfq"},
    "beats": {"format": "beats"},
    "beats-stream": {"format": "beats", "layout": "2-released-lz4"},
}
OPTIONS: dict[str, Any] = {"segment_bytes": 16 << 10, "durability": "process"}
Pair = tuple[Queue, Queue]


@pytest.fixture(params=KINDS)
def queues(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    """Two openings of a queue; the first one has put last."""
    path, given = tmp_path / "queue", KINDS[request.param]
    with Queue(path, **OPTIONS, **given) as one, Queue(path, **OPTIONS) as other:
        other.put(filler(0, 100))
        one.put(filler(1, 100))
        yield one, other


def fill(queue: Queue, *, trims: bool) -> None:
    """Three segments are begun; all but the last are deleted."""
    for number in range(100, 150):
        queue.put(filler(number, 1000))
    if trims:
        queue.store.trim(queue.offsets().tail)


def meanwhile(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, act: Callable[[], object]
) -> list[bool]:
    """The next call of `owner.name` comes too late."""
    usual = getattr(owner, name)
    done: list[bool] = []

    def late(*arguments: Any, **options: Any) -> Any:
        if not done:
            done.append(True)
            act()
        return usual(*arguments, **options)

    monkeypatch.setattr(owner, name, late)
    return done


def numbers(queue: Queue) -> list[int]:
    return [int(message.body[:6]) for message in queue.scan()]


def test_a_sync_in_which_segments_begin_leaves_one_that_can_be_appended_to(
    queues: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = queues
    meanwhile(monkeypatch, one.store, "segments_above", lambda: fill(other, trims=False))
    list(one.store.unsynced_segments(0))
    one.put(filler(2, 100))
    assert numbers(other) == [0, 1, *range(100, 150), 2]


def test_a_put_goes_to_the_last_segment_also_when_the_one_it_meant_is_gone(
    queues: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = queues
    fill(other, trims=False)  # So that the put has to open another segment.
    done = meanwhile(monkeypatch, one.store, "open_whole", lambda: fill(other, trims=True))
    if one.store.format.name == "beats":
        done = meanwhile(
            monkeypatch, one.store.format, "open_segment", lambda: fill(other, trims=True)
        )
    one.put(filler(2, 100))
    assert done
    assert numbers(one)[-2:] == numbers(other)[-2:] == [149, 2]


def test_a_queue_is_opened_although_its_last_segment_goes_meanwhile(
    queues: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = queues
    done = meanwhile(
        monkeypatch, type(one.store.format), "open_segment", lambda: fill(other, trims=True)
    )
    with Queue(one.path, **OPTIONS) as third:
        third.put(filler(3, 100))
        assert done
        assert numbers(third)[-1] == numbers(other)[-1] == 3


def test_a_queue_is_opened_although_its_oldest_segment_goes_meanwhile(
    queues: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = queues
    fill(other, trims=False)
    trim = lambda: other.store.trim(other.offsets().tail)  # noqa: E731
    meanwhile(monkeypatch, type(one.store), "segments", trim)
    names = {"penstock": "read_page", "beats": "identify", "mfq": "identity_of"}
    if one.store.format.name in names:
        module = __import__(f"penstock.formats.{one.store.format.name}.segments", fromlist=["*"])
        meanwhile(
            monkeypatch, module, names[one.store.format.name], lambda: fill(other, trims=True)
        )
    for read_only in (False, True):
        with Queue(one.path, read_only=read_only, **OPTIONS) as third:
            assert numbers(third) == numbers(other)


def test_a_roll_goes_on_although_the_last_segment_goes_meanwhile(
    queues: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = queues
    base = one.offsets().segment_base
    act = lambda: fill(other, trims=True)  # noqa: E731
    meanwhile(monkeypatch, one.store.format, "prepare_segment", act)
    if one.store.format.name == "penstock":
        meanwhile(monkeypatch, files, "read_start", act)  # Of the header that the next one names.
    one.store.roll(base, 0)
    one.put(filler(2, 100))
    assert numbers(other)[-2:] == [149, 2]


def test_a_sync_passes_over_what_was_the_last_segment_and_is_trimmed(
    queues: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = queues
    fill(other, trims=False)
    one.store._opened.clear()
    last = one.offsets().segment_base
    opened = one.store.open_listed

    def open_late(info: SegmentInfo) -> _core.Segment:
        if info.base == last and not done:
            done.append(True)
            fill(other, trims=True)
        return opened(info)

    done: list[bool] = []
    monkeypatch.setattr(one.store, "open_listed", open_late)
    one.sync()
    assert done
    assert one.offsets().durable == one.offsets().tail


def test_what_one_thread_finds_trimmed_another_may_have_noticed_before(
    queues: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = queues
    fill(other, trims=False)
    start = one.offsets().head
    one.store.segments()
    one.store._opened.clear()

    def trim_and_notice() -> None:
        other.store.trim(other.offsets().tail)
        one.store.segments(fresh=True)  # Another thread of this opening.

    done = meanwhile(monkeypatch, one.store.format, "open_segment", trim_and_notice)
    assert one.store.segment_at(start).base == other.store.segments(fresh=True)[0].base
    assert done


def test_trimming_twice_at_once_is_fine_also_for_the_last_segment_listed(
    queues: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = queues
    fill(other, trims=False)
    done = meanwhile(monkeypatch, one.store.format, "describe", lambda: fill(other, trims=True))
    one.store.trim(one.offsets().segment_base)
    assert done
    assert one.offsets().head == other.offsets().head
    assert one.verify().is_ok


def test_a_verify_in_which_segments_begin_finds_nothing_wrong(
    queues: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = queues
    done = meanwhile(monkeypatch, one.store, "segments", lambda: fill(other, trims=False))
    assert one.verify().is_ok
    one.put(filler(2, 100))
    assert done
    assert numbers(one)[-1] == numbers(other)[-1] == 2


@pytest.mark.parametrize("kind", [*KINDS, "vqs"])
def test_who_only_reads_sees_what_was_put_after_it_looked(tmp_path: Path, kind: str) -> None:
    options = KINDS.get(kind, {"format": kind})
    path = tmp_path / "queue.bin"
    size: dict[str, Any] = {} if kind == "vqs" else {"segment_bytes": 16 << 10}
    with Queue(path, durability="process", **size, **options) as queue:
        queue.put(filler(0, 100))
    with Queue(path, read_only=True) as reader:
        assert numbers(reader) == [0]
        for start in (1, 60):
            with Queue(path, durability="process", **size) as queue:
                for number in range(start, start + 59):
                    queue.put(filler(number, 1000))
                assert numbers(reader) == list(range(start + 59))
            assert numbers(reader) == list(range(start + 59))
            assert reader.verify().is_ok


def test_a_segment_that_began_since_is_not_taken_for_the_one_that_threads_share(
    queues: Pair,
) -> None:
    one, other = queues
    fill(other, trims=False)
    last = one.store.segments()[-1]
    assert last.end is None
    fill(other, trims=False)
    one.store.open_listed(last)
    assert one.store._opened.get(last.base) is None


@pytest.mark.parametrize("kind", ["zbus", "mfq"])
@pytest.mark.parametrize("second", ["always", "process"])
def test_a_sync_undoes_nothing_of_what_was_put_meanwhile(kind: str, second: DurabilityName) -> None:
    """On a disk, where a sync takes its time."""
    told: list[int] = []
    faults: list[BaseException] = []

    def work(queue: Queue, start: int) -> None:
        try:
            for number in range(start, start + 60):
                queue.put(filler(number, 200))
                told.append(number)
        except BaseException as error:
            faults.append(error)

    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        options: dict[str, Any] = {"format": kind, "segment_bytes": 16 << 10}
        path = Path(folder) / "queue"
        with (
            Queue(path, durability="always", **options) as one,
            Queue(path, durability=second, **options) as other,
        ):
            starts = [(one, 0), (one, 1000), (other, 2000), (other, 3000)]
            threads = [threading.Thread(target=work, args=given) for given in starts]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert not faults
            assert sorted(numbers(other)) == sorted(told)
        with Queue(path, durability="process", **options) as queue:
            assert sorted(numbers(queue)) == sorted(told)
            assert queue.verify().is_ok


def test_what_was_the_last_segment_once_may_have_been_trimmed_since(queues: Pair) -> None:
    one, _ = queues
    last = one.store.segments(fresh=True)[-1]
    assert not one.store.is_trimmed(last)
    fill(one, trims=True)
    assert one.store.is_trimmed(last)


def test_a_segment_that_ends_while_a_sync_lists_is_synced_up_to_its_end(
    queues: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = queues
    fill(one, trims=False)  # So that a sync lists segments.
    done = meanwhile(monkeypatch, one.store, "segments_above", lambda: fill(other, trims=False))
    one.sync()
    assert done
    assert one.offsets().durable == one.offsets().tail
