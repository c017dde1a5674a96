"""After a failed sync the kernel takes pages for written that never reached the disk. So whatever
no sync had reached is written to new places: messages, what is kept beside them, acks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock import Empty, ManualClock, PoisonedError, Queue, StorageError
from penstock.formats import registry
from tests.copies import copy_open
from tests.failing import failing_syncs
from tests.formats.beats.helpers import KEY
from tests.opening import open_queue

pytestmark = pytest.mark.crash
PAGE = 4096


def body(number: int) -> bytes:
    return b'{"n":%d}' % number


def fail_a_sync(queue: Queue) -> None:
    """And close the queue, which is of no use any more."""
    with failing_syncs(), pytest.raises(PoisonedError):
        queue.sync()
    queue.close()


@pytest.mark.parametrize("format", list(registry.MODULES))
def test_keys_and_due_times_stay(tmp_path: Path, format: str) -> None:
    clock = ManualClock()
    queue = open_queue(tmp_path / "q", format=format, clock=clock)
    queue.put(body(0), key="synced")
    queue.sync()
    queue.put(body(1), key="in doubt")
    queue.put(body(2), key="delayed", delay=60)
    fail_a_sync(queue)
    with Queue(tmp_path / "q", create=False, clock=clock) as queue:
        assert [message.key for message in queue.scan()] == ["synced", "in doubt", "delayed"]
        group = queue.group()
        assert [group.get(0).body, group.get(0).body] == [body(0), body(1)]
        with pytest.raises(Empty):
            group.get(0)
        assert queue.verify().is_ok


@pytest.mark.parametrize(
    ("options", "beside"),
    [
        ({"format": "zbus"}, [".penstock/extras/*.ext", ".penstock/integrity/*.crc"]),
        ({"format": "mfq"}, [".penstock/extras/*.ext", ".penstock/integrity/*.crc"]),
        ({"format": "beats", "layout": "2-released-lz4"}, [".penstock/plain/0.plain"]),
        ({"format": "beats", "layout": "2", "key": KEY, "tamper_evident": True}, ["0.seg.mac"]),
    ],
)
def test_what_is_kept_beside_messages_is_written_anew(
    tmp_path: Path, options: dict[str, Any], beside: list[str]
) -> None:
    queue = open_queue(tmp_path / "q", **options)
    for number in range(2):
        queue.put(body(number), key="k")
    files = [file for name in beside for file in (tmp_path / "q").glob(name)]
    held = [file.open("rb") for file in files]  # Else a new file may get the inode of an old one.
    before = [file.stat().st_ino for file in files]
    fail_a_sync(queue)
    with Queue(tmp_path / "q", create=False, key=options.get("key")) as queue:
        assert [message.body for message in queue.scan()] == [body(0), body(1)]
        assert queue.verify().is_ok
    for stream in held:
        stream.close()
    assert len(files) == len(beside)
    assert not {file.stat().st_ino for file in files if file.exists()} & {*before}


@pytest.mark.parametrize("format", ["penstock", "zbus", "beats", "mfq"])
def test_segments_that_were_synced_stay_where_they_are(tmp_path: Path, format: str) -> None:
    queue = open_queue(tmp_path / "q", format=format)
    text = "x" * 6000
    for number in range(9):
        queue.put(b'{"n":%d,"text":"%s"}' % (number, text.encode()))
    queue.sync()
    queue.store.tend()  # Else the maintenance thread seals full segments later on.
    first = queue.store.segments()[0].path
    assert len(queue.store.segments()) > 2
    before, stamp = first.stat().st_ino, first.stat().st_mtime_ns
    queue.put(body(9))
    fail_a_sync(queue)
    with Queue(tmp_path / "q", create=False) as queue:
        assert (first.stat().st_ino, first.stat().st_mtime_ns) == (before, stamp)
        assert len(list(queue.scan())) == 10
        assert queue.verify().is_ok


def on_the_disk(synced: bytes, opened: bytes, now: bytes) -> bytes:
    """Of a file that was gone on with: pages that changed since it was opened were synced with what
    stands in them; the others are as the last good sync left them."""
    places = range(0, len(now), PAGE)
    pages = [(now if now[at : at + PAGE] != opened[at : at + PAGE] else synced) for at in places]
    return b"".join(page[at : at + PAGE] for at, page in zip(places, pages, strict=True))


def test_an_ack_holds_although_acks_before_it_never_reached_the_disk(tmp_path: Path) -> None:
    """Whatever the sync that failed has lost, the next one does not write it either."""
    path, clock = tmp_path / "q", ManualClock()
    queue = Queue(path, durability="process", clock=clock)
    queue.put_many([body(number) for number in range(300)])
    group = queue.group()
    queue.sync()
    group.core.sync()
    (journal,) = (path / ".penstock" / "groups" / "default").glob("journal-*")
    synced, inode = journal.read_bytes(), journal.stat().st_ino
    for message in group.get_many(250):
        message.ack()
    with failing_syncs(), pytest.raises(StorageError):
        group.core.sync()
    assert queue.is_poisoned
    queue.close()
    with journal.open("rb"), Queue(path, durability="always", clock=clock) as queue:
        # The old file is open: else a new one may get its inode.
        group, opened = queue.group(), journal.read_bytes()
        group.get(0).ack()
        cut = copy_open(path, tmp_path / "cut")
        if journal.stat().st_ino == inode:
            lost = on_the_disk(synced, opened, journal.read_bytes())
            (cut / journal.relative_to(path)).write_bytes(lost)
    clock.restart()
    with Queue(cut, clock=clock) as queue:
        assert queue.group().get(0).body == body(251)
