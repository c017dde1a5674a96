"""The maintenance thread: only it syncs in the background, so no error of a duty may end it."""

from __future__ import annotations

import errno
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import Group, Queue, _core
from penstock.disk import files
from penstock.engine import maintenance
from penstock.formats import registry
from penstock.options import AckMode
from penstock.sidecar import groups
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


INTERRUPTED = """
import _imp, sys, time, penstock
from penstock.engine.threads import waits_for_an_import
path, format = sys.argv[1:]
queue = penstock.Queue(path, format=format, sync_interval_s=0.001)
queue.store.format.tend = lambda: __import__("colorsys")
_imp.acquire_lock()  # As an import does that a signal handler ends right behind this.
while not waits_for_an_import(queue._maintenance._thread._thread):
    queue.put(b"{}")
    time.sleep(0.001)
queue.close()
with penstock.Queue(path) as queue:
    queue.put(b"{}")
"""


@pytest.mark.parametrize("format", list(registry.MODULES))
def test_a_close_ends_though_an_interrupted_import_left_its_lock(
    tmp_path: Path, format: str
) -> None:
    command = [sys.executable, "-c", INTERRUPTED, str(tmp_path / "q"), format]
    subprocess.run(command, check=True, timeout=LONG_S)


FORMATS = ["penstock", "zbus", "beats", "vqs", "mfq"]
OPTIONS: dict[str, dict[str, Any]] = {"vqs": {"max_bytes": 1 << 20}}
WAYS: dict[str, Callable[[Queue, Group, Queue], object]] = {
    "a sync": lambda queue, group, other: group.core.sync(),
    "a new journal": lambda queue, group, other: group.core.checkpoint(),
    "a sync of the queue": lambda queue, group, other: queue.sync(),
    "a sync of another opener": lambda queue, group, other: other.sync(),
    "another opener of the group": lambda queue, group, other: other.group("g").core.sync(),
    "a place to go on": lambda queue, group, other: group.seek("latest"),
    "deleting what is old": lambda queue, group, other: queue.trim("latest"),
}
"""What makes progress durable, or may."""


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("ack", ["lease", "auto"])
@pytest.mark.parametrize("format", FORMATS)
def test_progress_is_synced_also_after_what_made_all_before_it_durable(
    tmp_path: Path, format: str, ack: AckMode, way: str
) -> None:
    path, options = tmp_path / "queue.bin", {"format": format, **OPTIONS.get(format, {})}
    with Queue(path, **options) as queue, Queue(path, create=False) as other:
        upkeep, group = own_upkeep(queue), queue.group("g", ack=ack)
        other_upkeep = other._maintenance
        assert other_upkeep is not None
        other_upkeep.stop()  # Only one thread is there to hear of it.
        queue.put_many([b"1", b"2"])
        take(group)
        WAYS[way](queue, group, other)
        assert upkeep.wait(0.001, 3600, 3600) == (True, [])
        queue.put(b"3")
        assert upkeep.wait(0.001, 3600, 3600) == (True, [])
        assert not group.core.is_dirty
        take(group)
        assert group.core.is_dirty
        assert upkeep.wait(0.001, 3600, 1.0) == (True, [])
        assert not group.core.is_dirty


def take(group: Group) -> None:
    message = group.get(0)
    if group.options.ack == "lease":
        message.ack()


def table_word(queue: Queue, name: str) -> int:
    table = queue.store.sidecar / "groups" / "g" / "table"
    return int(groups.TABLE.unpack(files.read_start(table, groups.TABLE.size))[name])


@pytest.mark.parametrize("format", FORMATS)
def test_a_request_that_comes_after_its_sync_keeps_no_later_one_quiet(
    tmp_path: Path, format: str
) -> None:
    """Who acks by getting asks without a lock: a sync may be quicker than the request."""
    with Queue(tmp_path / "queue.bin", format=format, **OPTIONS.get(format, {})) as queue:
        upkeep, group = own_upkeep(queue), queue.group("g", ack="auto")
        queue.put_many([b"1", b"2"])
        take(group)
        table = queue.store.sidecar / "groups" / "g" / "table"
        asked = table_word(queue, "sync_asked")
        group.core.sync()
        with table.open("r+b") as file:  # As if that had said so only now.
            file.seek(groups.TABLE.offset_of("sync_asked"))
            file.write(groups.TABLE.pack_field("sync_asked", asked))
        assert upkeep.wait(0.001, 3600, 3600) == (True, [])
        take(group)
        assert upkeep.wait(0.001, 3600, 1.0) == (True, [])
        assert not group.core.is_dirty
