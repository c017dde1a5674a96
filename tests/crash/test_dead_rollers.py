"""A process dies while it begins a segment, at each store of a roll; the others live on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import Queue
from penstock.sidecar.control import ROLLING
from tests.lockwords import set_control
from tests.reading import bodies

NOBODY = 1 << 12 | 77
"""A name that no opener has."""
KINDS: dict[str, dict[str, Any]] = {
    "penstock": {"format": "penstock"},
    "penstock-encrypted": {"format": "penstock", "key": bytes(range(32))},
    "zbus": {"format": "zbus"},
    "mfq": {"format": "mfq"},
    "beats": {"format": "beats"},
    "beats-encrypted": {"format": "beats", "layout": "2", "key": bytes(range(16))},
    "beats-stream": {"format": "beats", "layout": "2-released-lz4"},
}
STEPS = ("announced", "noted", "named", "entered", "told", "moved")


@pytest.fixture(params=KINDS)
def given(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {"segment_bytes": 16384, "durability": "process", **KINDS[request.param]}


@pytest.fixture
def queues(tmp_path: Path, given: dict[str, Any]) -> Iterator[tuple[Queue, Queue]]:
    with Queue(tmp_path / "q", **given) as dying, Queue(tmp_path / "q", **given) as living:
        living.put(b"zero")
        dying.put(b"one")
        yield dying, living


def die_in_a_roll(queue: Queue, step: str) -> None:
    """Leaves the words and files as they are when the process dies right after `step`."""
    store, shared, end = queue.store, queue.store.need_shared(), queue.offsets()
    old: dict[str, int] = {"segment_base": end.segment_base, "tail": end.tail}
    number = shared.next_number
    rolling = {"reserved_end": ROLLING, "lock": NOBODY}
    if step in ("announced", "noted"):
        noted = number if step == "announced" else end.segment_base
        set_control(queue.path, reserved_number=noted, **rolling)
        return
    prepared, new = store.format.prepare_segment(end.tail, number, 0)
    if step == "named":
        prepared.rename(new.path)
    else:
        assert store.need_writer().switch(
            old_base=end.segment_base, tail=end.tail, number=number, path=new.path,
            prepared=prepared, base=new.base, first=new.first, closing=new.closing,
            header=new.header,
        )  # fmt: skip
    if step == "told":
        del old["segment_base"]
    elif step == "moved":
        old.clear()
    set_control(queue.path, reserved_number=end.segment_base, **rolling, **old)


@pytest.mark.parametrize("step", STEPS)
def test_the_living_lose_nothing_and_go_on(
    queues: tuple[Queue, Queue], given: dict[str, Any], step: str
) -> None:
    dying, living = queues
    group = living.group("readers")
    die_in_a_roll(dying, step)
    assert bodies(living) == [b"zero", b"one"]
    with Queue(living.path, read_only=True, key=given.get("key")) as reader:
        assert bodies(reader) == [b"zero", b"one"]
    assert living.verify().is_ok
    assert [message.body for message in group.get_many(9)] == [b"zero", b"one"]
    living.put(b"two")
    living.sync()
    assert bodies(living) == [b"zero", b"one", b"two"]
    with Queue(living.path, **given) as newcomer:
        newcomer.put(b"three")
        assert bodies(newcomer) == bodies(living) == [b"zero", b"one", b"two", b"three"]
        assert newcomer.verify().is_ok
    assert [message.body for message in group.get_many(9)] == [b"two", b"three"]


@pytest.mark.parametrize("step", STEPS)
def test_the_last_one_closes_and_the_next_finds_everything(
    tmp_path: Path, given: dict[str, Any], step: str
) -> None:
    path = tmp_path / "q"
    dying, living = Queue(path, **given), Queue(path, **given)
    living.put(b"zero")
    dying.put(b"one")
    die_in_a_roll(dying, step)
    dying.store.need_shared().abandon()
    living.close()
    with Queue(path, **given) as again:
        assert bodies(again) == [b"zero", b"one"]
        again.put(b"two")
        assert bodies(again) == [b"zero", b"one", b"two"]
        assert again.verify().is_ok


def test_a_segment_that_was_sealed_in_a_roll_that_never_ended_is_sealed_anew(
    tmp_path: Path,
) -> None:
    options: dict[str, Any] = {"segment_bytes": 16384, "durability": "process"}
    dying = Queue(tmp_path / "q", **options)
    dying.put(b"one")
    die_in_a_roll(dying, "named")
    other = Queue(tmp_path / "q", **options)
    other.store.format.seal_quietly(other.store.segments())  # type: ignore[attr-defined]
    assert other.store.format.describe(other.store.segments()[0]).messages == 1
    for queue in (dying, other):
        queue.store.need_shared().abandon()
    with Queue(tmp_path / "q", **options) as queue:
        queue.put(b"two")
        queue.store.roll(0, 0)
        queue.store.format.tend()
        assert queue.store.format.describe(queue.store.segments()[0]).messages == 2
