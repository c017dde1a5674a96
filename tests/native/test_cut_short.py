"""A file that is cut short under its mapping is an error, not the death of the process."""

from __future__ import annotations

import faulthandler
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from penstock import Empty, Group, PenstockError, PoisonedError, Queue, StorageError
from penstock.options import AckMode
from tests.opening import open_queue
from tests.waiting import LONG_S


def filled(path: Path) -> Queue:
    queue = Queue(path, durability="process")
    queue.put_many([bytes(1000)] * 200)
    return queue


def cut(queue: Queue) -> Path:
    segment = queue.store.segments(fresh=True)[-1].path
    os.truncate(segment, 8192)
    return segment


def drain(group: Group) -> None:
    for _ in range(200):
        group.get(timeout=0)


@pytest.mark.parametrize("ack", ["auto", "lease"])
def test_get_raises_when_the_segment_was_cut(tmp_path: Path, ack: AckMode) -> None:
    queue = filled(tmp_path / "q")
    group = queue.group("g", ack=ack)
    segment = cut(queue)
    with pytest.raises(StorageError, match=segment.name):
        drain(group)


def test_an_ack_raises_when_the_journal_was_cut_and_comes_again(tmp_path: Path) -> None:
    queue = filled(tmp_path / "q")
    group = queue.group("g")
    one, two = group.get_many(2)
    (journal,) = (queue.store.sidecar / "groups" / "g").glob("journal-*")
    os.truncate(journal, 0)
    with pytest.raises(StorageError, match=journal.name):
        one.ack()
    with pytest.raises(PenstockError):
        two.ack()
    queue.close()
    with Queue(tmp_path / "q") as again:
        assert len(again.group("g").get_many(300)) == 200


@pytest.mark.parametrize("format", ["penstock", "zbus", "mfq"])  # vqs copies what it finds
@pytest.mark.parametrize("is_followed", [False, True])
def test_a_body_that_ends_in_zeros_is_not_made_up_of_what_lies_behind_a_cut(
    tmp_path: Path, format: str, is_followed: bool
) -> None:
    marker = b"not zero" * 10
    with Queue(tmp_path / "q", format=format, durability="process") as queue:
        queue.put_many([marker + bytes(100)] * (2 if is_followed else 1))
        queue.sync()  # Else the close has to, and can't.
        group = queue.group("g", ack="auto")
        whole, cut = group.get(timeout=0), queue.group("h", ack="auto").get(timeout=0)
        assert whole.body == marker + bytes(100)
        segment = queue.store.segments(fresh=True)[-1].path
        os.truncate(segment, segment.read_bytes().index(marker) + 8)  # Its page stays.
        with pytest.raises(StorageError, match="cut short"):
            cut.body  # noqa: B018


def test_scan_raises_when_the_segment_was_cut(tmp_path: Path) -> None:
    queue = filled(tmp_path / "q")
    scan = queue.scan()
    cut(queue)
    with pytest.raises(StorageError, match="cut short"):
        list(scan)


def test_an_arrow_reader_raises_when_the_segment_was_cut(tmp_path: Path) -> None:
    queue = filled(tmp_path / "q")
    scan = queue.scan()
    cut(queue)
    with pytest.raises(pa.ArrowInvalid, match="cut short"):
        pa.table(scan)


def test_put_raises_when_the_segment_was_cut_and_nothing_more_is_accepted(tmp_path: Path) -> None:
    queue = filled(tmp_path / "q")
    cut(queue)
    with pytest.raises(StorageError, match="cut short"):
        queue.put(b"x")
    with pytest.raises(PoisonedError):
        queue.put(b"x")


def test_the_guard_takes_the_signal_back_from_a_library_that_took_it(tmp_path: Path) -> None:
    with filled(tmp_path / "before"):
        faulthandler.disable()
        faulthandler.enable()  # As pytest and Spark's workers do, at any time.
        queue = filled(tmp_path / "q")
        cut(queue)
        with pytest.raises(StorageError, match="cut short"):
            list(queue.scan())


MANY_MAPPINGS = """
import os, resource, sys
from penstock import Queue, StorageError
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
queue = Queue(sys.argv[1], durability="process")
queue.put_many([bytes(1000)] * 200)
(segment,) = queue.store.segments(fresh=True)
count = min(3000, most - 100)
others = [queue.store.format.open_segment(segment, writable=False) for _ in range(count)]
scan = Queue(sys.argv[1]).scan()
os.truncate(segment.path, 8192)
try:
    list(scan)
except StorageError as error:
    print(count, "mappings:", error)
"""


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_a_mapping_behind_thousands_of_others_is_guarded_too(tmp_path: Path) -> None:
    done = run(MANY_MAPPINGS, str(tmp_path / "q"))
    assert done.returncode == 0, done.stderr
    assert "cut short" in done.stdout


FOREIGN_FAULT = """
import mmap, os, sys
from penstock import Queue
if sys.argv[2] == "faulthandler":
    import faulthandler
    faulthandler.enable()
Queue(sys.argv[1]).put(b"x")
with open(sys.argv[1] + ".foreign", "w+b") as file:
    file.truncate(8192)
    memory = mmap.mmap(file.fileno(), 8192)
    file.truncate(0)
    memory[5000]
"""


@pytest.mark.parametrize("who", ["faulthandler", "nobody"])
def test_a_bus_error_that_is_not_ours_ends_the_process_as_without_us(
    tmp_path: Path, who: str
) -> None:
    done = run(FOREIGN_FAULT, str(tmp_path / "q"), who)
    assert done.returncode == -signal.SIGBUS
    assert ("Bus error" in done.stderr) == (who == "faulthandler")


OUTLIVED = """
import faulthandler, os, sys
from pathlib import Path
from penstock import Queue
faulthandler.enable()
with Queue(sys.argv[1]) as queue:
    queue.put(b"one")
    message = queue.get(0)
os.truncate(Path(sys.argv[1]) / ".penstock" / "groups" / "default" / "table", 0)
faulthandler.disable()  # Puts back the handler that was there before ours.
"""


def test_a_message_that_outlives_its_queue_and_its_group_s_files_ends_in_peace(
    tmp_path: Path,
) -> None:
    done = subprocess.run([sys.executable, "-c", OUTLIVED, tmp_path / "q"], check=False)
    assert done.returncode == 0


def each_step(queue: Queue, groups: list[Group]) -> Iterator[Callable[[], object]]:
    """All that a program may do next."""
    lease, auto = groups
    yield lambda: queue.put(b"more", delay=1)
    yield lambda: queue.put_many([b"and", b"more"])
    yield lambda: [message.body for message in lease.get_many(3)]
    yield lambda: lease.get(0).ack()
    yield lambda: lease.get(0).nack()
    yield lambda: auto.get(0).body
    yield lambda: [message.body for message in queue.scan(tolerant=True)]
    yield lambda: (lease.stats(), auto.stats(), queue.stats())
    yield lambda: lease.core.checkpoint()
    yield lambda: auto.seek("earliest")
    yield lambda: queue.group("later").get(0)
    yield queue.sync
    yield queue.verify
    yield lambda: queue.trim("latest")
    yield lambda: queue.put(b"the last")


OVER = "there is no such file"


def use_after_a_cut(queue: Queue, groups: list[Group], path: Path, to: int) -> list[str]:
    """What is wrong with how a process goes on."""
    os.truncate(path, to)
    wrong = []
    for step in [*each_step(queue, groups), queue.close]:
        try:
            step()
        except (PenstockError, Empty):
            pass
        except Exception as error:
            wrong.append(f"{type(error).__name__}: {error}")
    return wrong


def in_a_child(work: Callable[[], list[str]]) -> list[str]:
    """What `work` answers in a forked child that may die of it."""
    reading, writing = os.pipe()
    if not (child := os.fork()):
        signal.alarm(LONG_S)
        try:
            told = work()
        except BaseException as error:
            told = [f"{type(error).__name__}: {error}"]
        os.write(writing, "\n".join(told).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read().decode().splitlines()
    status = os.waitpid(child, 0)[1]
    return [*told, *([f"signal {os.WTERMSIG(status)}"] if os.WIFSIGNALED(status) else [])]


@pytest.mark.parametrize("to", [0, 8, 4096])
@pytest.mark.parametrize("format", ["penstock", "zbus", "beats", "vqs", "mfq"])
def test_whichever_file_is_cut_short_every_call_ends_in_an_answer(
    tmp_path: Path, format: str, to: int
) -> None:
    def trial(number: int, folder: Path) -> list[str]:
        folder.mkdir()
        queue = open_queue(folder / "q.bin", format=format)
        groups = [queue.group("lease", max_receives=2), queue.group("auto", ack="auto")]
        queue.put_many([b"%04d" % i * 20 for i in range(30)])
        for message in groups[0].get_many(9):
            message.nack(delay=0.001)
        groups[1].get_many(20)
        files = sorted(
            one for one in folder.rglob("*") if one.is_file() and one.stat().st_size > to
        )
        if number == len(files):
            return [OVER]
        wrong = use_after_a_cut(queue, groups, files[number], to)
        return [f"{files[number].relative_to(folder)}: {one}" for one in wrong]

    wrong: list[str] = []
    for number in range(100):
        told = in_a_child(partial(trial, number, tmp_path / str(number)))
        shutil.rmtree(tmp_path / str(number))
        if told == [OVER]:
            break
        wrong += [f"{number} {one}" for one in told]
    assert number > 3
    assert wrong == []
