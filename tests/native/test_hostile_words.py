"""Whatever stands in the control block of an open queue: a typed error or an answer, never a panic,
a hang, or a put over messages that are there."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from penstock import CorruptError, PenstockError, Queue
from penstock.sidecar.control import CONTROL
from tests.waiting import words_of

FORMATS = ["penstock", "zbus", "mfq", "vqs", "beats"]
WORDS = [
    "lock", "sync_lock", "clean", "reserved_end", "reserved_number", "tail", "next_number",
    "segment_base", "head", "head_number", "waiters", "event", "dirty", "sync_asked", "room_wanted",
    "durable", "named_base", "generation", "openings",
]  # fmt: skip
NARROW = {"lock", "sync_lock", "clean", "waiters", "event", "dirty", "sync_asked", "openings"}
VALUES = [0, 7, 2**31, 2**40 + 8, 2**64 - 8, 2**64 - 1]
BODIES = [b"message %02d " % number + b"x" * 200 for number in range(8)]
LIMIT_S = 5


@contextmanager
def in_time() -> Iterator[None]:
    def too_long(*_: object) -> None:
        raise TimeoutError("it hangs")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(LIMIT_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def control(queue: Queue) -> Path:
    return queue.store.sidecar / "control"


def set_word(queue: Queue, name: str, value: int) -> None:
    size = 4 if name in NARROW else 8
    with control(queue).open("r+b", buffering=0) as block:
        block.seek(CONTROL.offset_of(name))
        block.write((value % (1 << 8 * size)).to_bytes(size, "little"))


def attempt(work: Callable[[], object]) -> None:
    """An error must be ours, or say which file is missing."""
    with suppress(PenstockError, FileNotFoundError):
        work()


def stored(path: Path) -> bytes:
    files = [path] if path.is_file() else [one for one in path.rglob("*") if one.is_file()]
    return b"".join(one.read_bytes() for one in files if ".penstock" not in str(one))


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("word", WORDS)
def test_no_word_of_a_live_queue_is_believed_blindly(
    tmp_path: Path, format: str, word: str
) -> None:
    for value in VALUES:
        use_with(tmp_path / f"queue-{value}.bin", format, word, value)


def use_with(path: Path, format: str, word: str, value: int) -> None:
    options = {"max_bytes" if format == "vqs" else "segment_bytes": 1 << 16}
    queue = Queue(path, format=format, durability="process", **options)  # type: ignore[arg-type]
    group = queue.group("g")
    for body in BODIES:
        queue.put(body)
    assert format == "beats" or all(body in stored(path) for body in BODIES)
    set_word(queue, word, value)
    with in_time():
        attempt(lambda: queue.put(b"more"))
        attempt(lambda: queue.put_many([b"more"] * 3))
        attempt(queue.sync)
        if word != "tail":
            attempt(lambda: group.get(0))
            attempt(lambda: list(queue.scan()))
    assert format == "beats" or all(body in stored(path) for body in BODIES), (word, value)
    queue.store.need_shared().abandon()
    with in_time():
        attempt(queue.close)
    shutil.rmtree(path, ignore_errors=True)
    path.unlink(missing_ok=True)


@pytest.mark.parametrize("format", FORMATS)
def test_a_tail_that_went_back_is_refused(tmp_path: Path, format: str) -> None:
    with Queue(tmp_path / "q.bin", format=format, durability="process") as queue:
        for body in BODIES:
            queue.put(body)
        tail = queue.store.need_shared().tail
        for name in ("tail", "reserved_end"):
            set_word(queue, name, 0)
        set_word(queue, "tail_check", 2**64 - 1)
        with pytest.raises(CorruptError, match=r"control:64: found tail 0"):
            queue.put(b"over the others")
        for name in ("tail", "reserved_end"):
            set_word(queue, name, tail)
        set_word(queue, "tail_check", 2**64 - 1 - tail)
        assert [message.body for message in queue.scan()] == BODIES


def test_a_tail_that_nobody_stored_is_refused_by_who_comes_later(tmp_path: Path) -> None:
    path = tmp_path / "queue"
    with Queue(path, durability="process") as first:
        for body in BODIES:
            first.put(body)
        set_word(first, "tail", first.offsets().head)
        with Queue(path, durability="process") as second, pytest.raises(CorruptError):
            second.put(b"over the others")
        set_word(first, "tail", words_of(first.store.need_shared())["reserved_end"])
        assert [message.body for message in first.scan()] == BODIES


def test_a_sync_does_not_believe_that_more_was_synced_than_there_is(tmp_path: Path) -> None:
    with Queue(tmp_path / "queue", durability="process") as queue:
        queue.put(b"1")
        set_word(queue, "durable", 2**63)
        with pytest.raises(CorruptError, match="durable"):
            queue.sync()
        set_word(queue, "durable", 0)


def test_a_deleted_queue_is_noticed_at_the_next_sync(tmp_path: Path) -> None:
    for format in FORMATS:
        path = tmp_path / f"{format}.bin"
        queue = Queue(path, format=format, sync_interval_s=3600.0)
        queue.put(b"1")
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.rmtree(f"{path}.penstock", ignore_errors=True)
        with pytest.raises(PenstockError) as caught:
            queue.sync()
        assert "deleted" in str(caught.value.__cause__)
        with pytest.raises(PenstockError, match="was deleted"):
            queue.put(b"2")
        queue.close()
        assert not os.path.lexists(path)
