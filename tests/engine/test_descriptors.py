"""Open files: whoever is done with a queue has none of its files open any more, and a program that
closes what it did not open finds none of its own files written to, cut or closed by a queue."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import Queue
from penstock.formats import registry
from tests.opening import path_for


def scan_all(path: Path) -> None:
    with Queue(path, read_only=True) as queue:
        assert len(list(queue.scan())) == 3


def scan_tolerantly(path: Path) -> None:
    with Queue(path, read_only=True) as queue:
        scan = queue.scan(tolerant=True)
        assert (len(list(scan)), scan.damage) == (3, [])


def scan_a_little(path: Path) -> None:
    next(iter(Queue(path, read_only=True).scan(tolerant=True)))


def verify(path: Path) -> None:
    with Queue(path, read_only=True) as queue:
        assert queue.verify().is_ok


def open_files() -> int:
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("work", [scan_all, scan_tolerantly, scan_a_little, verify])
@pytest.mark.parametrize("format", registry.MODULES)
def test_reading_leaves_no_file_open(
    tmp_path: Path, format: str, work: Callable[[Path], None]
) -> None:
    path = tmp_path / ("q.bin" if format == "vqs" else "q")
    with Queue(path, format=format) as queue:
        queue.put_many([b"a", b"b", b"c"])
    work(path)
    before = open_files()
    for _ in range(3):
        work(path)
    assert open_files() <= before


# ── who closes what is not theirs ──────────────────────────────────────────────────────────────

CLOSING = """
    import gc, os, sys, penstock

    folder, path, options = sys.argv[1], sys.argv[2], eval(sys.argv[3])
    TEXT = b"mine" * 2048

    class Files:
        def __init__(self):
            self.files = [open(f"{folder}/mine-{n}", "w+b", buffering=0) for n in range(64)]
            self.known = [os.fstat(file.fileno()).st_ino for file in self.files]
            for file in self.files:
                file.write(TEXT)

        def check(self, when):
            for file, known in zip(self.files, self.known):
                assert os.fstat(file.fileno()).st_ino == known, f"{when}: another file"
                assert os.pread(file.fileno(), 1 << 20, 0) == TEXT, f"{when}: other bytes"

    def fails(work, *arguments):
        try:
            work(*arguments)
        except penstock.PenstockError as error:
            return str(error)
        return None

    def end():
        sys.stdout.flush()
        os._exit(0)
"""
"""What the programs begin with. Descriptors are used by their number: what is closed under a file
object of Python it would notice at its end, and that is what is asked here."""

STAYS = """
    queue = penstock.Queue(path, **options)
    group = queue.group("readers")
    queue.put_many([b"before"] * 2)
    message = group.get(timeout=1)
    os.closerange(3, 1024)
    files = Files()
    said = [fails(queue.put, b"x" * size) for size in (1, 300, 200_000)]
    said += [fails(queue.put_many, [b"y"] * 50), fails(message.ack)]
    fails(group.get_many, 10)
    said.append(fails(queue.sync))
    files.check("used")
    fails(queue.close)
    del queue, group, message
    gc.collect()
    files.check("closed")
    with penstock.Queue(path, **options) as queue:  # Under numbers of the same size, or the same.
        queue.put(b"after")
        bodies = [message.body for message in queue.scan()]
        assert bodies[0] == b"before" and bodies[-1] == b"after", bodies
    files.check("opened again")
    print([text for text in said if text][-1])
    end()
"""

BECOMES_A_DAEMON = """
    queue = penstock.Queue(path, **options)
    group = queue.group("readers")
    queue.put_many([b"before"] * 2)
    message = group.get(timeout=1)
    if child := os.fork():
        end() if os.waitpid(child, 0)[1] == 0 else os._exit(1)
    os.closerange(3, 1024)
    files = Files()
    for _ in range(2):
        if worker := os.fork():
            assert os.waitpid(worker, 0)[1] == 0
        else:
            files.check("in a worker")
            end()
    queue.put(b"after")
    files.check("put")
    group = queue.group("readers")
    assert group.get(timeout=1).body == b"before"
    fails(message.ack)
    del message
    gc.collect()
    files.check("got")
    again = penstock.Queue(path, **options)
    queue.close()
    del queue, group
    gc.collect()
    files.check("closed")
    again.put(b"later")  # Its files are not closed by what was left of the first opening.
    again.sync()
    assert [message.body for message in again.scan()][-2:] == [b"after", b"later"]
    again.close()
    end()
"""


def run(program: str, tmp_path: Path, format: str, *said: str, **options: object) -> str:
    path = path_for(tmp_path, format)
    script = textwrap.dedent(CLOSING) + textwrap.dedent(program)
    given = repr({"format": format} | options)
    command = [sys.executable, "-c", script, str(tmp_path), str(path), given, *said]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


KEPT_APART: list[tuple[str, dict[str, object]]] = [
    *((format, {}) for format in registry.MODULES),
    ("beats", {"layout": "2-released-lz4"}),
    ("beats", {"layout": "2", "key": bytes(16)}),
]
"""Formats, and layouts that keep files open beside their segments."""


@pytest.mark.parametrize("durability", ["process", "always"])
@pytest.mark.parametrize(("format", "more"), KEPT_APART)
def test_a_file_that_has_the_number_of_one_of_ours_is_not_written_to_nor_closed(
    tmp_path: Path, format: str, more: dict[str, object], durability: str
) -> None:
    said = run(STAYS, tmp_path, format, durability=durability, **more)
    assert "another part of this program closed" in said


@pytest.mark.parametrize("durability", ["process", "always"])
@pytest.mark.parametrize(("format", "more"), KEPT_APART)
def test_a_daemon_that_closes_all_descriptors_keeps_those_that_it_opens(
    tmp_path: Path, format: str, more: dict[str, object], durability: str
) -> None:
    run(BECOMES_A_DAEMON, tmp_path, format, durability=durability, **more)


WITHOUT_STREAMS = """
    for number in range(3):
        os.close(number)
    with penstock.Queue(path, **options) as queue:
        queue.group("readers")
        queue.put(b"one")
        for number in range(3):
            try:
                os.write(number, b"a warning of some library\\n" * 400)
            except OSError:
                pass
        queue.put(b"two")
    assert penstock.Queue(path, **options).verify().is_ok
    end()
"""


@pytest.mark.parametrize(("format", "more"), KEPT_APART)
def test_what_is_written_to_a_standard_stream_that_was_closed_reaches_no_file_of_a_queue(
    tmp_path: Path, format: str, more: dict[str, object]
) -> None:
    run(WITHOUT_STREAMS, tmp_path, format, **more)


BOUNDED_IN_A_DAEMON = """
    queue = penstock.StandardQueue(path, maxsize=5, **options)
    queue.put("before")
    if child := os.fork():
        end() if os.waitpid(child, 0)[1] == 0 else os._exit(1)
    os.closerange(3, 1024)
    files = Files()
    queue.put("after")
    assert [queue.get(timeout=1), queue.get(timeout=1)] == ["before", "after"]
    files.check("used")
    queue.close()
    files.check("closed")
    end()
"""


def test_a_daemon_goes_on_with_a_bounded_standard_queue_of_before(tmp_path: Path) -> None:
    run(BOUNDED_IN_A_DAEMON, tmp_path, "penstock")


OTHER = """
    import sys, penstock

    queue = penstock.Queue(sys.argv[1])
    print("open", flush=True)
    sys.stdin.readline()
    queue.put(b"theirs")
    held = []
    while len(held) < 3:
        held += queue.group("readers").get_many(9, 60)
    for one in held:
        one.ack()
    print("got", flush=True)
    sys.stdin.readline()
    queue.put(b"later")
    queue.close()
"""

LOOKS_DEAD = """
    import subprocess

    when, script = sys.argv[4:]

    def other():
        command = [sys.executable, "-c", script, path]
        process = subprocess.Popen(command, stdin=-1, stdout=-1, text=True)
        assert process.stdout.readline().strip() == "open"
        return process

    def let_go_on(process):
        process.stdin.write(chr(10))
        process.stdin.flush()

    queue = penstock.Queue(path, **options)
    group = queue.group("readers")
    queue.put_many([b"before"] * 2)
    held = group.get_many(2)
    there = other() if when == "before" else None
    for number in map(int, os.listdir("/proc/self/fd")):
        try:
            if os.readlink(f"/proc/self/fd/{number}").endswith(".penstock/lock"):
                os.close(number)
        except OSError:
            pass
    there = there or other()
    let_go_on(there)
    assert there.stdout.readline().strip() == "got"
    said = [fails(queue.put, b"lost"), fails(queue.put_many, [b"lost"] * 9)]
    said += [fails(group.get, 0), fails(held[0].ack), fails(queue.sync)]
    assert all(said), said
    print(said[0])
    fails(queue.close)
    let_go_on(there)
    assert there.wait() == 0
    del queue, group, held
    gc.collect()
    with penstock.Queue(path, **options) as queue:
        assert queue.verify().is_ok
        queue.put(b"after")
        found = [one.body for one in queue.scan()]
        assert found[-2:] == [b"later", b"after"] and b"lost" not in found, found
    end()
"""


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(("format", "more"), KEPT_APART[:5])
def test_a_process_that_others_took_for_dead_goes_on_with_nothing(
    tmp_path: Path, format: str, more: dict[str, object], when: str
) -> None:
    said = run(
        LOOKS_DEAD, tmp_path, format, when, textwrap.dedent(OTHER), durability="process", **more
    )
    assert "took this one for dead" in said
