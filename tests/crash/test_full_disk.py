"""A full disk: an error that names the file and says what to do, and nothing is gone."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import Empty, Group, Queue, StorageError
from penstock.sidecar import prepared
from tests import counting
from tests.crash.killing import in_a_small_process

pytestmark = pytest.mark.crash
FORMATS: dict[str, dict[str, Any]] = {
    "penstock": {},
    "encrypted": {"key": bytes(range(32))},
    "zbus": {"format": "zbus"},
    "beats": {"format": "beats"},
    "mfq": {"format": "mfq"},
}
SIZES_KIB = range(64, 4096 + 4, 4)


class SmallDisk:
    """A file system in memory that can be made larger."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def mount(self, options: str) -> bool:
        command = ["mount", "-t", "tmpfs", "-o", options, "penstock-test", str(self.path)]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def grow(self) -> None:
        assert self.mount("remount,size=40m")

    def shrink(self, size_kib: int) -> None:
        """To this size, with nothing on it."""
        for one in self.path.iterdir():
            shutil.rmtree(one)
        assert self.mount(f"remount,size={size_kib}k")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    disk = SmallDisk(tmp_path / "disk")
    disk.path.mkdir()
    if not disk.mount("size=400k"):
        pytest.skip("this user may not mount a small file system")
    yield disk
    # Lazily: what a failed test still has open must not keep the mount.
    subprocess.run(["umount", "-l", str(disk.path)], check=True)


def body(number: int) -> bytes:
    return b"%06d" % number + bytes(1000)


def fill(queue: Queue) -> tuple[int, StorageError]:
    """Puts until nothing more fits."""
    for number in range(100_000):
        try:
            queue.put(body(number))
        except StorageError as error:
            return number, error
    raise AssertionError("the disk never became full")


def take(queue: Queue) -> list[int]:
    """Takes and acks what can be had; the disk may be too full for that."""
    taken: list[int] = []
    with contextlib.suppress(StorageError, Empty):
        while True:
            message = queue.get(0)
            taken.append(int(message.body[:6]))
            message.ack()
    return taken


def fill_and_go_on(path: Path, grow: Any, options: dict[str, Any], fewest: int = 10) -> None:
    options = options | {"durability": "process"}
    put, taken = 0, list[int]()
    with contextlib.ExitStack() as closing:
        # What a format writes when it is closed may not fit either; it says so and lets go.
        closing.enter_context(contextlib.suppress(StorageError))
        queue = closing.enter_context(Queue(path, **options))
        put, error = fill(queue)
        assert put > fewest
        assert error.errno in (errno.ENOSPC, errno.EFBIG)
        assert "free space" in str(error)
        assert path in error.path.parents or path == error.path
        with pytest.raises(StorageError):
            queue.put_many([body(500_000 + number) for number in range(2000)])
        taken = take(queue)
    grow()
    with Queue(path, **options) as queue:
        there = [int(message.body[:6]) for message in queue.scan()]
        if not queue.store.capabilities.deletes_consumed:
            assert there[:put] == list(range(put))
        assert queue.verify().is_ok
        queue.put(body(999_999))
        rest = take(queue)
        done = taken[:-1] if rest[:1] == taken[-1:] else taken  # Its ack may not have fitted.
        assert done + rest == [*range(put), *[n for n in there if n >= put], 999_999]


def test_nothing_is_prepared_of_what_the_next_put_may_need(disk: SmallDisk) -> None:
    with Queue(disk.path / "q", durability="process") as queue:
        queue.put(bytes(100_000))
        queue.store.prepare_ahead()
        assert not prepared.has_ready(queue.store.sidecar)
        queue.put(bytes(100_000))


def names(path: Path) -> set[str]:
    return {str(one.relative_to(path)) for one in path.rglob("*")}


@pytest.mark.parametrize("kind", FORMATS)
def test_what_is_tried_in_vain_on_a_full_disk_leaves_no_file(disk: SmallDisk, kind: str) -> None:
    """Each try once left an empty one until the queue was opened again."""
    options: dict[str, Any] = {"segment_bytes": 64 << 10, "durability": "process"} | FORMATS[kind]
    with contextlib.suppress(StorageError), Queue(disk.path / "q", **options) as queue:
        fill(queue)
        left = os.statvfs(disk.path).f_bavail
        (disk.path / "ballast").write_bytes(bytes(left * 4096))
        before: set[str] = set()
        for turn in range(4):
            for work in (lambda: queue.put(bytes(40_000)), queue.store.prepare_ahead):
                with contextlib.suppress(StorageError):
                    work()
            before = names(disk.path) if turn == 0 else before
        assert names(disk.path) - before == set()


@pytest.mark.parametrize("kind", FORMATS)
def test_a_full_disk_is_said_and_nothing_is_gone(disk: SmallDisk, kind: str) -> None:
    options = {"segment_bytes": 64 << 10} | FORMATS[kind]
    in_a_small_process(fill_and_go_on, disk.path / "q", disk.grow, options)


def fill_each(disk: SmallDisk, options: dict[str, Any], sizes: range) -> None:
    """Disks on which not even an empty queue has room are among them."""
    for size_kib in sizes:
        disk.shrink(size_kib)
        try:
            fill_and_go_on(disk.path / "q", disk.grow, options, fewest=-1)
        except BaseException as error:
            error.add_note(f"a disk of {size_kib} KiB")
            raise
        counting.count("full disks")


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", FORMATS)
def test_a_full_disk_of_any_size_is_said_and_nothing_is_gone(disk: SmallDisk, kind: str) -> None:
    options = {"segment_bytes": 64 << 10} | FORMATS[kind]
    in_a_small_process(fill_each, disk, options, SIZES_KIB)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_disk_that_is_too_small_for_a_queue_is_said(disk: SmallDisk, kind: str) -> None:
    options = {"segment_bytes": 64 << 10} | FORMATS[kind]
    in_a_small_process(fill_each, disk, options, range(8, 160, 24))


@pytest.mark.parametrize("durability", ["process", "always"])
def test_segments_shrink_to_what_is_left_on_a_small_disk(disk: SmallDisk, durability: Any) -> None:
    assert disk.mount("remount,size=6m")
    with Queue(disk.path / "q", durability=durability) as queue:
        count, error = fill(queue)
        assert "free space" in str(error)
        assert count * 1000 > 0.75 * 6e6
        assert len(queue) >= count
        assert queue.verify().is_ok
    with Queue(disk.path / "q") as queue:
        assert len(queue) >= count


def take_and_give_back(group: Group) -> None:
    """Each lease and each giving back is a record in the journal."""
    for _ in range(100_000):
        group.get(0).nack()


def limited(path: Path) -> None:
    """The same through a limit on the length of files, where nobody may mount anything."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    options = {"segment_bytes": 16 << 10, "durability": "process"}
    with Queue(path, **options) as queue:  # type: ignore[arg-type]
        queue.put_many([body(number) for number in range(300)])
        group = queue.group(max_in_flight=100_000)
        limit = max(file.stat().st_size for file in group.folder.glob("journal-*"))
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        taken: list[int] = []
        with pytest.raises(StorageError, match="free space") as caught:
            take_and_give_back(group)
        assert Path(caught.value.path).is_relative_to(group.folder)
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        while messages := group.get_many(50):
            taken += [int(message.body[:6]) for message in messages]
            for message in messages:
                message.ack()
        # A lease that was journaled and could not be entered ends with its timeout.
        out = [offset for offset, *_ in group.core.outstanding()]
        taken += [int(queue.message_at(offset).body[:6]) for offset in out]
        assert sorted(taken) == list(range(300))


def test_a_journal_that_can_not_grow_loses_no_message(tmp_path: Path) -> None:
    in_a_small_process(limited, tmp_path / "q")


def test_opening_on_a_full_disk_says_so(disk: SmallDisk) -> None:
    (disk.path / "ballast").write_bytes(bytes(os.statvfs(disk.path).f_bavail * 4096))
    with pytest.raises(StorageError, match="space"):
        Queue(disk.path / "q")
