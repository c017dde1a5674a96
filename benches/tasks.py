"""Celery on several brokers, the same worker on each: tasks per second, latency, CPU.

Needs Celery (`pip install 'penstock[celery]'`), for the others the packages `redis`, `sqlalchemy`
and Debian's `redis-server` and `rabbitmq-server`, from the path or from `build/debian`; what is
missing is left out. `python -m tools.bench_pages tasks` fetches all of it. Durability, as each is
set up here: penstock `interval` and Redis with its append-only file synced every second both
survive a kill at any instant, and a power cut but for the last moments; RabbitMQ has durable queues
and persistent messages, which it writes now and then, without confirms; SQLite is as SQLAlchemy's
transport opens it (synced at each commit); the filesystem transport syncs nothing, and its readers
race. The memory transport is left out: it reaches no other process.
"""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benches.against import servers
from benches.harness import Row, median, percentile, scratch

WARM_COUNT = 20
TIMEOUT_S = 300.0
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Party:
    """A broker, running."""

    name: str
    url: str
    options: dict[str, Any] = field(default_factory=dict)
    server: int | None = None
    """The process whose CPU time counts too."""


def has(*modules: str) -> bool:
    return all(importlib.util.find_spec(module) is not None for module in modules)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@contextmanager
def listening(command: list[str], port: int, more: dict[str, str]) -> Iterator[int]:
    """A server's process, from when it takes connections until the block ends."""
    quiet = subprocess.DEVNULL
    environment = servers.environment() | more
    with subprocess.Popen(command, env=environment, stdout=quiet, stderr=quiet) as server:
        try:
            wait_for(lambda: is_open(port))
            yield server.pid
        finally:
            server.terminate()


@contextmanager
def redis_server(folder: Path) -> Iterator[Party]:
    port = free_port()
    folder.mkdir()
    command = [
        servers.program("redis-server"), "--port", str(port), "--dir", str(folder), "--save", "",
        "--appendonly", "yes", "--appendfsync", "everysec", "--loglevel", "warning",
    ]  # fmt: skip
    with listening(command, port, {}) as pid:
        yield Party("redis", f"redis://127.0.0.1:{port}/0", server=pid)


@contextmanager
def rabbitmq_server(folder: Path) -> Iterator[Party]:
    port, names_port = free_port(), free_port()
    folder.mkdir()
    home = {
        "HOME": str(folder), "ERL_EPMD_PORT": str(names_port), "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": "bench@localhost", "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(free_port()), "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_LOG_BASE": str(folder / "log"), "RABBITMQ_CONFIG_FILE": str(folder / "none"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
    }  # fmt: skip
    with (
        listening([servers.program("epmd")], names_port, home),
        listening([servers.program("rabbitmq-server")], port, home) as pid,
    ):
        yield Party("rabbitmq", f"amqp://guest:guest@127.0.0.1:{port}//", server=pid)


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_for(ready: Any, timeout_s: float = TIMEOUT_S) -> None:
    until = time.monotonic() + timeout_s
    while not ready():
        if time.monotonic() > until:
            raise TimeoutError("a broker or a worker did not get on")
        time.sleep(0.002)


def parties(folder: Path, stack: ExitStack) -> Iterator[Party]:
    yield Party("penstock", f"penstock://{folder}/penstock")
    if has("redis"):
        with suppress(ImportError):
            yield stack.enter_context(redis_server(folder / "redis"))
    with suppress(ImportError):
        yield stack.enter_context(rabbitmq_server(folder / "rabbitmq"))
    if has("sqlalchemy"):
        yield Party("sqlalchemy", f"sqla+sqlite:///{folder}/broker.db")
    for name in ("in", "control"):
        (folder / name).mkdir()
    both = str(folder / "in")
    options = {"data_folder_in": both, "data_folder_out": both}
    yield Party("filesystem", "filesystem://", options | {"control_folder": f"{folder}/control"})


def cpu_s(*pids: int) -> float:
    """CPU time of processes and of their children that live."""
    total = 0
    for pid in pids:
        with suppress(FileNotFoundError, ProcessLookupError):
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            total += sum(map(int, fields[11:15]))
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            total += int(cpu_s(*map(int, children)) * TICKS)
    return total / TICKS


SENDER = """
import sys, time
from benches._tasks_app import task
count, pause_s = int(sys.argv[1]), float(sys.argv[2])
task.delay(0.0)
began, cpu = time.time(), time.process_time()
for _ in range(count):
    task.delay(time.time())
    if pause_s: time.sleep(pause_s)
print(time.time() - began, time.process_time() - cpu)
"""


class Bench:
    """One party's worker and log."""

    def __init__(self, party: Party, log: Path) -> None:
        self.party, self.log = party, log
        root = Path(__file__).parents[1]
        self._environment = os.environ | {
            "TASKS_LOG": str(log), "TASKS_BROKER": party.url,
            "TASKS_OPTIONS": json.dumps(party.options),
            "PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)]),
        }  # fmt: skip

    def lines(self) -> list[tuple[float, float]]:
        if not self.log.exists():
            return []
        rows = (line.split() for line in self.log.read_text().splitlines())
        return [(float(began), float(sent)) for began, sent in rows if float(sent)]

    def send(self, count: int, pause_s: float = 0.0) -> tuple[float, float]:
        """Wall and CPU seconds of the sender."""
        command = [sys.executable, "-c", SENDER, str(count), str(pause_s)]
        found = subprocess.run(
            command, env=self._environment, check=True, capture_output=True, text=True
        )
        wall, cpu = map(float, found.stdout.split())
        return wall, cpu

    @contextmanager
    def worker(self) -> Iterator[int]:
        command = [
            sys.executable, "-m", "celery", "-A", "benches._tasks_app", "worker", "-c", "1",
            "-l", "ERROR", "--without-gossip", "--without-mingle", "--without-heartbeat",
        ]  # fmt: skip
        quiet = subprocess.DEVNULL
        with subprocess.Popen(command, env=self._environment, stdout=quiet, stderr=quiet) as found:
            try:
                yield found.pid
            finally:
                found.terminate()

    def warm(self, pid: int) -> None:
        """The worker runs: its first tasks take longer."""
        self._watched = [pid] + ([self.party.server] if self.party.server else [])
        self._run(WARM_COUNT)

    def _run(
        self, count: int, pause_s: float = 0.0
    ) -> tuple[list[tuple[float, float]], float, float]:
        """Sends tasks and waits for them: their times, and the sender's wall and CPU seconds."""
        known = len(self.lines())
        wall_s, cpu_s = self.send(count, pause_s)
        wait_for(lambda: len(self.lines()) >= known + count)
        return self.lines()[known:], wall_s, cpu_s

    def measure(self, count: int, single: int) -> tuple[dict[str, float], list[float]]:
        """Figures of a crowd of tasks, and how long each of the single ones took to start."""
        before = cpu_s(*self._watched)
        done, wall_s, sender_cpu_s = self._run(count)
        used_s = cpu_s(*self._watched) - before
        took_s = max(began for began, _ in done) - min(sent for _, sent in done)
        alone = [began - sent for began, sent in self._run(single, 0.02)[0]]
        figures = {
            "tasks_s": count / took_s,
            "sent_s": count / wall_s,
            "per_cpu_s": count / (used_s + sender_cpu_s),
        }
        return figures, alone


CASES = {
    "tasks_s": ("tasks through one worker, sent meanwhile", "task/s"),
    "sent_s": ("delay() of one sender", "task/s"),
    "per_cpu_s": ("tasks per CPU second: sender, worker, server", "task/s"),
    "p50_ms": ("delay() to start, alone, median", "ms"),
    "p99_ms": ("delay() to start, alone, 99 %", "ms"),
}
GOALS = {("tasks_s", "filesystem"): 20.0, ("per_cpu_s", "redis"): 1.0, ("p50_ms", "redis"): 1.0,
         ("p99_ms", "redis"): 1.0}  # fmt: skip


def run(quick: bool) -> Iterator[Row]:
    if not has("celery", "kombu"):
        print("  tasks: left out, Celery is not installed", file=sys.stderr)
        return
    count, single, rounds = (300, 30, 1) if quick else (1000, 250, 4)
    found: dict[str, dict[str, float]] = {}
    alone: dict[str, list[float]] = {}
    with scratch() as folder, ExitStack() as stack:
        benches = [Bench(party, folder / f"{party.name}.log") for party in parties(folder, stack)]
        for bench in benches:
            bench.warm(stack.enter_context(bench.worker()))
        # In turn, again and again: a machine slows down for seconds, and all get some of that.
        for _ in range(rounds):
            for bench in benches:
                name = bench.party.name
                # Single tasks of these wait for a look every second.
                is_slow = name in ("filesystem", "sqlalchemy")
                figures, starts = bench.measure(count, 20 if is_slow else single)
                alone.setdefault(name, []).extend(starts)
                best = found.setdefault(name, figures)
                for key, value in figures.items():
                    best[key] = max(best[key], value)
    for name, starts in alone.items():
        found[name]["p50_ms"] = median(starts) * 1e3
        found[name]["p99_ms"] = percentile(starts, 99) * 1e3
    ours = found.pop("penstock")
    for key, (case, unit) in CASES.items():
        for peer, values in found.items():
            yield Row(
                case=f"{case}, beside {peer}", ours=ours[key], unit=unit, peer=peer,
                peer_value=values[key], ratio_goal=GOALS.get((key, peer)),
                note="penstock interval, Redis append-only everysec",
            )  # fmt: skip
