"""`work`: calls a Python function for every message, in as many processes as asked for.

    penstock work tasks:handle orders --processes 4 --retries 5 --backoff 2

The function returns: the message is acked. It raises: the message is given back with a delay that
doubles each time, and after `--retries` tries it goes to the dead letters.

One parent watches the workers. A worker that dies is replaced, and its lease goes back by itself.
SIGTERM or Ctrl-C asks the workers to stop: each finishes the message that it has in hand. A second
signal, or the end of `--grace`, kills them; then the messages in hand are handed out again.

A signal counts whenever it comes. The parent waits on a pipe that Python writes to when one comes,
so that none falls between a look at the flag and the wait. A worker is born with these signals
blocked and unblocks them when it ignores them: the terminal's Ctrl-C, which goes to everyone, never
kills one that is just starting.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import logging
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from ctypes import c_bool, c_uint64
from dataclasses import dataclass
from multiprocessing import connection, resource_tracker
from multiprocessing.context import SpawnContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock import _core
from penstock.cli import show
from penstock.cli.opening import GroupName, Json, QueueAt, Tags, command
from penstock.engine.queue import Queue
from penstock.errors import Empty, OptionError, PenstockError, ReceiptError

POLL_S = 0.25
RESTART_S = 0.5
MAX_DEATHS = 5
STOPPING = (signal.SIGTERM, signal.SIGINT)
COUNTERS = 2
HANDLED, FAILED = range(COUNTERS)

NO_GENERATOR = "a function that has done its work when it returns; a generator only begins then"

Handle = Callable[[_core.Message], object]
log: logging.Logger = logging.getLogger("penstock.work")

FunctionName = Annotated[
    str,
    typer.Argument(
        metavar="MODULE:FUNCTION", help="The function that is called with each message."
    ),
]

Tries = Annotated[
    int,
    typer.Option(
        min=0, help="After this many tries a message goes to the dead letters; 0 means never."
    ),
]
Backoff = Annotated[
    float,
    typer.Option(
        min=0, help="Wait this many seconds before the second try, then twice as long each time."
    ),
]


def register(app: typer.Typer) -> None:
    """Adds `penstock work`."""
    command(
        app,
        "work",
        "penstock work tasks:handle orders",
        "penstock work tasks:handle orders --processes 4 --retries 5 --backoff 2",
        "penstock work tasks:handle orders --until-empty",
    )(work)


@dataclass(frozen=True, slots=True)
class Job:
    """What a worker needs to know. It travels to the worker's process."""

    function: str
    queue: QueueAt
    group: str
    options: dict[str, Any]
    codec: str | None
    backoff_s: float
    max_backoff_s: float
    until_empty: bool

    def open(self) -> Queue:
        """The queue, as this worker uses it."""
        return self.queue.writing(codec=self.codec)


def work(
    function: FunctionName,
    at: QueueAt,
    group: GroupName = "default",
    tags: Tags = "",
    processes: Annotated[
        int, typer.Option("--processes", "-p", min=1, max=1024, help="Start this many workers.")
    ] = 1,
    retries: Tries = 5,
    backoff: Backoff = 1.0,
    max_backoff: Annotated[
        float,
        typer.Option(min=0, help="Never wait longer than this many seconds between two tries."),
    ] = 300.0,
    visibility: Annotated[
        float,
        typer.Option(
            min=1,
            help="If a call takes longer than this many seconds, another worker gets the message.",
        ),
    ] = 300.0,
    dead_letter: Annotated[
        str | None,
        typer.Option(help="The path of the queue for dead letters; by default PATH.dead."),
    ] = None,
    codec: Annotated[
        str | None, typer.Option(help="How `message.value` is decoded: json, cbor or str.")
    ] = None,
    until_empty: Annotated[
        bool, typer.Option("--until-empty", help="Stop when no message is left.")
    ] = False,
    grace: Annotated[
        float,
        typer.Option(min=0, help="When told to stop, wait this many seconds for calls to return."),
    ] = 30.0,
    json: Json = None,
) -> int:
    """Call a Python function for every message of a group.

    When the function returns, the message is acked. When it raises, the message is tried again
    later. The module is imported as Python would import it from this folder. Exit code 0: stopped
    in order, by SIGTERM, Ctrl-C or --until-empty; 1: some calls had to be killed.
    """
    sys.path.insert(0, str(Path.cwd()))
    load(function)  # A misspelt name is an error here, not in every worker.
    wanted = {"tags": tags or None, "max_receives": retries, "dead_letter": dead_letter}
    options = {name: value for name, value in wanted.items() if value is not None}
    job = Job(
        function, at, group, options | {"visibility_s": visibility}, codec,
        backoff, max_backoff, until_empty,
    )  # fmt: skip
    with job.open() as queue:
        # The group keeps its options, so every worker and every command sees the same ones.
        queue.group(group, **job.options).configure(**job.options)
    facts = Crew(job, processes, grace).run()
    if show.wants_json(json):
        show.emit(facts)
    else:
        text = f"{show.plural(facts['handled'], 'message')} handled"
        text += f", {show.plural(facts['failed'], 'call')} failed"
        killed = f", {show.plural(facts['killed'], 'worker')} killed" if facts["killed"] else ""
        show.line(text + killed)
    return 1 if facts["killed"] else 0


def load(name: str) -> Handle:
    """The function that `module:function` names."""
    module_name, colon, path = name.partition(":")
    if not colon or not module_name or not path:
        raise OptionError("MODULE:FUNCTION", name, "a module, a colon and a function: tasks:handle")
    try:
        found: Any = importlib.import_module(module_name)
        for part in path.split("."):
            found = getattr(found, part)
    except ModuleNotFoundError as error:
        if error.name is None or not module_name.startswith(error.name):
            raise OptionError("MODULE:FUNCTION", name, f"importable: {error}") from error
        here = f"a module that can be imported from {Path.cwd()}"
        raise OptionError("MODULE:FUNCTION", name, here) from error
    except AttributeError as error:
        raise OptionError("MODULE:FUNCTION", name, f"a function that is there: {error}") from error
    except Exception as error:
        why = f"a module that can be imported, but {type(error).__name__}: {error}"
        raise OptionError("MODULE:FUNCTION", name, why) from error
    if not callable(found):
        raise OptionError("MODULE:FUNCTION", name, f"a function, not {type(found).__name__}")
    if inspect.isgeneratorfunction(found) or inspect.isasyncgenfunction(found):
        raise OptionError("MODULE:FUNCTION", name, NO_GENERATOR)
    handle: Handle = found
    return handle


class WorkersDied(PenstockError):
    """Workers died one after the other and no call came to its end."""

    def __init__(self, exit_code: int | None) -> None:
        super().__init__(
            f"{MAX_DEATHS} workers died in a row, the last one with exit code {exit_code}, and no "
            "call came to its end: see what they said above, or call the function by hand"
        )


# ── the parent ─────────────────────────────────────────────────────────────────────────────


class Crew:
    """The workers, and the parent that watches them."""

    job: Job
    count: int
    grace_s: float
    context: SpawnContext
    counters: list[Any]
    must_stop: c_bool
    signals: int
    killed: int
    deaths: int
    done: int
    woken: int

    def __init__(self, job: Job, processes: int, grace_s: float) -> None:
        self.job, self.count, self.grace_s = job, processes, grace_s
        self.context = multiprocessing.get_context("spawn")
        self.counters = [self.context.RawArray(c_uint64, COUNTERS) for _ in range(processes)]
        self.must_stop = self.context.RawValue(c_bool, False)
        self.workers: dict[int, BaseProcess] = {}
        self.signals, self.killed, self.deaths, self.done = 0, 0, 0, 0
        self.woken = -1

    def run(self) -> dict[str, int]:
        """Until everyone has stopped; what was done."""
        with self.hearing_signals():
            try:
                self.watch()
            finally:
                self.kill()
        return {
            "handled": sum(one[HANDLED] for one in self.counters),
            "failed": sum(one[FAILED] for one in self.counters),
            "killed": self.killed,
        }

    @contextmanager
    def hearing_signals(self) -> Iterator[None]:
        """Every signal is counted, and ends the wait that it comes in or before."""
        self.woken, told = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        fd_before = signal.set_wakeup_fd(told, warn_on_full_buffer=False)
        before = {one: signal.signal(one, self.on_signal) for one in STOPPING}
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)
            signal.set_wakeup_fd(fd_before)
            os.close(told)
            os.close(self.woken)

    def wait(self, seconds: float, workers: Iterable[int] = ()) -> None:
        """Until a worker ends, a signal comes, or the time is over."""
        if self.woken in connection.wait([self.woken, *workers], seconds):
            os.read(self.woken, 4096)

    def on_signal(self, number: int, frame: object) -> None:
        """The first one asks, the second one kills."""
        self.must_stop.value = True
        self.signals += 1

    def watch(self) -> None:
        """Until all workers have ended in order, or a stop has waited long enough."""
        stop_by = None
        while self.signals < 2:
            if self.must_stop.value and stop_by is None:
                stop_by = time.monotonic() + self.grace_s
                show.note("stopping once the messages in hand are done; a second signal kills")
            if stop_by is not None and time.monotonic() > stop_by:
                return
            working = [slot for slot in range(self.count) if self.is_working(slot)]
            if not working:
                return
            running = [self.workers[slot].sentinel for slot in working if slot in self.workers]
            self.wait(POLL_S, running)

    def is_working(self, slot: int) -> bool:
        """Whether the worker of this slot has not ended yet; one that died is replaced."""
        process = self.workers.get(slot)
        if process is not None and process.exitcode is None:
            return True
        if self.must_stop.value or (process is not None and process.exitcode == 0):
            return False
        if process is not None:
            self.note_death(process)
            if self.must_stop.value:  # A signal came while this waited.
                return False
        self.start(slot)
        return True

    def start(self, slot: int) -> None:
        """A new worker, born with the signals blocked that it is going to ignore."""
        process = self.workers[slot] = self.context.Process(
            target=serve,
            args=(self.job, self.counters[slot], self.must_stop),
            name=f"worker {slot}",
        )
        # The process that multiprocessing runs beside the workers unblocks what it finds blocked.
        resource_tracker.ensure_running()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def note_death(self, process: BaseProcess) -> None:
        """Gives up once workers do nothing but die: the next one would too."""
        done = sum(sum(one) for one in self.counters)
        self.deaths = 1 if done > self.done else self.deaths + 1
        self.done = done
        if self.deaths >= MAX_DEATHS:
            raise WorkersDied(process.exitcode)
        log.warning("a worker died (exit code %s): starting another", process.exitcode)
        self.wait(RESTART_S)

    def kill(self) -> None:
        """Ends the workers that are left; their leases end with them."""
        for process in self.workers.values():
            if process.pid is not None and process.exitcode is None:
                process.kill()
                process.join()
                self.killed += 1


# ── a worker ───────────────────────────────────────────────────────────────────────────────


def serve(job: Job, counters: Any, must_stop: Any) -> None:
    """A worker's life: one message after the other until told to stop."""
    # The terminal sends Ctrl-C to everyone; it is the parent that decides what it means.
    for one in STOPPING:
        signal.signal(one, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
    parent = os.getppid()
    call = _caller(load(job.function))
    with job.open() as queue:
        group = queue.group(job.group, create=False)
        while not must_stop.value and os.getppid() == parent:
            try:
                message = group.get(POLL_S)
            except Empty:
                # What others have in hand, or what waits for its next try, may still come back.
                if job.until_empty and group.lag == 0 and not group.core.outstanding():
                    return
                continue
            counters[_one(job, call, message)] += 1


def _one(job: Job, call: Handle, message: _core.Message) -> int:
    """One call, and what becomes of its message; which counter it belongs to."""
    try:
        call(message)
    except (Exception, SystemExit):  # `sys.exit()` in a task is no order to this worker.
        delay = min(job.backoff_s * 2 ** min(message.receives - 1, 40), job.max_backoff_s)
        log.warning("offset %s, try %s failed", message.offset, message.receives, exc_info=True)
        _settle(message, lambda: message.nack(delay))
        return FAILED
    _settle(message, message.ack)
    return HANDLED


def _settle(message: _core.Message, end: Callable[[], object]) -> None:
    try:
        end()
    except ReceiptError:
        log.warning(
            "offset %s: its lease had ended. The function settled it itself, or took longer than "
            "--visibility allows, and another worker may have handled it too",
            message.offset,
        )


def _caller(function: Handle) -> Handle:
    """The function, and after it what it returns, if that is still to be run: an object or a lambda
    may give a coroutine, too, and only what it gives shows that."""
    runner = asyncio.Runner()

    def call(message: _core.Message) -> None:
        found = function(message)
        if inspect.isawaitable(found):
            runner.run(_awaited(found))
        elif inspect.isgenerator(found) or inspect.isasyncgen(found):
            raise TypeError(f"{type(found).__name__} was returned; expected {NO_GENERATOR}")

    return call


async def _awaited(found: Awaitable[object]) -> None:
    await found
