"""`penstock work`: a function for every message, in processes that may fail, die and be stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from multiprocessing import connection
from pathlib import Path
from typing import Any

import pytest

from penstock import Queue
from penstock.cli.opening import QueueAt
from penstock.cli.work import Crew, Job
from tests.cli.conftest import Run

TASKS = """
import os, signal
from pathlib import Path

def handle(message):
    with open("handled", "ab") as out:
        out.write(message.body + b"\\n")

def fail(message):
    raise RuntimeError("no such customer")

def fail_once(message):
    if message.receives == 1:
        raise RuntimeError("not yet")
    handle(message)

def die_once(message):
    try:
        os.close(os.open("died", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        handle(message)
        return
    os.kill(os.getpid(), signal.SIGKILL)

def die(message):
    os._exit(3)

async def later(message):
    handle(message)

def add(message):
    with open("handled", "a") as out:
        out.write(f"{message.value['n'] + 1}\\n")

def slow(message):
    print("begun", flush=True)
    with open("go") as gate:
        gate.read()
    handle(message)

def begin(message):
    handle(message)
    yield

async def begin_later(message):
    handle(message)
    yield

def give_generator(message):
    return begin(message)

def leave(message):
    raise SystemExit(0)

def settle(message):
    handle(message)
    message.ack()

class Tasks:
    @staticmethod
    def inside(message):
        handle(message)

class Later:
    async def __call__(self, message):
        handle(message)

an_object = Later()
a_lambda = lambda message: later(message)

NUMBER = 17
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a module of tasks, as the current one."""
    (tmp_path / "tasks.py").write_text(TASKS)
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    yield tmp_path
    sys.path[:] = before
    sys.modules.pop("tasks", None)


def fill(path: Path, count: int = 5) -> Path:
    with Queue(path) as queue:
        queue.put_many([b"%d" % number for number in range(count)])
    return path


def handled(place: Path) -> list[str]:
    return (place / "handled").read_text().split()


@pytest.mark.parametrize(
    "function", ["tasks:Tasks.inside", "tasks:later", "tasks:an_object", "tasks:a_lambda"]
)
def test_every_message_is_handled_once_and_acked(run: Run, place: Path, function: str) -> None:
    fill(place / "q")
    facts = run("work", function, place / "q", "--until-empty").one
    assert facts == {"handled": 5, "failed": 0, "killed": 0}
    assert handled(place) == ["0", "1", "2", "3", "4"]
    run("get", place / "q", code=3)


@pytest.mark.parametrize("name", ["begin", "begin_later"])
def test_a_generator_is_refused_and_no_message_is_taken(run: Run, place: Path, name: str) -> None:
    fill(place / "q", 1)
    said = run("work", f"tasks:{name}", place / "q", "--until-empty", code=2).err
    assert f"MODULE:FUNCTION tasks:{name}: expected a function that has done its work" in said
    assert run("get", place / "q").one["receives"] == 1


@pytest.mark.parametrize("name", ["give_generator", "leave"])
def test_a_call_that_does_no_work_has_failed(run: Run, place: Path, name: str) -> None:
    fill(place / "q", 1)
    ran = run("work", f"tasks:{name}", place / "q", "--until-empty", "--retries", 2, "--backoff", 0)
    assert ran.one == {"handled": 0, "failed": 2, "killed": 0}
    assert [line["text"] for line in run("cat", place / "q.dead").lines] == ["0"]


def test_a_function_may_ack_its_message_itself(run: Run, place: Path) -> None:
    fill(place / "q", 2)
    assert run("work", "tasks:settle", place / "q", "--until-empty").one["handled"] == 2
    assert handled(place) == ["0", "1"]


def test_several_processes_share_the_messages(run: Run, place: Path) -> None:
    fill(place / "q", 40)
    facts = run("work", "tasks:handle", place / "q", "--until-empty", "-p", 2).one
    assert facts["handled"] == 40
    assert sorted(map(int, handled(place))) == list(range(40))


def test_a_failed_call_is_tried_again(run: Run, place: Path) -> None:
    fill(place / "q", 2)
    facts = run("work", "tasks:fail_once", place / "q", "--until-empty", "--backoff", 0.01).one
    assert (facts["handled"], facts["failed"]) == (2, 2)
    assert sorted(handled(place)) == ["0", "1"]


def test_what_fails_too_often_goes_to_the_dead_letters(run: Run, place: Path) -> None:
    fill(place / "q", 1)
    facts = run(
        "work", "tasks:fail", place / "q", "--until-empty", "--retries", 3, "--backoff", 0.01
    ).one
    assert (facts["handled"], facts["failed"]) == (0, 3)
    (letter,) = run("cat", place / "q.dead").lines
    assert (letter["text"], letter["headers"]["penstock.receives"]) == ("0", "3")


def test_a_worker_that_dies_is_replaced_and_loses_nothing(run: Run, place: Path) -> None:
    fill(place / "q", 3)
    facts = run("work", "tasks:die_once", place / "q", "--until-empty").one
    assert facts["handled"] == 3
    assert sorted(handled(place)) == ["0", "1", "2"]


def test_workers_that_only_die_are_given_up(
    run: Run, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.cli.work.MAX_DEATHS", 2)
    fill(place / "q", 1)
    ran = run("work", "tasks:die", place / "q", "--retries", 0, code=2)
    assert "workers died in a row" in ran.err


def test_the_value_is_decoded_where_a_codec_is_named(run: Run, place: Path) -> None:
    with Queue(place / "q", codec="json") as queue:
        queue.put({"n": 41})
    run("work", "tasks:add", place / "q", "--until-empty", "--codec", "json")
    assert handled(place) == ["42"]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("tasks", "a module, a colon and a function"),
        ("nowhere:handle", "a module that can be imported from"),
        ("tasks:nothing", "no attribute 'nothing'"),
        ("tasks:NUMBER", "a function, not int"),
    ],
)
def test_a_function_that_is_not_there_is_one_sentence(
    run: Run, place: Path, name: str, sentence: str
) -> None:
    fill(place / "q", 1)
    assert sentence in run("work", name, place / "q", code=2).err
    assert run("groups", "list", place / "q").lines == []


def start(place: Path, *more: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "penstock", "work", "tasks:slow", "q", *more]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=place, stdout=pipe, stderr=pipe)


def stop(crew: subprocess.Popen[bytes]) -> None:
    """Sends SIGTERM once a message is in hand, and returns when the parent has taken it in."""
    assert crew.stdout is not None
    assert crew.stderr is not None
    assert crew.stdout.readline() == b"begun\n"
    crew.send_signal(signal.SIGTERM)
    assert crew.stderr.readline().startswith(b"stopping")


def test_a_stop_waits_for_the_message_in_hand(place: Path) -> None:
    fill(place / "q", 3)
    os.mkfifo(place / "go")
    with start(place) as crew:
        stop(crew)
        with (place / "go").open("w") as gate:
            gate.write("on")
        assert crew.stdout is not None
        rest = crew.stdout.read()
    assert crew.returncode == 0, rest
    assert b'"handled": 1' in rest
    assert handled(place) == ["0"]
    with Queue(place / "q") as queue:
        assert (queue.lag, queue.get(0).receives) == (2, 1)


def test_a_stop_without_grace_kills_and_the_message_comes_again(place: Path) -> None:
    fill(place / "q", 1)
    os.mkfifo(place / "go")
    with start(place, "--grace", "0") as crew:
        stop(crew)
        assert crew.stdout is not None
        rest = crew.stdout.read()
    assert crew.returncode == 1
    assert b'"killed": 1' in rest
    with Queue(place / "q") as queue:
        assert queue.get(5).receives == 2


def crew_of(place: Path, function: str) -> Crew:
    """A crew of one, in this process."""
    sys.path.insert(0, str(place))
    fill(place / "q", 1)
    with Queue(place / "q") as queue:
        queue.group()
    at = QueueAt(place / "q")
    job = Job(function, at, "default", {}, None, 1.0, 1.0, True)
    return Crew(job, 1, grace_s=60)


def test_a_signal_that_comes_as_a_worker_starts_stops_it(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = Crew.start

    def start_under_a_signal(crew: Crew, slot: int) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        begin(crew, slot)

    monkeypatch.setattr(Crew, "start", start_under_a_signal)
    facts = crew_of(place, "tasks:handle").run()
    assert facts == {"handled": 0, "failed": 0, "killed": 0}


def test_a_signal_that_comes_between_the_look_and_the_wait_ends_the_wait(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crew = crew_of(place, "tasks:handle")
    waits: list[list[Any]] = []
    usual = connection.wait

    def wait(objects: list[Any], timeout: float | None = None) -> list[Any]:
        os.kill(os.getpid(), signal.SIGTERM)
        waits.append(usual(objects, 300))
        return waits[-1]

    monkeypatch.setattr(connection, "wait", wait)
    with crew.hearing_signals():
        crew.wait(300)
        assert waits == [[crew.woken]]
    assert crew.must_stop.value


def test_a_worker_that_is_just_starting_is_not_killed_by_the_terminal(place: Path) -> None:
    """At every instant of its life SIGTERM and SIGINT are blocked, or ignored."""
    crew = crew_of(place, "tasks:handle")
    crew.start(0)
    worker = crew.workers[0]
    masks = {}
    for line in Path(f"/proc/{worker.pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in ("SigBlk", "SigIgn"):
            masks[name] = int(value, 16)
    for number in (signal.SIGTERM, signal.SIGINT):
        assert (masks["SigBlk"] | masks["SigIgn"]) >> (number - 1) & 1
        assert worker.pid is not None
        os.kill(worker.pid, number)
    worker.join(60)
    assert (worker.exitcode, handled(place)) == (0, ["0"])
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()) & {signal.SIGTERM, signal.SIGINT}
