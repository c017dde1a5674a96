"""Pools of green threads: what waits natively waits in a thread of the operating system."""

from __future__ import annotations

import _thread
import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest

import penstock
from penstock.celery import Chord
from penstock.engine import threads
from penstock.engine.value_folder import ValueFolder
from penstock.kombu.state import State
from penstock.sidecar.sinks import SinkFiles

ROOT = Path(__file__).parents[2]


def test_the_maintenance_thread_runs_in_a_real_thread_where_gevent_has_replaced_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[int] = []

    def start(work: object, arguments: object) -> int:
        started.append(_thread.start_new_thread(work, arguments))  # type: ignore[call-overload]
        return started[-1]

    kept = {"start_new_thread": start}
    stub = SimpleNamespace(
        is_module_patched=lambda name: name == "threading",
        get_original=lambda module, name: kept.get(name, getattr(_thread, name)),
    )
    monkeypatch.setitem(sys.modules, "gevent.monkey", stub)
    with penstock.Queue(tmp_path / "q") as queue:
        queue.put(b"x")
    assert len(started) == 1


def test_threads_are_the_usual_ones_where_nobody_has_replaced_them() -> None:
    assert threads.original() is None


def test_a_green_thread_that_waits_for_a_lock_lets_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them may have the lock: if it could not go on, the wait would never end."""
    mine, theirs = (os.open(tmp_path, os.O_RDONLY) for _ in range(2))
    try:
        fcntl.flock(theirs, fcntl.LOCK_EX)
        monkeypatch.setattr(threads, "original", lambda: _thread)
        monkeypatch.setattr(time, "sleep", lambda _: fcntl.flock(theirs, fcntl.LOCK_UN))
        threads.lock_file(mine)
        with pytest.raises(BlockingIOError):
            fcntl.flock(theirs, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(mine)
        os.close(theirs)


CODE = """
import {pool}; {patch}
import os, penstock.kombu, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (2048, 2048))
kept = [os.open("/dev/null", os.O_RDONLY) for _ in range(1100)]  # More than `select` itself can do.
from kombu import Connection, Consumer, Producer, Queue
jobs, got = Queue("jobs", routing_key="jobs"), []
with Connection("penstock://" + sys.argv[1]) as connection:
    def send():
        Producer(connection.clone().channel()).publish(1, routing_key="jobs", declare=[jobs])
    with Consumer(connection.channel(), [jobs], on_message=got.append, no_ack=True):
        {pool}.spawn(send)
        connection.drain_events(timeout=20)
assert got[0].payload == 1
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pool", "patch"),
    [("gevent", "from gevent import monkey; monkey.patch_all()"),
     ("eventlet", "eventlet.monkey_patch()")],
)  # fmt: skip
def test_a_consumer_with_high_descriptors_lets_other_green_threads_run(
    tmp_path: Path, pool: str, patch: str
) -> None:
    pytest.importorskip("kombu")
    pytest.importorskip(pool)
    code = CODE.format(pool=pool, patch=patch)
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-W", "ignore", "-c", code, str(tmp_path)]
    subprocess.run(command, env=environment, check=True, timeout=60)


APP = """
import os
from celery import Celery
import penstock.kombu
folder = os.environ["JOBS"]
app = Celery("jobs", broker=f"penstock://{folder}", backend=f"penstock.celery:Backend+file://{folder}")
app.conf.broker_connection_retry_on_startup = True

@app.task
def double(number):
    return 2 * number

@app.task
def total(numbers):
    return sum(numbers)
"""

CALLER = """
import sys
from celery import chord, group
from jobs import app, double, total
assert group(double.s(n) for n in range(30))().get(timeout=60) == [2 * n for n in range(30)]
for _ in range(5):
    assert chord(double.s(n) for n in range(10))(total.s()).get(timeout=60) == 90
assert double.apply_async((7,), countdown=1.5).get(timeout=60) == 14
assert [list(one.values()) for one in app.control.ping(timeout=30, limit=1)] == [[{"ok": "pong"}]]
late = double.apply_async((8,), countdown=3)
late.revoke()
assert double.delay(9).get(timeout=60) == 18
"""


@pytest.mark.slow
@pytest.mark.parametrize("pool", ["solo", "threads", "prefork", "gevent", "eventlet"])
def test_a_worker_of_every_pool_serves_and_stops_when_told(tmp_path: Path, pool: str) -> None:
    pytest.importorskip("celery")
    if pool in ("gevent", "eventlet"):
        pytest.importorskip(pool)
    (tmp_path / "jobs.py").write_text(APP)
    paths = os.pathsep.join([str(Path(penstock.__file__).parents[1]), str(tmp_path)])
    environment = os.environ | {"JOBS": str(tmp_path / "folder"), "PYTHONPATH": paths}
    command = [sys.executable, "-W", "ignore", "-m", "celery", "-A", "jobs", "worker", "-P", pool]
    with subprocess.Popen([*command, "-c", "2"], cwd=tmp_path, env=environment) as worker:
        try:
            caller = [sys.executable, "-W", "ignore", "-c", CALLER]
            subprocess.run(caller, cwd=tmp_path, env=environment, check=True, timeout=120)
        finally:
            worker.terminate()
        assert worker.wait(60) == 0


GREEN_DRAMATIQ = """
from gevent import monkey; monkey.patch_all()
import dramatiq, os, sys
from penstock.dramatiq import PenstockBroker
broker, done = PenstockBroker(sys.argv[1]), []
note = dramatiq.actor(done.append, broker=broker, actor_name="note")
worker = dramatiq.Worker(broker, worker_timeout=60_000, worker_threads=4)
worker.start()
note.send(1)
note.send_with_options(args=(2,), delay=50)
broker.join("default", interval=5, timeout=20_000)
assert sorted(done) == [1, 2], done
os._exit(0)  # A worker that stops waits for its timeout.
"""


@pytest.mark.slow
def test_a_consumer_of_dramatiq_lets_other_green_threads_run(tmp_path: Path) -> None:
    """Its queues are waited for by green threads: none may hold the others up."""
    pytest.importorskip("dramatiq")
    pytest.importorskip("gevent")
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-W", "ignore", "-c", GREEN_DRAMATIQ, str(tmp_path)]
    subprocess.run(command, env=environment, check=True, timeout=50)


@contextmanager
def a_child_that_lives() -> Iterator[Callable[[], None]]:
    """Gives a function that forks a child: it has all descriptors, and lives until the end."""
    reader, writer = os.pipe()
    children: list[int] = []

    def fork() -> None:
        child = os.fork()
        if child == 0:
            os.close(writer)
            os.read(reader, 1)
            os._exit(0)
        children.append(child)

    yield fork
    os.close(writer)
    os.close(reader)
    assert [os.waitpid(child, 0)[1] for child in children] == [0]


def is_locked(path: Path) -> bool:
    file = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


def at_the_door(folder: Path, fork: Callable[[], None]) -> Path:
    with penstock.StandardQueue(folder, maxsize=5) as tasks, tasks._at_the_door():
        fork()
    return folder / ".penstock" / "groups" / "default"


def adding(folder: Path, fork: Callable[[], None]) -> Path:
    values = ValueFolder(folder)
    with mock.patch.object(values, "has", return_value=False) as has:
        has.side_effect = lambda key: fork()
        assert values.add("key", b"value")
    return values._file_of("key").parent


def counting_a_chord(folder: Path, fork: Callable[[], None]) -> Path:
    with Chord(folder):
        fork()
    return folder


def committing(folder: Path, fork: Callable[[], None]) -> Path:
    sink = SinkFiles(folder, "app")
    with sink.held() as has_it:
        assert has_it
        fork()
    return sink._lock


def declaring(folder: Path, fork: Callable[[], None]) -> Path:
    folder.mkdir()
    state = State(folder)
    with state.changing():
        fork()
    return state._lock_path


@pytest.mark.parametrize("work", [at_the_door, adding, counting_a_chord, committing, declaring])
def test_a_worker_that_is_forked_meanwhile_does_not_keep_a_lock(
    tmp_path: Path, work: Callable[[Path, Callable[[], None]], Path]
) -> None:
    with a_child_that_lives() as fork:
        assert not is_locked(work(tmp_path / "q", fork))
