"""A queue whose folder is moved away while it is open, and another queue made at its path: the
other one is left as it is, and whatever a put had returned for is in the folder that was moved.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import NoQueueError, PenstockError, Queue, StorageError
from penstock.formats import registry
from tests.opening import open_queue, path_for


def contents(folder: Path) -> dict[str, tuple[int, str]]:
    """Every file below it: which one it is, and what is in it."""
    return {
        str(file.relative_to(folder)): (
            file.stat().st_ino, hashlib.sha256(file.read_bytes()).hexdigest(),
        )
        for file in folder.rglob("*")
        if file.is_file()
    }  # fmt: skip


def body(text: str, number: int) -> bytes:
    return f"{text} {number:04d} ".encode() * 20


def filled(path: Path, format: str, text: str) -> Queue:
    queue = open_queue(path, format=format)
    queue.group("default"), queue.group("gets", ack="auto")
    for number in range(20):
        queue.put(body(text, number))
    for message in queue.get_many(5):
        message.ack()
    return queue


def put_on(queue: Queue) -> int:
    """As many as can be; a ring needs no new file, and is full at some time."""
    for number in range(500):
        try:
            if queue.store.capabilities.ring and number == 20:
                return number
            queue.put(body("more", number))
        except (StorageError, NoQueueError):
            return number
    raise AssertionError("it never began a segment")


def get(queue: Queue) -> None:
    for message in queue.get_many(200):
        message.ack()


EVERYTHING: dict[str, Callable[[Queue], object]] = {
    "getting": get,
    "a new journal": lambda queue: queue.group("default").core.checkpoint(),
    "getting each": lambda queue: queue.group("gets").get_many(200),
    "a new group": lambda queue: queue.group("new"),
    "deleting a group": lambda queue: queue.group("gets").delete(),
    "a sync": lambda queue: queue.sync(),
    "tending": lambda queue: queue.store.tend(),
    "preparing": lambda queue: queue.store.prepare_ahead(),
    "retention": lambda queue: queue.retain(),
    "a trim": lambda queue: queue.trim("latest"),
    "a purge": lambda queue: queue.purge(),
    "options": lambda queue: queue.set_options(max_message_bytes=5000),
    "closing": lambda queue: queue.close(),
}


def use(queue: Queue) -> None:
    """Everything that makes, writes or deletes files; it may be refused."""
    for what, work in EVERYTHING.items():
        try:
            work(queue)
        except PenstockError:
            continue
        except BaseException as error:
            error.add_note(what)
            raise


@pytest.mark.parametrize("format", registry.MODULES)
def test_a_queue_that_took_the_place_of_an_open_one_stays_as_it_is(
    tmp_path: Path, format: str
) -> None:
    live, away = tmp_path / "live", tmp_path / "away"
    live.mkdir()
    old = filled(path_for(live, format), format, "old")
    live.rename(away)
    live.mkdir()
    filled(path_for(live, format), format, "new").close()
    before = contents(live)
    count = put_on(old)
    use(old)
    assert contents(live) == before
    with open_queue(path_for(away, format), format=format) as queue:
        there = {message.body for message in queue.scan()}
    if not queue.store.capabilities.deletes_consumed:
        assert {body("old", n) for n in range(20)} | {
            body("more", n) for n in range(count)
        } <= there


@pytest.mark.parametrize("format", registry.MODULES)
def test_nothing_is_made_at_the_path_of_an_open_queue_that_was_moved_away(
    tmp_path: Path, format: str
) -> None:
    live = tmp_path / "live"
    live.mkdir()
    old = filled(path_for(live, format), format, "old")
    live.rename(tmp_path / "away")
    live.mkdir()
    put_on(old)
    use(old)
    assert contents(live) == {}


@pytest.mark.parametrize("format", registry.MODULES)
def test_a_queue_that_was_moved_and_came_back_goes_on(tmp_path: Path, format: str) -> None:
    live, away = tmp_path / "live", tmp_path / "away"
    live.mkdir()
    with filled(path_for(live, format), format, "old") as queue:
        live.rename(away)
        with contextlib.suppress(PenstockError):
            queue.store.tend()
        away.rename(live)
        for number in range(60):
            queue.put(body("more", number))
            for message in queue.get_many(10):
                message.ack()
            queue.group("gets").get_many(100)  # Else a ring is full soon.
        assert queue.verify().is_ok
