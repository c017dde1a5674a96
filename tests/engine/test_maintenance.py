"""The maintenance thread: only it syncs in the background, so no error of a duty may end it."""

from __future__ import annotations

import errno
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from penstock import Queue, _core
from penstock.engine import maintenance
from penstock.formats import registry
from tests.waiting import LONG_S


@pytest.mark.parametrize("error", [RuntimeError("odd"), OSError(5, "a disk"), KeyError("x")])
def test_the_maintenance_thread_outlives_what_a_duty_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    raised = threading.Event()

    def tend() -> None:
        raised.set()
        raise error

    with Queue(tmp_path / "q", sync_interval_s=0.005) as queue:
        monkeypatch.setattr(queue.store.format, "tend", tend)
        queue.put(b"first")
        assert raised.wait(LONG_S)
        queue.put(b"second")
        pause, tries = threading.Event(), 0
        while queue.offsets().durable < queue.offsets().tail and tries < 20 * LONG_S:
            pause.wait(0.05)
            tries += 1
        assert queue.offsets().durable == queue.offsets().tail


@pytest.mark.parametrize("error", [OSError(errno.EMFILE, "no file for `logging`"), MemoryError()])
def test_the_maintenance_thread_outlives_an_error_that_can_not_be_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    tries, told = [error, error], []

    class Logger:
        def error(self, *args: object, **_: object) -> None:
            if tries:
                raise tries.pop()
            told.append(args)

    def tend() -> None:
        raise RuntimeError("odd")

    monkeypatch.setattr(maintenance, "logger", lambda _: Logger())
    with Queue(tmp_path / "q", sync_interval_s=0.005) as queue:
        upkeep = queue._maintenance
        assert upkeep is not None
        for _ in range(5):
            upkeep._do("tend the files", tend)
    assert len(told) == 1, "not before it can be told, and then once"


def test_a_thread_that_can_not_be_begun_does_not_end_the_other_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Queue(tmp_path / "q", sync_interval_s=0.005) as queue:
        refused = threading.Event()

        def refuse(*_: object) -> None:
            refused.set()
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(maintenance, "Background", refuse)
        queue.store.need_writer().poke()
        assert refused.wait(LONG_S)
        refused.clear()
        queue.store.need_writer().poke()
        assert refused.wait(LONG_S), "it tries again"


def own_upkeep(queue: Queue) -> _core.Upkeep:
    """The native part of the maintenance thread, for whoever calls it."""
    assert queue._maintenance is not None
    queue._maintenance.stop()
    return _core.Upkeep(queue.store.need_writer(), True)


def test_while_a_queue_is_used_its_syncs_need_no_python(tmp_path: Path) -> None:
    with Queue(tmp_path / "q") as queue:
        upkeep, group, turns = own_upkeep(queue), queue.group(ack="auto"), []
        is_over, pause = threading.Event(), threading.Event()

        def run() -> None:
            while not is_over.is_set():
                turns.append(upkeep.wait(0.01, 3600, 3600))

        thread = threading.Thread(target=run)
        thread.start()
        until, synced, before = time.monotonic() + LONG_S, set[int](), -1
        while len(synced) < 5 and time.monotonic() < until:
            if len(turns) != before:  # This thread did not run for an interval: count again.
                before, synced = len(turns), set()
            queue.put(b"x")
            group.get(0)
            synced.add(queue.offsets().durable)
            pause.wait(0.0005)
        is_over.set()
        queue.store.need_writer().poke()
        thread.join()
        assert len(synced) == 5
        assert turns[-1] == (False, [])


def test_python_has_its_turn_when_a_queue_is_not_used_any_more(tmp_path: Path) -> None:
    with Queue(tmp_path / "q") as queue:
        upkeep, group = own_upkeep(queue), queue.group(ack="auto")
        assert upkeep.wait(0.001, 3600, 3600) == (True, [])
        queue.put(b"x")
        group.get(0)
        assert upkeep.wait(0.001, 3600, 3600) == (True, [])
        assert queue.offsets().durable == queue.offsets().tail
        assert not group.core.is_dirty
        assert upkeep.wait(0.001, 3600, 0.001) == (True, []), "and now and then later"


def test_what_native_code_can_not_sync_python_does(tmp_path: Path) -> None:
    with Queue(tmp_path / "q", segment_bytes=65536) as queue:
        assert queue._maintenance is not None
        queue._maintenance.stop()
        before = queue.store.need_shared().segment_base
        while queue.store.need_shared().segment_base == before:
            queue.put(bytes(1000))  # Two segments are unsynced then.
        upkeep = own_upkeep(queue)
        assert upkeep.wait(0.001, 3600, 3600) == (True, [])
        assert queue.offsets().durable < queue.offsets().tail
        queue.store.need_writer().sync()
        assert queue.offsets().durable == queue.offsets().tail


def test_after_a_failed_sync_python_is_told_at_once(tmp_path: Path) -> None:
    with Queue(tmp_path / "q") as queue:
        upkeep = own_upkeep(queue)
        assert upkeep.wait(0.001, 3600, 3600) == (True, [])
        queue.put(b"x")
        queue.store.need_shared().poison()
        assert upkeep.wait(0.001, 3600, 3600) == (True, [])
        assert queue.offsets().durable < queue.offsets().tail


LOADED_BY_THREADS = """
import sys, threading
loaded, main = [], threading.get_ident()

def note(event, args):
    if event == "import" and threading.get_ident() != main:
        loaded.append(args[0])

sys.addaudithook(note)
import penstock
path, format, durability, body = sys.argv[1:]
small = {"segment_bytes": 1 << 16} if format != "vqs" else {}
old = {"retention_bytes": 1 << 17} if format in ("penstock", "zbus", "beats") else {}
options = {"sync_interval_s": 0.001, "durability": durability, **small, **old}
with penstock.Queue(path, format=format, **options) as queue:
    for number in range(300):
        queue.put(body.encode())
    duties = queue._maintenance
    if duties is not None:
        threads = [threading.Thread(target=duty) for _, duty in duties._duties([])]
        for thread in threads:
            thread.start()
            thread.join()
        duties._do("fail", lambda: 1 / 0)
print(*loaded)
"""


@pytest.mark.parametrize("durability", ["process", "interval", "always"])
@pytest.mark.parametrize("format", list(registry.MODULES))
def test_no_thread_of_a_queue_loads_a_module(tmp_path: Path, format: str, durability: str) -> None:
    """Python's import lock may be left with a thread whose import a signal handler has ended."""
    body = '{"text": "%s"}' % ("x" * 1000)
    command = [sys.executable, "-c", LOADED_BY_THREADS, str(tmp_path / "q"), format, durability]
    done = subprocess.run([*command, body], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
