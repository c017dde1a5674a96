"""`demo`: two producers fill a queue, consumers drain it, two of them are killed on the way.

Everything is real: separate processes, `kill -9` in mid-work, then a check that every message whose
`put` had returned is there once and in order, and that every message was handled.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from ctypes import c_uint64
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli import show
from penstock.cli.opening import command
from penstock.cli.pipeline import need_spark
from penstock.engine.queue import Queue
from penstock.errors import StorageError

GROUP = "workers"
BATCH = 100
STALL_S = 60.0
"""How long no worker may get on. A slow machine takes as long as it takes."""
SAMPLE_S = 0.1
COUNTERS = 3
PUT, ACKED, AGAIN = range(COUNTERS)


def register(app: typer.Typer) -> None:
    """Adds `penstock demo`."""
    command(app, "demo", "penstock demo", "penstock demo --messages 100000 --json")(demo)


def demo(
    messages: Annotated[
        int,
        typer.Option("--messages", "-n", min=1000, help="Each producer puts this many messages."),
    ] = 500_000,
    spark: Annotated[
        bool, typer.Option("--spark/--no-spark", help="Also show Spark; takes a minute more.")
    ] = False,
    report: Annotated[
        Path | None, typer.Option("--report", help="The folder for Spark's pages and plots.")
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of a table.")
    ] = False,
) -> int:
    """See a queue work, and survive kill -9, in a temporary folder. Takes a few seconds."""
    if spark:
        need_spark()
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as folder:
        facts = _Demo(Path(folder) / "queue", messages).run()
        if spark and facts["ok"]:
            from penstock.spark.demo import act
            from penstock.spark.pipelines import failures

            path = Path(folder)
            try:
                facts["spark"] = act(path / "queue", path, show.note, report, story=facts)
            except failures.FAILURES as error:
                show.error(failures.sentence(error))
                return 2
            facts["ok"] = facts["spark"]["ok"]
    if json:
        show.emit(facts)
    else:
        _draw(facts)
    return 0 if facts["ok"] else 1


def produce(path: str, who: int, limit: int, counters: Any) -> None:
    """A producer: counts a message once its `put` has returned."""
    with Queue(path) as queue:
        for number in range(limit):
            queue.put(b"%d %d" % (who, number), tag=f"producer.{who}")
            counters[PUT] = number + 1


def consume(path: str, stop: Any, counters: Any) -> None:
    """A consumer: acks what it was given until nothing more comes."""
    with Queue(path) as queue:
        group = queue.group(GROUP)
        while True:
            found = group.get_many(BATCH, 0.1)
            if not found and stop.value:
                return
            for message in found:
                counters[AGAIN] += message.receives > 1
                message.ack()
                counters[ACKED] += 1


@dataclass(slots=True)
class Worker:
    """A process and what it counted, which outlives it."""

    name: str
    process: BaseProcess
    counters: Any
    fate: str = "finished"

    def kill(self) -> None:
        """As the kernel's out-of-memory killer would."""
        assert self.process.pid is not None
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.join()
        self.fate = "kill -9"


class Course:
    """What the workers' counters said over time, and what happened to them: for the plot."""

    begun: float
    over: threading.Event
    thread: threading.Thread

    def __init__(self, workers: list[Worker]) -> None:
        self.workers = workers
        self.begun = time.monotonic()
        self.samples: list[tuple[float, int, int]] = []
        """Seconds, messages put so far, messages acked so far."""
        self.marks: list[tuple[float, str]] = []
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> None:
        self.thread.start()

    def __exit__(self, *error: object) -> None:
        self.over.set()
        self.thread.join()

    def mark(self, text: str) -> None:
        """Notes that `text` happened now."""
        self.marks.append((round(time.monotonic() - self.begun, 2), text))

    def _watch(self) -> None:
        while True:
            counters = [worker.counters for worker in list(self.workers)]
            put, acked = (sum(one[which] for one in counters) for which in (PUT, ACKED))
            self.samples.append((round(time.monotonic() - self.begun, 2), put, acked))
            if self.over.wait(SAMPLE_S):
                return


class _Demo:
    """One run of the demo: its processes and its queue."""

    def __init__(self, path: Path, messages: int) -> None:
        self.path, self.messages = path, messages
        self.context = multiprocessing.get_context("spawn")
        self.stop = self.context.RawValue(c_uint64, 0)
        self.workers: list[Worker] = []
        self.course = Course(self.workers)

    def start(self, name: str, work: Callable[..., None], *arguments: object) -> Worker:
        """Starts a process that runs `work`."""
        counters = self.context.RawArray(c_uint64, COUNTERS)
        process = self.context.Process(
            target=work, args=(str(self.path), *arguments, counters), name=name
        )
        process.start()
        self.workers.append(Worker(name, process, counters))
        return self.workers[-1]

    def wait(self, is_there: Callable[[], bool]) -> None:
        """Until it is so, however long that takes; an error once no worker gets on any more."""
        counted, since = self.counted(), time.monotonic()
        while not is_there():
            time.sleep(0.005)
            if (now := self.counted()) != counted:
                counted, since = now, time.monotonic()
            elif time.monotonic() - since > STALL_S:
                raise StorageError(
                    self.path.parent,
                    f"no process of the demo has put or acked anything for {STALL_S:.0f} seconds; "
                    "this machine may be too busy: try fewer --messages",
                )

    def counted(self) -> int:
        """All that the workers have put and acked."""
        return sum(sum(worker.counters) for worker in self.workers)

    def run(self) -> dict[str, Any]:
        """Runs the demo from the first put to the last ack, and ends its processes."""
        try:
            with Queue(self.path) as queue, self.course:
                return self.play(queue)
        finally:
            for worker in self.workers:
                if worker.process.is_alive():
                    worker.kill()

    def play(self, queue: Queue) -> dict[str, Any]:
        """Fill, kill, verify, drain, check."""
        group, say = queue.group(GROUP), show.note
        say(f"two producers put {self.messages:,} messages each, two consumers take them")
        producers = [self.start(f"producer {n}", produce, n, self.messages) for n in (1, 2)]
        consumers = [self.start(f"consumer {n}", consume, self.stop) for n in (1, 2)]
        self.wait(lambda: all(p.counters[PUT] > 0 for p in producers))
        begun = time.monotonic()
        self.wait(lambda: producers[0].counters[PUT] > self.messages // 3)
        self.wait(lambda: consumers[0].counters[ACKED] > 10 * BATCH)
        producers[0].kill()
        self.course.mark("kill -9: producer 1")
        consumers[0].kill()
        self.course.mark("kill -9: consumer 1")
        say("kill -9: producer 1 and consumer 1, in the middle of their work")
        verdict = queue.verify()
        say(f"verify: {verdict.frames:,} frames, {'clean' if verdict.is_ok else 'DAMAGED'}")
        self.start("consumer 3", consume, self.stop)
        self.course.mark("consumer 3 joins")
        say("consumer 3 joins; what the dead one had is handed out again")
        self.wait(lambda: not producers[1].process.is_alive())
        put_s = time.monotonic() - begun
        self.wait(lambda: group.lag == 0 and not group.core.outstanding())
        drain_s = time.monotonic() - begun
        self.stop.value = 1
        self.wait(lambda: not any(worker.process.is_alive() for worker in self.workers))
        return self.report(queue, verdict.is_ok, put_s, drain_s)

    def report(self, queue: Queue, is_clean: bool, put_s: float, drain_s: float) -> dict[str, Any]:
        """What happened, as plain values."""
        seen, wrong = count_bodies(queue)
        promised = {w.name: w.counters[PUT] for w in self.workers if w.name.startswith("producer")}
        missing = sum(max(0, count - seen.get(int(n[-1]), 0)) for n, count in promised.items())
        kept = sum(seen.values())
        left = queue.count_from(queue.group(GROUP).core.cursor)
        # A process that is killed between an ack and counting it leaves the count one too low.
        killed = sum(w.fate == "kill -9" for w in self.workers)
        left = max(left, kept - sum(w.counters[ACKED] for w in self.workers) - killed)
        return {
            "ok": is_clean and kept > self.messages and not missing and not wrong and not left,
            "messages": kept,
            "missing": missing,
            "out_of_order": wrong,
            "unhandled": left,
            "clean_after_kill": is_clean,
            "put_per_second": kept / put_s if put_s else 0.0,
            "handled_per_second": kept / drain_s if drain_s else 0.0,
            "course": self.course.samples,
            "marks": self.course.marks,
            "workers": [
                {"name": w.name, "fate": w.fate, "put": w.counters[PUT],
                 "acked": w.counters[ACKED], "given_again": w.counters[AGAIN]}
                for w in self.workers
            ],
        }  # fmt: skip


def count_bodies(queue: Queue) -> tuple[dict[int, int], int]:
    """Messages per producer, and how many are not the next one of their producer."""
    seen: dict[int, int] = {}
    wrong = 0
    for message in queue.scan():
        who, number = map(int, message.body.split())
        wrong += number != seen.get(who, 0)
        seen[who] = seen.get(who, 0) + 1
    return seen, wrong


def _draw(facts: dict[str, Any]) -> None:
    """The story in two tables: who did what, and what came of it."""
    names = ("name", "fate", "put", "acked", "given_again")
    rows = [[_cell(worker[name]) for name in names] for worker in facts["workers"]]
    show.table(("process", "end", ">put", ">acked", ">given again"), rows, "Who did what")
    told = [
        ("messages in the queue", f"{facts['messages']:,}", _unsaid(facts)),
        ("lost", f"{facts['missing']:,}", _verdict(not facts["missing"])),
        (
            "out of order or twice",
            f"{facts['out_of_order']:,}",
            _verdict(not facts["out_of_order"]),
        ),
        ("never handled", f"{facts['unhandled']:,}", _verdict(not facts["unhandled"])),
        (
            "damaged by kill -9",
            "0" if facts["clean_after_kill"] else "some",
            _verdict(facts["clean_after_kill"]),
        ),
        ("put by two processes", f"{facts['put_per_second']:,.0f}/s", ""),
        ("put, taken and acked", f"{facts['handled_per_second']:,.0f}/s", ""),
    ]
    if "spark" in facts:
        told += _spark_rows(facts["spark"])
    show.table(("", ">how many", ""), told, "What came of it")
    page = facts.get("spark", {}).get("page")
    if page:
        show.line(f"plots and the audit: {Path(page).absolute().as_uri()}")


def _unsaid(facts: dict[str, Any]) -> str:
    """Why the queue may have more than the producers counted."""
    more = facts["messages"] - sum(worker["put"] for worker in facts["workers"])
    return f"{more} put as its producer was killed" if more > 0 else ""


def _spark_rows(found: dict[str, Any]) -> list[tuple[str, str, str]]:
    alerts = f"{found['alerts']:,} of {found['alerts_wanted']:,}"
    return [
        ("three queues to Parquet by Spark", f"{found['rows_per_second']:,.0f}/s", ""),
        ("counted by Spark", f"{found['counted']:,}", _verdict(found["counted"] == found["rows"])),
        ("alerts that Spark put, a task killed", alerts, _verdict(found["killed_tasks"] > 0)),
        ("audited", f"{found['audited']:,}", _verdict(found["sound"])),
        ("converted from zbus to penstock", f"{found['converted']:,}", _verdict(True)),
        (
            "seconds that Spark took",
            f"{found['seconds']:.0f}",
            f"{found['start_s']:.0f} of them to start",
        ),
    ]


def _cell(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and value else str(value or "")


def _verdict(is_well: bool) -> str:
    return "as it should be" if is_well else "WRONG"
